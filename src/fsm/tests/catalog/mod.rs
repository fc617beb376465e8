//! Tests of commands about the catalog, without other layers around them.
//!
//! An event reads `H/web + n1/web1 [c1]`: its topic (`H`ealth, `C`onnect, `L`ist, `N`ode, `T`able)
//! and subject, `+` for a registration and `-` for a deregistration, then its content: node and
//! instance, with the checks that came with it.

mod history;
pub(crate) mod model;
mod rules;
mod table;

use std::sync::Arc;

use super::bed::TestBed;
use crate::catalog::{CatalogEffect, CatalogTxn};
use crate::error::{FsmError, split_refusal};
use headwater_storage::ReadView;
use headwater_storage::state::{AppliedState, CatalogReader, Committed};
use headwater_types::catalog::{
    CatalogBody, CatalogCommand, CatalogDone, CatalogEvent, CatalogNode, CatalogOp, CatalogRefusal, CatalogTopic,
    Check, CheckServiceNode, CheckStatus, Deregistration, DeregistrationTarget, LinkedService, Registration, Service,
    ServiceConnect, ServiceKind, TerminatingGateway,
};
use headwater_types::consul::{CatalogVerb, ConsulCommand, ConsulOutcome, TxnOp, TxnRow};
use headwater_types::{Command, LogIndex, Outcome, Refusal, Term};

/// Events of a command, or its refusal.
type Done = Result<Vec<String>, CatalogRefusal>;

/// A test bed with a record of the commands about the catalog, and of their events.
pub(super) struct Store {
    pub(super) bed: TestBed,
    /// Commands that [`Self::run`] and [`Self::transact`] applied, and those that a test adds.
    log: Vec<Command>,
    /// Events of the commands that a method of this type applied, each with the log index of its
    /// command.
    delivered: Vec<(LogIndex, Arc<[CatalogEvent]>)>,
}

impl Store {
    pub(super) fn new() -> Self {
        Self { bed: TestBed::new(), log: Vec::new(), delivered: Vec::new() }
    }

    /// The store, closed and opened again: rows are then decoded from disk, not cached.
    pub(super) fn reopened(self) -> Self {
        Self { bed: self.bed.reopened(), ..self }
    }

    /// Applies a command, and returns its outcome with its events. A registration must be complete
    /// ([`Registration::complete`]).
    pub(super) fn run(&mut self, command: CatalogCommand) -> Result<(CatalogDone, Vec<CatalogEvent>), CatalogRefusal> {
        self.log.push(Command::Catalog(command.clone()));
        let (mut outcomes, committed) = self.bed.apply_all([Command::Catalog(command)], true);
        let events = self.receive(&committed);
        match outcomes.pop() {
            Some(Outcome::Catalog(done)) => {
                assert_eq!(done.changed, !events.is_empty(), "whatever changes is told");
                Ok((done, events))
            }
            Some(Outcome::Refused(Refusal::Catalog(refusal))) => {
                assert_eq!(events, [], "what is refused changes nothing");
                Err(refusal)
            }
            other => panic!("{other:?}"),
        }
    }

    /// Runs these commands as one transaction: removals of nodes, and registrations without checks.
    fn transact(&mut self, commands: &[CatalogCommand]) {
        let set = |row| TxnOp::Catalog(CatalogVerb::Set, row);
        let mut ops = Vec::new();
        for command in commands {
            match command {
                CatalogCommand::Deregister(gone) => {
                    assert_eq!(gone.what, DeregistrationTarget::Node);
                    let node = CatalogNode { name: gone.node.clone(), ..CatalogNode::default() };
                    ops.push(TxnOp::Catalog(CatalogVerb::Delete, TxnRow::Node(Box::new(node))));
                }
                CatalogCommand::Register(registration) => {
                    assert_eq!(registration.checks, []);
                    let Registration { node, service, .. } = registration.as_ref();
                    ops.push(set(TxnRow::Node(Box::new(node.clone()))));
                    let on_node = |service: &Service| Service { node: node.name.clone(), ..service.clone() };
                    ops.extend(service.iter().map(|service| set(TxnRow::Service(Box::new(on_node(service))))));
                }
                CatalogCommand::SetGateway(_) | CatalogCommand::DeleteGateway(_) => {
                    panic!("{command:?} is in no transaction")
                }
            }
        }
        let command = Command::Consul(ConsulCommand::Txn(ops));
        self.log.push(command.clone());
        let (outcomes, committed) = self.bed.apply_all([command], true);
        assert!(matches!(outcomes[..], [Outcome::Consul(ConsulOutcome::Txn(_))]), "{outcomes:?}");
        self.receive(&committed);
    }

    fn receive(&mut self, committed: &Committed) -> Vec<CatalogEvent> {
        let delivered: Vec<_> =
            committed.events.iter().map(|commit| (commit.index, Arc::clone(&commit.catalog))).collect();
        let events = delivered.iter().flat_map(|(_, events)| events.iter().cloned()).collect();
        self.delivered.extend(delivered);
        events
    }

    /// Applies the changes of `work` as one command and commits them. Returns the effect and the
    /// events. Panics if `work` fails or refuses.
    fn catalog(
        &mut self,
        work: impl FnOnce(&mut CatalogTxn<'_, '_>) -> Result<(), FsmError>,
    ) -> (CatalogEffect, Vec<CatalogEvent>) {
        let db = self.bed.store.current();
        let mut txn = self.bed.store.begin(&db).unwrap();
        let index = LogIndex(self.bed.next);
        txn.begin_command(index, 1);
        let mut catalog = CatalogTxn::new(&mut txn, index);
        split_refusal(work(&mut catalog)).unwrap().unwrap();
        let effect = catalog.finish().unwrap();
        txn.end_command();
        txn.set_applied(&AppliedState { term: Term(1), index, membership: None });
        self.bed.next += 1;
        let committed = txn.commit().unwrap();
        (effect, self.receive(&committed))
    }

    pub(super) fn register(&mut self, mut registration: Registration) -> Done {
        registration.complete().expect("a registration that may be proposed");
        self.run(CatalogCommand::Register(Box::new(registration))).map(|(_, events)| show_events(&events))
    }

    pub(super) fn deregister(&mut self, node: &str, what: DeregistrationTarget) -> Done {
        let deregistration = Deregistration { node: node.to_owned(), what, guard: None };
        self.run(CatalogCommand::Deregister(Box::new(deregistration))).map(|(_, events)| show_events(&events))
    }

    fn link(&mut self, name: &str, services: &[&str]) -> Done {
        let command = CatalogCommand::SetGateway(Box::new(gateway(name, services)));
        self.run(command).map(|(_, events)| show_events(&events))
    }

    pub(super) fn view<T>(&self, read: impl FnOnce(&ReadView<'_>) -> T) -> T {
        read(&self.bed.store.current().view().unwrap())
    }

    fn instances(&self, service: &str) -> Vec<String> {
        self.view(|view| view.instances(service).unwrap().value.iter().map(|instance| show(instance)).collect())
    }

    fn connect(&self, service: &str) -> Vec<String> {
        self.view(|view| view.connect_instances(service).unwrap().value.iter().map(|found| show(found)).collect())
    }
}

/// Events of health and names, in order.
fn show_events(events: &[CatalogEvent]) -> Vec<String> {
    let is_shown = |event: &&CatalogEvent| match event.topic {
        CatalogTopic::ServiceHealth | CatalogTopic::ServiceHealthConnect | CatalogTopic::ServiceList => true,
        CatalogTopic::Node | CatalogTopic::Table => false,
    };
    events.iter().filter(is_shown).map(show_event).collect()
}

fn show_event(event: &CatalogEvent) -> String {
    let topic = match event.topic {
        CatalogTopic::ServiceHealth => "H",
        CatalogTopic::ServiceHealthConnect => "C",
        CatalogTopic::ServiceList => "L",
        CatalogTopic::Node => "N",
        CatalogTopic::Table => "T",
    };
    let op = if event.op == CatalogOp::Register { '+' } else { '-' };
    let body = match &event.body {
        CatalogBody::Instance(instance) => format!(" {}", show(instance)),
        CatalogBody::Table(table) => format!(" {table:?}"),
        CatalogBody::Name(_) | CatalogBody::Node(_) => String::new(),
    };
    format!("{topic}/{} {op}{body}", event.key)
}

fn show(instance: &CheckServiceNode) -> String {
    let mut shown = format!("{}/{}", instance.node.name, instance.service.id);
    if !instance.checks.is_empty() {
        let checks: Vec<&str> = instance.checks.iter().map(|check| check.id.as_str()).collect();
        shown.push_str(&format!(" [{}]", checks.join(" ")));
    }
    shown
}

pub(super) fn node(name: &str) -> Registration {
    let node = CatalogNode { name: name.to_owned(), address: "10.0.0.1".to_owned(), ..CatalogNode::default() };
    Registration { node, ..Registration::default() }
}

/// A registration of a node. Its id is the UUID that ends with `id`.
fn node_with_id(name: &str, id: u8) -> Registration {
    let mut registration = node(name);
    registration.node.id = format!("00000000-0000-0000-0000-0000000000{id:02x}");
    registration
}

pub(super) fn typical(name: &str) -> Service {
    Service { name: name.to_owned(), id: name.to_owned(), ..Service::default() }
}

fn native(name: &str) -> Service {
    Service { connect: ServiceConnect { native: true, ..ServiceConnect::default() }, ..typical(name) }
}

fn sidecar(name: &str, destination: &str) -> Service {
    let mut service = Service { kind: ServiceKind::ConnectProxy, ..typical(name) };
    service.proxy.destination_service_name = destination.to_owned();
    service
}

fn gateway_instance(name: &str) -> Service {
    Service { kind: ServiceKind::TerminatingGateway, ..typical(name) }
}

/// The service with another id than its name.
fn with_id(id: &str, service: Service) -> Service {
    Service { id: id.to_owned(), ..service }
}

pub(super) fn on(node_name: &str, service: Service) -> Registration {
    Registration { service: Some(service), ..node(node_name) }
}

/// A passing check; of the node if `service` is empty.
pub(super) fn check(id: &str, service: &str) -> Check {
    Check { id: id.to_owned(), service_id: service.to_owned(), status: CheckStatus::Passing, ..Check::default() }
}

/// A registration of checks alone, on an existing node.
pub(super) fn checks(node_name: &str, checks: impl IntoIterator<Item = Check>) -> Registration {
    let mut registration = Registration { checks: checks.into_iter().collect(), ..node(node_name) };
    registration.skip_node_update = true;
    registration
}

fn gateway(name: &str, services: &[&str]) -> TerminatingGateway {
    let link = |name: &&str| LinkedService { name: (*name).to_owned(), ..LinkedService::default() };
    TerminatingGateway {
        name: name.to_owned(),
        services: services.iter().map(link).collect(),
        ..TerminatingGateway::default()
    }
}
