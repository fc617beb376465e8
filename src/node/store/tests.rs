//! Points, pages and changes, on a store without a cluster.

use std::sync::Arc;

use headwater_storage::ReadView;
use headwater_storage::state::{AppliedState, StateOptions, StateStore};
use headwater_types::catalog::{
    CatalogCommand, CatalogNode, Check, CheckStatus, Deregistration, DeregistrationTarget, Registration, Service,
};
use headwater_types::limits::STORE_MESSAGE_BYTES_MAX;
use headwater_types::resource::{Resource, ResourceId, Tenancy, Type};
use headwater_types::{
    Author, Command, Compact, DeleteRange, Face, KeyRange, LeaseChoice, LeaseGrant, LeaseId, LeaseRevoke, LogIndex,
    MemberProgram, NodeId, Proposal, Proposer, Put, Revision, Supported, Term, TrimHistory, ValueChoice, Version,
    VersionChange,
};

use super::changes::{Filter, Gatherer};
use super::error::StoreError;
use super::history::{Rest, begin, read_part};
use super::list::{Page, list};
use super::*;
use crate::{ElementData, Position};

/// A store at version 0.4; command 1 announced the program and command 2 raised the version.
struct Bed {
    _dir: tempfile::TempDir,
    store: Arc<StateStore>,
    applied: u64,
}

impl Bed {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(StateStore::open(dir.path(), &StateOptions::default()).unwrap());
        let mut bed = Self { _dir: dir, store, applied: 0 };
        let program = MemberProgram { program: "0.4".to_owned(), supported: Supported::RELEASE };
        bed.apply(Command::AnnounceProgram(NodeId(1), program));
        bed.apply(Command::SetVersion(VersionChange::Raise { to: Version::V0_4, term: Term(1) }));
        bed
    }

    /// Applies a command with its log index as the time of its proposal, in seconds.
    fn apply(&mut self, command: Command) -> LogIndex {
        let at = (self.applied + 1) * 1000;
        self.propose(Proposal::new(at, command))
    }

    fn propose(&mut self, proposal: Proposal) -> LogIndex {
        self.applied += 1;
        let index = LogIndex(self.applied);
        let db = self.store.current();
        let mut txn = self.store.begin(&db).unwrap();
        let outcome = headwater_fsm::apply(&mut txn, Term(1), index, &proposal, true).unwrap();
        assert!(!matches!(outcome, headwater_types::Outcome::Refused(_)), "{outcome:?}");
        txn.set_applied(&AppliedState { term: Term(1), index, membership: None });
        txn.commit().unwrap();
        index
    }

    fn put(&mut self, key: &str, value: &str) -> LogIndex {
        self.apply(put(key, value))
    }

    fn view<T>(&self, read: impl FnOnce(&ReadView<'_>) -> T) -> T {
        let db = self.store.current();
        let view = db.view().unwrap();
        read(&view)
    }

    /// `name=value` of every entity of a target, read in pages of `size`.
    fn list_in_pages(&self, text: &str, at: u64, size: usize) -> Vec<String> {
        let target = target(text);
        self.view(|view| {
            let at = At::new(LogIndex(at), view.applied());
            let (mut found, mut after) = (Vec::new(), Vec::new());
            loop {
                let mut page = Page::new(size);
                list(view, at, &target, &after, &mut page).unwrap().unwrap();
                let next = page.cut();
                let entities = page.into_entities();
                assert!(entities.len() <= size);
                found.extend(entities.iter().map(|entity| format!("{}={}", entity.name(), shown(&entity.data))));
                match next {
                    Some(next) => after = next,
                    None => return found,
                }
            }
        })
    }

    /// The list, which must be the same for every size of pages.
    fn list(&self, text: &str, at: u64) -> Vec<String> {
        let whole = self.list_in_pages(text, at, 1000);
        for size in 1..=3 {
            assert_eq!(self.list_in_pages(text, at, size), whole, "{text} at {at} in pages of {size}");
        }
        whole
    }

    /// `index author face: name before -> after, …` of each command that changed the target.
    fn changes(&self, text: &str, faces: &[Face]) -> Vec<String> {
        let filter = Filter { targets: vec![target(text)], faces: faces.to_vec(), names_only: false };
        self.view(|view| {
            let floor = view.head().compacted_index();
            let span = headwater_storage::state::HistorySpan { after: floor, through: view.applied() };
            let mut walk = view.walk(span, false, filter.tables());
            let mut gatherer = Gatherer::new(view, &filter);
            while let Some(command) = walk.next().unwrap() {
                assert!(gatherer.add(&command).unwrap());
            }
            gatherer.finish().unwrap().iter().map(show_changes).collect()
        })
    }

    /// The pages of the history of a target between two indexes, as a stream reads them.
    fn pages(&self, text: &str, between: (u64, u64), is_backward: bool, names_only: bool) -> Vec<HistoryPage> {
        let filter = Filter { targets: vec![target(text)], faces: Vec::new(), names_only };
        let point = |index| Some(Point::Index(Position { index: LogIndex(index), epoch: None }));
        self.view(|view| {
            let points = (point(between.0), point(between.1));
            let (mut rest, epoch) = begin(view, &filter, points, is_backward).unwrap().unwrap();
            let mut pages = Vec::new();
            while !rest.is_empty() {
                let mut walked = None;
                let tell = |rest: &Rest| walked = Some(rest.clone());
                let part = read_part(view, &filter, rest, epoch, 64, tell).unwrap().unwrap();
                assert_eq!(walked, Some(part.rest.clone()), "{text}, {between:?}");
                (rest, _) = (part.rest, pages.push(part.page));
            }
            pages
        })
    }

    /// Checks the pages of a large command at `index`, in which a change has `bytes`. Returns its
    /// changes.
    fn check_parts(&self, text: &str, index: LogIndex, bytes: usize) -> Vec<String> {
        let now = self.applied;
        let mut both = Vec::new();
        for is_backward in [false, true] {
            let pages = self.pages(text, (0, now), is_backward, false);
            let parts = pages.iter().filter(|page| page.commands.iter().any(|command| command.index == index));
            let parts: Vec<_> = parts.collect();
            let (last, open) = parts.split_last().unwrap();
            assert!(open.len() > 2, "{}", open.len());
            for page in open {
                let [part] = &page.commands[..] else { panic!("{} commands", page.commands.len()) };
                let all = bytes * part.changes.len();
                assert!(part.is_continued && (1..=STORE_MESSAGE_BYTES_MAX).contains(&all), "{all} bytes");
                // A reader that stops here goes on with the whole command.
                assert_eq!(page.reached, if is_backward { index } else { LogIndex(index.get() - 1) });
                let from = if is_backward { (0, page.reached.get()) } else { (page.reached.get(), now) };
                let again = self.pages(text, from, is_backward, false);
                assert_eq!(&again.iter().find(|page| !page.commands.is_empty()).unwrap().commands, &parts[0].commands);
            }
            assert!(!last.commands[0].is_continued && !last.commands[0].changes.is_empty());
            both.push(parts.iter().flat_map(|page| lengths(&page.commands[0])).collect::<Vec<_>>());
        }
        assert_eq!(both[0], both[1]);
        let short = self.pages(text, (index.get() - 1, index.get()), false, true);
        assert_eq!(short.len(), 1, "names alone fit into one message");
        assert_eq!(short[0].commands[0].changes.len(), both[0].len());
        both.remove(0)
    }
}

/// `name before>after` of each change, with the lengths of values.
fn lengths(command: &CommandChanges) -> Vec<String> {
    let length = |state: &Option<EntityState>| match state.as_ref().map(|state| &state.data) {
        None => "-".to_owned(),
        Some(ElementData::Kv(kv)) => kv.value.len().to_string(),
        Some(ElementData::Instance(instance)) => {
            let outputs: Vec<_> = instance.checks.iter().map(|check| check.output.len().to_string()).collect();
            format!("{}+{}", instance.node.address, outputs.concat())
        }
        Some(other) => panic!("{other:?}"),
    };
    let shown = |it: &EntityChange| format!("{} {}>{}", it.name, length(&it.before), length(&it.after));
    command.changes.iter().map(shown).collect()
}

fn show_changes(command: &CommandChanges) -> String {
    let author = match &command.authorship.author {
        None => "-".to_owned(),
        Some(Author::User(name)) => name.clone(),
        Some(Author::Token(accessor)) => format!("token {accessor}"),
        Some(Author::Node) => "node".to_owned(),
    };
    let state = |state: &Option<EntityState>| {
        state.as_ref().map_or("-".to_owned(), |state| format!("{}@{}", shown(&state.data), state.index))
    };
    let changes: Vec<String> = command
        .changes
        .iter()
        .map(|change| format!("{} {} -> {}", change.name, state(&change.before), state(&change.after)))
        .collect();
    let face = command.authorship.face.map_or("-", Face::name);
    format!("{} {author} {face}: {}", command.index, changes.join(", "))
}

fn shown(data: &ElementData) -> String {
    match data {
        ElementData::Empty => "/".to_owned(),
        ElementData::Kv(kv) => String::from_utf8_lossy(&kv.value).into_owned(),
        ElementData::Resource(resource) => format!("v{}", resource.version),
        ElementData::Instance(instance) => {
            let checks: Vec<_> = instance.checks.iter().map(|check| check.id.clone()).collect();
            format!("{}:{}[{}]", instance.node.address, instance.service.port, checks.join(" "))
        }
        ElementData::CatalogNode(node) => node.address.clone(),
        ElementData::Lease { ttl_seconds, .. } => ttl_seconds.to_string(),
        ElementData::Member(member) => member.name.clone(),
    }
}

/// `space/name`; with `/*` at its end everything below, with `/` the children.
fn target(text: &str) -> StoreTarget {
    let (text, depth) = match text.strip_suffix("/*") {
        Some(text) => (text, Depth::All),
        None => text.strip_suffix('/').map_or((text, Depth::Itself), |text| (text, Depth::Children)),
    };
    let (space, name) = text.split_once('/').unwrap_or((text, ""));
    let space = match space {
        "kv" => EntitySpace::Kv,
        "resources" => EntitySpace::Resources,
        "services" => EntitySpace::Services,
        "nodes" => EntitySpace::Nodes,
        "leases" => EntitySpace::Leases,
        "cluster" => EntitySpace::Cluster,
        other => panic!("{other}"),
    };
    StoreTarget { space, name: name.to_owned(), depth }
}

fn put(key: &str, value: &str) -> Command {
    Command::Put(Put {
        key: key.to_owned().into(),
        value: ValueChoice::Set(value.to_owned().into()),
        lease: LeaseChoice::Set(LeaseId::NONE),
        prev_kv: false,
    })
}

fn delete(key: &str) -> Command {
    Command::DeleteRange(DeleteRange { range: KeyRange::One(key.to_owned().into()), prev_kv: false })
}

fn register(node: &str, address: &str, service: Option<(&str, &str, i32)>, checks: &[(&str, &str)]) -> Command {
    let registration = Registration {
        node: CatalogNode { name: node.to_owned(), address: address.to_owned(), ..CatalogNode::default() },
        skip_node_update: false,
        service: service.map(|(name, id, port)| Service {
            node: node.to_owned(),
            name: name.to_owned(),
            id: id.to_owned(),
            port,
            ..Service::default()
        }),
        checks: checks
            .iter()
            .map(|(id, service_id)| Check {
                node: node.to_owned(),
                id: (*id).to_owned(),
                service_id: (*service_id).to_owned(),
                status: CheckStatus::Passing,
                ..Check::default()
            })
            .collect(),
        ..Registration::default()
    };
    Command::Catalog(CatalogCommand::Register(Box::new(registration)))
}

fn deregister(node: &str, service_id: &str) -> Command {
    let what = DeregistrationTarget::Service(service_id.to_owned());
    let deregistration = Deregistration { node: node.to_owned(), what, guard: None };
    Command::Catalog(CatalogCommand::Deregister(Box::new(deregistration)))
}

#[test]
fn keys_are_listed_as_they_were() {
    let mut bed = Bed::new();
    for (key, value) in [("app", "d0"), ("app/a", "1"), ("app/d/x", "3"), ("app/d/y", "4"), ("app!", "no")] {
        bed.put(key, value);
    }
    let before = bed.put("app/d", "5").get();
    bed.apply(delete("app/a"));
    bed.put("app/d/x", "6");
    let now = bed.put("b", "7").get();
    assert_eq!(bed.list("kv/app", before), ["app=d0"]);
    assert_eq!(bed.list("kv/app/", before), ["app=d0", "app/a=1", "app/d=5"]);
    assert_eq!(bed.list("kv/app/", before - 1), ["app=d0", "app/a=1", "app/d=/"]);
    assert_eq!(bed.list("kv/app/*", before), ["app=d0", "app/a=1", "app/d=5", "app/d/x=3", "app/d/y=4"]);
    assert_eq!(bed.list("kv/app/*", now), ["app=d0", "app/d=5", "app/d/x=6", "app/d/y=4"]);
    assert_eq!(bed.list("kv/", now), ["app=d0", "app!=no", "b=7"]);
    assert_eq!(bed.list("kv/nothing/*", now), [""; 0]);
    assert_eq!(bed.list("kv/*", 2), [""; 0]);
}

#[test]
fn changes_of_keys_have_both_states_and_who_made_them() {
    let mut bed = Bed::new();
    let first = bed.put("a", "1");
    let by = |command, name: &str, face| Proposal {
        proposer: Some(Proposer::User { name: name.to_owned(), auth_revision: 1 }),
        face: Some(face),
        ..Proposal::new(9000, command)
    };
    let second = bed.propose(by(put("a", "2"), "alice", Face::Etcd));
    bed.put("other", "x");
    let last = bed.propose(by(delete("a"), "bob", Face::Consul));
    let all = [
        format!("{first} - -: a - -> 1@{first}"),
        format!("{second} alice etcd: a 1@{first} -> 2@{second}"),
        format!("{last} bob consul: a 2@{second} -> -"),
    ];
    assert_eq!(bed.changes("kv/a", &[]), all);
    assert_eq!(bed.changes("kv/a", &[Face::Consul, Face::Store]), all[2..]);
    assert_eq!(bed.changes("kv/*", &[]).len(), 4);
    assert_eq!(bed.changes("kv/a/", &[]), all);
    // What came before the beginning of history is gone.
    let compact = bed.apply(Command::Compact(Compact { revision: Revision(3) }));
    assert!(compact > last);
    assert_eq!(bed.changes("kv/a", &[]), all[2..]);
}

#[test]
fn a_large_command_comes_in_parts() {
    let mut bed = Bed::new();
    let value = "x".repeat(10_000);
    let names: Vec<_> = (0..300).map(|number| format!("big/{number:03}")).collect();
    for name in &names {
        bed.put(name, &value);
    }
    let range = KeyRange::prefix("big/".into());
    let gone = bed.apply(Command::DeleteRange(DeleteRange { range, prev_kv: false }));
    bed.put("big/later", "1");
    let wanted: Vec<_> = names.iter().map(|name| format!("{name} 10000>-")).collect();
    assert_eq!(bed.check_parts("kv/big/*", gone, value.len()), wanted);
    assert_eq!(bed.check_parts("kv/*", gone, value.len()), wanted);
    // A value that is larger than a message is sent alone.
    let first = bed.put("huge", &"x".repeat(1_400_000)).get();
    bed.put("huge", &"x".repeat(1_300_000));
    bed.put("huge", "1");
    let commands = |is_backward| -> Vec<Vec<Vec<String>>> {
        let pages = bed.pages("kv/huge", (first - 1, first + 2), is_backward, false);
        pages.iter().map(|page| page.commands.iter().map(lengths).collect()).collect()
    };
    let each = ["huge ->1400000", "huge 1400000>1300000", "huge 1300000>1"].map(|change| vec![vec![change.to_owned()]]);
    assert_eq!(commands(false), each);
    assert_eq!(commands(true), each.into_iter().rev().collect::<Vec<_>>());
    // The rest of a command that history has given up cannot be streamed.
    let filter = Filter { targets: vec![target("kv/big/*")], faces: Vec::new(), names_only: false };
    for is_backward in [false, true] {
        for name in &names {
            bed.put(name, &value);
        }
        let range = KeyRange::prefix("big/".into());
        bed.apply(Command::DeleteRange(DeleteRange { range, prev_kv: false }));
        let rest = bed.view(|view| {
            let (rest, epoch) = begin(view, &filter, (None, None), is_backward).unwrap().unwrap();
            let (mut rest, mut pages) = (rest, 0);
            loop {
                let part = read_part(view, &filter, rest, epoch, 64, |_| {}).unwrap().unwrap();
                (rest, pages) = (part.rest, pages + 1);
                if part.page.commands.last().is_some_and(|command| command.is_continued) {
                    break rest;
                }
                assert!(pages < 100);
            }
        });
        let revision = bed.view(|view| view.head().revision);
        bed.apply(Command::Compact(Compact { revision }));
        let refused = bed.view(|view| read_part(view, &filter, rest, None, 64, |_| {}).unwrap().map(drop));
        assert!(matches!(refused, Err(StoreError::Compacted { .. })), "{refused:?}");
    }
}

#[test]
fn many_instances_of_one_command_come_in_parts() {
    let mut bed = Bed::new();
    let names: Vec<_> = (0..40).map(|number| format!("w{number:02}")).collect();
    for name in &names {
        bed.apply(register("n", "a", Some(("web", name, 80)), &[]));
    }
    let mut with_output = register("n", "a", None, &[("alive", "")]);
    let Command::Catalog(CatalogCommand::Register(registration)) = &mut with_output else { panic!("it is one") };
    registration.checks[0].output = "o".repeat(32_000);
    bed.apply(with_output);
    let moved = bed.apply(register("n", "b", None, &[]));
    let last = bed.apply(deregister("n", "w00"));
    let mut changes = bed.check_parts("services/*", moved, 64_000);
    changes.sort();
    let wanted: Vec<_> = names.iter().map(|name| format!("web/n/{name} a+32000>b+32000")).collect();
    assert_eq!(changes, wanted);
    assert_eq!(bed.pages("services/web/n/w00", (last.get() - 1, last.get()), false, false).len(), 1);
    // A page counts all that an instance carries.
    let target = target("services/*");
    bed.view(|view| {
        let mut page = Page::new(1000);
        list(view, At::new(moved, view.applied()), &target, &[], &mut page).unwrap().unwrap();
        assert!(page.cut().is_some());
        assert!((30..34).contains(&page.into_entities().len()));
    });
}

#[test]
fn a_member_that_changed_after_the_beginning_of_history_and_not_before_it_is_unknown() {
    let mut bed = Bed::new();
    let change = |bed: &mut Bed| {
        let db = bed.store.current();
        bed.applied += 1;
        let mut txn = bed.store.begin(&db).unwrap();
        txn.begin_command(LogIndex(bed.applied), 5);
        let member = headwater_types::ClusterMember {
            id: NodeId(7),
            name: "m".to_owned(),
            peer_url: String::new(),
            client_url: String::new(),
            is_learner: false,
        };
        txn.add_cluster_event(headwater_types::ClusterEvent::MemberChanged(Arc::new(member)));
        txn.end_command();
        txn.set_applied(&AppliedState { term: Term(1), index: LogIndex(bed.applied), membership: None });
        txn.commit().unwrap();
    };
    change(&mut bed);
    bed.put("a", "1");
    let oldest = bed.put("a", "2");
    change(&mut bed);
    bed.apply(Command::Compact(Compact { revision: Revision(3) }));
    let refused = bed.view(|view| {
        let at = At::new(oldest, view.applied());
        list(view, at, &target("cluster/*"), &[], &mut Page::new(10)).unwrap()
    });
    assert_eq!(refused, Err(StoreError::MemberCompacted { index: oldest, oldest }));
}

#[test]
fn instances_have_the_node_and_the_checks_of_their_time() {
    let mut bed = Bed::new();
    let first = bed.apply(register("n1", "10.0.0.1", Some(("Web", "w1", 80)), &[("c1", "w1")]));
    let second = bed.apply(register("n1", "10.0.0.2", None, &[("alive", "")]));
    bed.apply(register("n2", "10.0.0.3", Some(("web", "w2", 81)), &[]));
    let moved = bed.apply(register("n1", "10.0.0.2", Some(("api", "w1", 82)), &[]));
    let now = bed.apply(deregister("n2", "w2"));
    assert_eq!(bed.list("services/*", first.get()), ["web/n1/w1=10.0.0.1:80[c1]"]);
    assert_eq!(bed.list("services/web/*", second.get()), ["web/n1/w1=10.0.0.2:80[alive c1]"]);
    assert_eq!(bed.list("services/", moved.get() - 1), ["web=/"]);
    assert_eq!(bed.list("services/", moved.get()), ["api=/", "web=/"]);
    assert_eq!(bed.list("services/web/", moved.get() - 1), ["web/n1=/", "web/n2=/"]);
    assert_eq!(bed.list("services/web/n2/", moved.get()), ["web/n2/w2=10.0.0.3:81[]"]);
    assert_eq!(bed.list("services/api/n1/w1", now.get()).len(), 1);
    assert_eq!(bed.list("services/*", now.get()).len(), 1);
    assert_eq!(bed.list("nodes/", first.get()), ["n1=10.0.0.1"]);
    assert_eq!(bed.list("nodes/*", now.get()), ["n1=10.0.0.2", "n2=10.0.0.3"]);
    let changes = bed.changes("services/*", &[]);
    assert_eq!(changes[0], format!("{first} - -: web/n1/w1 - -> 10.0.0.1:80[c1]@{first}"));
    let both = format!("10.0.0.1:80[c1]@{first} -> 10.0.0.2:80[alive c1]@{second}");
    assert_eq!(changes[1], format!("{second} - -: web/n1/w1 {both}"));
    assert!(changes[3].contains("web/n1/w1 10.0.0.2:80") && changes[3].contains("api/n1/w1 - ->"), "{changes:?}");
    assert_eq!(changes[4], format!("{now} - -: web/n2/w2 10.0.0.3:81[]@{} -> -", moved.get() - 1));
    assert_eq!(bed.changes("nodes/n1", &[]).len(), 2, "checks are no changes of the node");
}

#[test]
fn a_removed_check_moves_the_index_of_its_instance() {
    let mut bed = Bed::new();
    let check = |id: &str| {
        let what = DeregistrationTarget::Check(id.to_owned());
        let gone = Deregistration { node: "n1".to_owned(), what, guard: None };
        Command::Catalog(CatalogCommand::Deregister(Box::new(gone)))
    };
    let index = |bed: &Bed, text: &str, at: LogIndex| {
        bed.view(|view| {
            let mut page = Page::new(10);
            list(view, At::new(at, view.applied()), &target(text), &[], &mut page).unwrap().unwrap();
            page.into_entities().first().unwrap().index
        })
    };
    let made = bed.apply(register("n1", "10.0.0.1", Some(("web", "w1", 80)), &[("c1", "w1"), ("c2", "")]));
    let other = bed.apply(register("n1", "10.0.0.1", Some(("db", "d1", 81)), &[("c3", "d1")]));
    let first = bed.apply(check("c1"));
    let others = bed.apply(check("c3"));
    let of_node = bed.apply(check("c2"));
    for text in ["services/web/n1/w1", "services/web/*"] {
        let found = [made, other, first, others, of_node].map(|at| index(&bed, text, at));
        assert_eq!(found, [made, made, first, first, of_node], "{text}");
    }
    bed.apply(Command::TrimHistory(TrimHistory { from: of_node }));
    let now = bed.put("a", "1");
    assert_eq!(index(&bed, "services/web/n1/w1", now), made, "before the kept history");
}

#[test]
fn leases_are_told_from_their_events() {
    let mut bed = Bed::new();
    let grant = |id, ttl_seconds| Command::LeaseGrant(LeaseGrant { id: LeaseId(id), ttl_seconds });
    bed.apply(grant(1, 60));
    let both = bed.apply(grant(2, 90));
    bed.apply(Command::LeaseRevoke(LeaseRevoke { id: LeaseId(1) }));
    let now = bed.apply(grant(3, 30));
    let (one, two, three) = ("0000000000000001", "0000000000000002", "0000000000000003");
    assert_eq!(bed.list("leases/", now.get()), [format!("{two}=90"), format!("{three}=30")]);
    // The time to live of a lease that has ended since is not known any more.
    assert_eq!(bed.list("leases/*", both.get()), [format!("{one}=0"), format!("{two}=90")]);
    assert_eq!(bed.list(&format!("leases/{two}"), both.get() - 1), [""; 0]);
    let changes = bed.changes("leases/*", &[]);
    assert_eq!(changes.len(), 4);
    assert!(changes[2].ends_with(&format!("{one} 0@0 -> -")), "{changes:?}");
}

#[test]
fn resources_are_listed_by_their_parts() {
    let mut bed = Bed::new();
    let db = bed.store.current();
    for (kind, name) in [("Artist", "korn"), ("Artist", "tool"), ("Album", "issues")] {
        bed.applied += 1;
        let mut txn = bed.store.begin(&db).unwrap();
        txn.begin_command(LogIndex(bed.applied), 5);
        let id = ResourceId {
            uid: "u".to_owned(),
            name: name.to_owned(),
            type_: Type::new("demo", "v2", kind),
            tenancy: Tenancy::new("default", "default"),
        };
        txn.put_resource(Resource { id, ..Resource::default() }, None).unwrap();
        txn.end_command();
        txn.set_applied(&AppliedState { term: Term(1), index: LogIndex(bed.applied), membership: None });
        txn.commit().unwrap();
    }
    let (album, artist) = ("demo/v2/Album/default/default", "demo/v2/Artist/default/default");
    let all = [format!("{album}/issues=v5"), format!("{artist}/korn=v3"), format!("{artist}/tool=v4")];
    assert_eq!(bed.list("resources/*", 5), all);
    assert_eq!(bed.list("resources/demo/v2/Artist/*", 5), all[1..]);
    assert_eq!(bed.list("resources/demo/v2/Artist/*", 3), all[1..2]);
    assert_eq!(bed.list(&format!("resources/{artist}/"), 5), all[1..]);
    assert_eq!(bed.list(&format!("resources/{artist}/tool"), 5), all[2..]);
    assert_eq!(bed.list("resources/", 5), ["demo=/"]);
    assert_eq!(bed.list("resources/demo/v2/", 5), ["demo/v2/Album=/", "demo/v2/Artist=/"]);
    assert_eq!(
        bed.changes("resources/*", &[]),
        [
            format!("3 - -: {artist}/korn - -> v3@3"),
            format!("4 - -: {artist}/tool - -> v4@4"),
            format!("5 - -: {album}/issues - -> v5@5"),
        ]
    );
}

#[test]
fn points_are_indexes_or_times_within_history() {
    let mut bed = Bed::new();
    // At 3, 4 and 5 seconds.
    let (first, second) = (bed.put("a", "1"), bed.put("a", "2"));
    let last = bed.put("b", "3");
    let resolve = |bed: &Bed, point| bed.view(|view| point::resolve(view, point).unwrap());
    let index = |index| Some(Point::Index(Position { index, epoch: None }));
    let time = |unix_ms| Some(Point::UnixMs(unix_ms));
    assert_eq!(resolve(&bed, None), Ok(last));
    assert_eq!(resolve(&bed, index(second)), Ok(second));
    for (unix_ms, wanted) in [(2999, LogIndex::ZERO), (3000, first), (4999, second), (5000, last), (u64::MAX, last)] {
        assert_eq!(resolve(&bed, time(unix_ms)), Ok(wanted), "{unix_ms}");
    }
    let (future, newest) = (last.next(), last);
    assert_eq!(resolve(&bed, index(future)), Err(StoreError::Future { index: future, newest }));
    let revision = |bed: &Bed, index| {
        bed.view(|view| {
            let last = view.last_command(index).unwrap();
            let revision = point::revision_at(view, index, last).unwrap();
            assert_eq!(point::revision_at(view, index, None).unwrap(), revision, "{index}");
            revision
        })
    };
    for (at, wanted) in [(LogIndex(2), 1), (first, 2), (second, 3), (last, 4)] {
        assert_eq!(revision(&bed, at), Revision(wanted), "{at}");
    }
    bed.apply(Command::Compact(Compact { revision: Revision(3) }));
    let compacted = |index| Err(StoreError::Compacted { index, oldest: second, oldest_unix_ms: 4000 });
    assert_eq!(resolve(&bed, index(first)), compacted(Some(first)));
    assert_eq!(resolve(&bed, time(3999)), compacted(None));
    assert_eq!(resolve(&bed, time(4000)), Ok(second));
    assert_eq!(resolve(&bed, index(second)), Ok(second));
    assert_eq!([revision(&bed, second), revision(&bed, last)], [Revision(3), Revision(4)]);
    let other = Position { index: last, epoch: Some(headwater_types::StoreEpoch(9)) };
    let bootstrap = Command::Bootstrap(headwater_types::StoreEpoch(7));
    bed.apply(bootstrap);
    assert_eq!(resolve(&bed, Some(Point::Index(other))), Err(StoreError::OtherEpoch));
}

#[test]
fn the_right_to_one_key_is_enough_for_it_alone() {
    let one = |key: &'static str| (Space::Kv, KeyRange::One(key.into()));
    assert_eq!(target("kv/app").wanted(), [one("app")]);
    assert_eq!(target("kv/app/").wanted(), [one("app"), (Space::Kv, KeyRange::prefix("app/".into()))]);
    assert_eq!(target("kv/*").wanted(), [(Space::Kv, KeyRange::all())]);
    assert_eq!(target("leases/x").wanted(), [(Space::Kv, KeyRange::all())]);
}
