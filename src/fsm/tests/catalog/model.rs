//! Random registrations against a simple model: rows, secondary indexes, events, and query indexes.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::tests::bed::{TestBed, compact, put, trim};
use headwater_types::catalog::canonical;

const NODES: [&str; 3] = ["a", "b", "B"];
const NAMES: [&str; 4] = ["web", "Web", "api", "gw"];
const IDS: [&str; 2] = ["s1", "s2"];
const CHECKS: [&str; 2] = ["c1", "c2"];

/// A step of the random test.
#[derive(Clone, Debug)]
enum Op {
    Register {
        node: usize,
        id: u8,
        port: i32,
        service: Option<Service>,
        checks: Vec<Check>,
        skip: bool,
    },
    Deregister {
        node: usize,
        what: DeregistrationTarget,
    },
    Link {
        services: Vec<&'static str>,
    },
    Unlink,
    /// Removes a node and registers one, which may be the same, in one transaction.
    Again {
        from: usize,
        to: usize,
        service: Service,
    },
    Compact,
    /// Trims history to begin this many commands before the last one, and reclaims the rest.
    Trim(u64),
}

fn name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(NAMES.to_vec())
}

fn service() -> impl Strategy<Value = Service> {
    let id = prop::sample::select(IDS.to_vec());
    let of_kind = prop_oneof![
        4 => name().prop_map(typical),
        1 => name().prop_map(native),
        2 => (name(), name()).prop_map(|(name, destination)| sidecar(name, destination)),
        2 => Just(gateway_instance("gw")),
    ];
    (id, of_kind, 0..2i32).prop_map(|(id, service, port)| Service { port, ..with_id(id, service) })
}

fn some_check() -> impl Strategy<Value = Check> {
    let id = prop::sample::select(CHECKS.to_vec());
    let service = prop::sample::select(vec!["", IDS[0], IDS[1]]);
    let status = prop::sample::select(CheckStatus::ALL.to_vec());
    (id, service, status).prop_map(|(id, service, status)| Check { status, ..check(id, service) })
}

fn op() -> impl Strategy<Value = Op> {
    let node = 0..NODES.len();
    let what = prop_oneof![
        1 => Just(DeregistrationTarget::Node),
        3 => prop::sample::select(IDS.to_vec()).prop_map(|id| DeregistrationTarget::Service(id.to_owned())),
        2 => prop::sample::select(CHECKS.to_vec()).prop_map(|id| DeregistrationTarget::Check(id.to_owned())),
    ];
    let checks = prop::collection::vec(some_check(), 0..2);
    let register = (node.clone(), 0..3u8, 0..2i32, prop::option::of(service()), checks, any::<bool>());
    prop_oneof![
        12 => register.prop_map(|(node, id, port, service, checks, skip)| {
            Op::Register { node, id, port, service, checks, skip }
        }),
        5 => (node.clone(), what).prop_map(|(node, what)| Op::Deregister { node, what }),
        2 => (node.clone(), node, service()).prop_map(|(from, to, service)| Op::Again { from, to, service }),
        2 => prop::collection::btree_set(prop::sample::select(vec!["web", "api"]), 0..3)
            .prop_map(|services| Op::Link { services: services.into_iter().collect() }),
        1 => Just(Op::Unlink),
        1 => Just(Op::Compact),
        1 => (0..10u64).prop_map(Op::Trim),
    ]
}

/// The state: rows without log indexes, by canonical names.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Model {
    nodes: BTreeMap<String, CatalogNode>,
    services: BTreeMap<(String, String), Service>,
    checks: BTreeMap<(String, String), Check>,
    /// Services that a gateway represents, by gateway.
    links: BTreeMap<String, Vec<String>>,
}

impl Model {
    /// Applies a command as specified. No name is reserved, for no node has a serf check; guards
    /// have tests of their own.
    pub(crate) fn apply(&mut self, command: &CatalogCommand) -> Outcome {
        let mut after = self.clone();
        match command {
            CatalogCommand::Register(registration) => {
                if !after.try_register(registration) {
                    return Outcome::Refused(Refusal::Catalog(CatalogRefusal::MissingService));
                }
            }
            CatalogCommand::Deregister(deregistration) => after.deregister(&deregistration.node, &deregistration.what),
            CatalogCommand::SetGateway(gateway) => {
                let names = gateway.services.iter().map(|link| link.name.clone()).collect();
                after.links.insert(canonical(&gateway.name), names);
            }
            CatalogCommand::DeleteGateway(name) => drop(after.links.remove(&canonical(name))),
        }
        let changed = after != *self;
        *self = after;
        Outcome::Catalog(CatalogDone { changed })
    }

    fn try_register(&mut self, registration: &Registration) -> bool {
        let key = canonical(&registration.node.name);
        let named = self.nodes.get(&key).cloned();
        if named.is_none() || !registration.skip_node_update {
            let mut node = registration.node.clone();
            if let Some(named) = named {
                if node.id.is_empty() {
                    node.id = named.id;
                }
                node.name = named.name;
            }
            let old = self.nodes.iter().find(|(name, old)| !node.id.is_empty() && old.id == node.id && **name != key);
            let old = old.map(|(name, _)| name.clone());
            let shown = node.name.clone();
            self.nodes.insert(key.clone(), node);
            if let Some(old) = old {
                let move_to = |(node, id): (String, String)| (if node == old { key.clone() } else { node }, id);
                let (moved, kept): (BTreeMap<_, _>, BTreeMap<_, _>) =
                    std::mem::take(&mut self.services).into_iter().partition(|((node, _), _)| *node == old);
                self.services = kept;
                for (instance_key, service) in moved {
                    self.services.entry(move_to(instance_key)).or_insert(Service { node: shown.clone(), ..service });
                }
                let (moved, kept): (BTreeMap<_, _>, BTreeMap<_, _>) =
                    std::mem::take(&mut self.checks).into_iter().partition(|((node, _), _)| *node == old);
                self.checks = kept;
                for (instance_key, check) in moved {
                    let copied = self.copy(&key, Check { node: shown.clone(), ..check });
                    let copied = copied.expect("its instance came along");
                    self.checks.entry(move_to(instance_key)).or_insert(copied);
                }
                self.nodes.remove(&old);
            }
        }
        let shown = self.nodes[&key].name.clone();
        if let Some(service) = &registration.service {
            let service = Service { node: shown.clone(), ..service.clone() };
            self.services.insert((key.clone(), service.id.clone()), service);
        }
        for check in &registration.checks {
            let check = Check { node: shown.clone(), ..check.clone() };
            let Some(check) = self.copy(&key, check) else { return false };
            self.checks.insert((key.clone(), check.id.clone()), check);
        }
        true
    }

    fn copy(&self, node: &str, check: Check) -> Option<Check> {
        if check.service_id.is_empty() {
            return Some(Check { service_name: String::new(), service_tags: Vec::new(), ..check });
        }
        let service = self.services.get(&(node.to_owned(), check.service_id.clone()))?;
        Some(Check { service_name: service.name.clone(), service_tags: service.tags.clone(), ..check })
    }

    fn deregister(&mut self, node: &str, what: &DeregistrationTarget) {
        let node = canonical(node);
        match what {
            DeregistrationTarget::Node => {
                self.nodes.remove(&node);
                self.services.retain(|(on, _), _| *on != node);
                self.checks.retain(|(on, _), _| *on != node);
            }
            DeregistrationTarget::Service(id) => {
                self.services.remove(&(node.clone(), id.clone()));
                self.checks.retain(|(on, _), check| *on != node || check.service_id != *id);
            }
            DeregistrationTarget::Check(id) => {
                self.checks.remove(&(node, id.clone()));
            }
        }
    }

    /// The text of an instance with its node and checks: all fields but the log indexes.
    fn instance(&self, (node, id): &(String, String)) -> String {
        let service = &self.services[&(node.clone(), id.clone())];
        let of = |wanted: &str| {
            let checks = self.checks.iter().filter(|((on, _), check)| on == node && check.service_id == wanted);
            checks.map(|(_, check)| check.clone()).collect::<Vec<_>>()
        };
        let checks = [of(""), of(id)].concat();
        text(&self.nodes[node], service, &checks)
    }

    fn health(&self, service: &str) -> Vec<String> {
        let named = self.services.iter().filter(|(_, row)| canonical(&row.name) == canonical(service));
        named.map(|(instance_key, _)| self.instance(instance_key)).collect()
    }

    /// Every instance through which some service is reached in the mesh.
    fn mesh(&self) -> BTreeSet<String> {
        ["web", "api", "gw"].into_iter().flat_map(|service| self.connect(service)).collect()
    }

    fn connect(&self, service: &str) -> Vec<String> {
        let stands_for = |row: &Service| match row.kind {
            ServiceKind::ConnectProxy => canonical(&row.proxy.destination_service_name) == service,
            ServiceKind::TerminatingGateway => {
                self.links.get(&canonical(&row.name)).is_some_and(|links| links.iter().any(|link| link == service))
            }
            _ => row.connect.native && canonical(&row.name) == service,
        };
        let found = self.services.iter().filter(|(_, row)| stands_for(row));
        found.map(|(instance_key, _)| self.instance(instance_key)).collect()
    }
}

/// All fields of the rows but their log indexes.
fn text(node: &CatalogNode, service: &Service, checks: &[Check]) -> String {
    let node = CatalogNode { created: LogIndex::ZERO, modified: LogIndex::ZERO, ..node.clone() };
    let service = Service { created: LogIndex::ZERO, modified: LogIndex::ZERO, ..service.clone() };
    let checks: Vec<Check> = checks
        .iter()
        .map(|check| Check { created: LogIndex::ZERO, modified: LogIndex::ZERO, ..check.clone() })
        .collect();
    format!("{node:?} {service:?} {checks:?}")
}

fn text_of(instance: &CheckServiceNode) -> String {
    let checks: Vec<Check> = instance.checks.iter().map(|check| check.as_ref().clone()).collect();
    text(&instance.node, &instance.service, &checks)
}

/// Identity of an instance for a subscriber, in the order of answers: its node in lower case, its
/// id, its node as written.
type InstanceKey = (String, String, String);

/// The state of a subscriber of everything: by topic, subject and instance.
#[derive(Default)]
struct Subscriber {
    instances: BTreeMap<(CatalogTopic, String), BTreeMap<InstanceKey, String>>,
    /// The state of a subscriber of the whole mesh, which does not see the services that an
    /// instance represents.
    mesh: BTreeMap<InstanceKey, String>,
    names: BTreeSet<String>,
}

impl Subscriber {
    fn receive(&mut self, event: &CatalogEvent) {
        match &event.body {
            CatalogBody::Instance(instance) => {
                // The identity has the node's name as written (spec: consul §4.6).
                let name = &instance.node.name;
                let instance_key = (canonical(name), instance.service.id.clone(), name.clone());
                if event.topic == CatalogTopic::ServiceHealthConnect {
                    match event.op {
                        CatalogOp::Register => drop(self.mesh.insert(instance_key.clone(), text_of(instance))),
                        CatalogOp::Deregister => drop(self.mesh.remove(&instance_key)),
                    }
                }
                let subject = self.instances.entry((event.topic, event.key.to_string())).or_default();
                match event.op {
                    CatalogOp::Register => drop(subject.insert(instance_key, text_of(instance))),
                    CatalogOp::Deregister => {
                        assert!(subject.remove(&instance_key).is_some(), "what goes was there: {event:?}");
                        assert_eq!((instance.checks.len(), instance.node.address.as_str()), (0, ""));
                    }
                }
            }
            CatalogBody::Name(name) => {
                let is_news = match event.op {
                    CatalogOp::Register => self.names.insert(name.to_string()),
                    CatalogOp::Deregister => self.names.remove(name.as_ref()),
                };
                assert!(is_news, "a name comes once and goes once: {event:?}");
            }
            CatalogBody::Node(_) | CatalogBody::Table(_) => {}
        }
    }

    fn subject(&self, topic: CatalogTopic, key: &str) -> Vec<String> {
        self.instances.get(&(topic, key.to_owned())).map(|found| found.values().cloned().collect()).unwrap_or_default()
    }
}

/// Answers of health queries, each with its index.
fn answers(store: &Store) -> BTreeMap<(CatalogTopic, &'static str), (LogIndex, Vec<String>)> {
    store.view(|view| {
        let mut answers = BTreeMap::new();
        for name in ["web", "api", "gw"] {
            let texts = |found: &[Arc<CheckServiceNode>]| found.iter().map(|found| text_of(found)).collect::<Vec<_>>();
            let health = view.instances(name).unwrap();
            answers.insert((CatalogTopic::ServiceHealth, name), (health.index, texts(&health.value)));
            let connect = view.connect_instances(name).unwrap();
            answers.insert((CatalogTopic::ServiceHealthConnect, name), (connect.index, texts(&connect.value)));
        }
        answers
    })
}

fn check_all(store: &Store, model: &Model, subscriber: &Subscriber) -> Result<(), TestCaseError> {
    for ((topic, name), (_, found)) in answers(store) {
        let wanted = match topic {
            CatalogTopic::ServiceHealth => model.health(name),
            _ => model.connect(name),
        };
        prop_assert_eq!(&found, &wanted, "{:?} {}", topic, name);
        prop_assert_eq!(subscriber.subject(topic, name), wanted, "heard of {:?} {}", topic, name);
    }
    prop_assert_eq!(
        subscriber.mesh.values().cloned().collect::<BTreeSet<_>>(),
        model.mesh(),
        "heard of the whole mesh"
    );
    let names: BTreeSet<String> = model.services.values().map(|row| row.name.clone()).collect();
    prop_assert_eq!(&subscriber.names, &names);
    store.view(|view| {
        let found: BTreeSet<String> = view.service_names().unwrap().value.into_iter().map(|found| found.name).collect();
        prop_assert_eq!(&found, &names);
        let nodes = view.nodes().unwrap().value;
        prop_assert_eq!(nodes.len(), model.nodes.len());
        for name in NODES {
            let key = canonical(name);
            let services = view.services_of_node(name).unwrap().value;
            let wanted = model.services.keys().filter(|(node, _)| *node == key).map(|(_, id)| id.as_str());
            prop_assert!(services.iter().map(|row| row.id.as_str()).eq(wanted));
            let checks = view.checks_of_node(name).unwrap().value;
            let found: BTreeSet<&str> = checks.iter().map(|row| row.id.as_str()).collect();
            let wanted = model.checks.keys().filter(|(node, _)| *node == key).map(|(_, id)| id.as_str());
            prop_assert_eq!(found, wanted.collect::<BTreeSet<_>>());
            if let Some(node) = model.nodes.get(&key).filter(|node| !node.id.is_empty()) {
                let by_id = view.node_by_id(&node.id).unwrap().map(|stored| stored.row.name.clone());
                prop_assert_eq!(by_id.as_ref(), Some(&node.name));
            }
        }
        for status in CheckStatus::ALL {
            let found = view.checks_in_state(Some(status)).unwrap().value.len();
            prop_assert_eq!(found, model.checks.values().filter(|check| check.status == status).count());
        }
        let mesh: BTreeSet<String> =
            view.all_connect_instances().unwrap().value.iter().map(|found| text_of(found)).collect();
        prop_assert_eq!(mesh, model.mesh());
        prop_assert_eq!(view.all_instances().unwrap().value.len(), model.services.len());
        Ok(())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn commands_do_what_the_model_does(ops in prop::collection::vec(op(), 1..40)) {
        let mut store = Store::new();
        let (mut model, mut subscriber) = (Model::default(), Subscriber::default());
        let mut revision = 1;
        let mut compacted = LogIndex::ZERO;
        for op in ops {
            let (before, delivered) = (answers(&store), store.delivered.len());
            let deregister = |node: usize, what| {
                let deregistration = Deregistration { node: NODES[node].to_owned(), what, guard: None };
                CatalogCommand::Deregister(Box::new(deregistration))
            };
            let commands = match op {
                Op::Register { node: at, id, port, service, checks, skip } => {
                    let mut registration = if id == 0 { node(NODES[at]) } else { node_with_id(NODES[at], id) };
                    registration.node.address = format!("10.0.0.{port}");
                    (registration.service, registration.checks, registration.skip_node_update) = (service, checks, skip);
                    registration.complete().unwrap();
                    vec![CatalogCommand::Register(Box::new(registration))]
                }
                Op::Deregister { node, what } => vec![deregister(node, what)],
                Op::Link { services } => vec![CatalogCommand::SetGateway(Box::new(gateway("gw", &services)))],
                Op::Unlink => vec![CatalogCommand::DeleteGateway("GW".to_owned())],
                Op::Again { from, to, service } => {
                    let mut registration = on(NODES[to], service);
                    registration.complete().unwrap();
                    vec![deregister(from, DeregistrationTarget::Node), CatalogCommand::Register(Box::new(registration))]
                }
                Op::Compact => {
                    for command in [put("k", "v"), compact(revision + 1)] {
                        store.log.push(command.clone());
                        store.bed.apply(command);
                    }
                    revision += 1;
                    compacted = LogIndex(store.bed.next - 2);
                    store.bed.reclaim(3);
                    continue;
                }
                Op::Trim(back) => {
                    let from = store.bed.next.saturating_sub(1 + back);
                    store.log.push(trim(from));
                    store.bed.apply(trim(from));
                    compacted = compacted.max(LogIndex(from));
                    store.bed.reclaim(3);
                    continue;
                }
            };
            let wanted: Vec<Outcome> = commands.iter().map(|command| model.apply(command)).collect();
            match &commands[..] {
                [command] => {
                    let done = match store.run(command.clone()) {
                        Ok((done, _)) => Outcome::Catalog(done),
                        Err(refusal) => Outcome::Refused(Refusal::Catalog(refusal)),
                    };
                    prop_assert_eq!(vec![done], wanted);
                }
                several => store.transact(several),
            }
            for (_, events) in &store.delivered[delivered..] {
                events.iter().for_each(|event| subscriber.receive(event));
            }
            check_all(&store, &model, &subscriber)?;
            for (query, (index, answer)) in answers(&store) {
                let (index_before, answer_before) = &before[&query];
                prop_assert!(index >= *index_before, "an index never goes back: {:?}", query);
                prop_assert!(answer == *answer_before || index > *index_before, "a new answer has a new index: {:?}", query);
            }
        }
        // The state is the same if the commands are committed together, and their outcomes are not
        // wanted.
        let mut together = TestBed::new();
        together.apply_all(store.log.clone(), false);
        prop_assert_eq!(together.hash(), store.bed.hash());
        // Catch-up gives the same events, and cached rows equal those on disk.
        let remembered = answers(&store);
        let mut store = store.reopened();
        prop_assert_eq!(answers(&store), remembered);
        let delivered: Vec<_> =
            store.delivered.iter().filter(|(index, events)| *index >= compacted && !events.is_empty()).cloned().collect();
        prop_assert_eq!(history::recorded(&store), delivered);
        // Removal subtracts the bytes that registration added.
        for name in NODES {
            store.deregister(name, DeregistrationTarget::Node).unwrap();
        }
        store.run(CatalogCommand::DeleteGateway("gw".to_owned())).unwrap();
        let live_bytes = store.view(|view| view.head().live_bytes);
        prop_assert_eq!(live_bytes, if revision > 1 { 2 } else { 0 });
    }
}
