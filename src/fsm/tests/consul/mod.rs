//! Tests of Consul's keys, locks, sessions and transactions (spec: consul §8.3).

mod cascade;
mod kv;
mod model;
mod session;
mod txn;

use bytes::Bytes;

use super::bed::*;
use headwater_storage::state::{ConsulReader, consul_entries, consul_tree, sessions};
use headwater_types::consul::{
    ConsulCommand, ConsulOutcome, Deadline, KvEntry, KvOp, KvVerb, Session, SessionCreate, TxnOp as ConsulTxnOp,
};
use headwater_types::{Command, LeaseExpire, LeaseId, LogIndex, Outcome, Term};

fn op(verb: KvVerb, path: &str) -> KvOp {
    KvOp { verb, path: bytes(path), value: Bytes::new(), flags: 0, index: LogIndex::ZERO, session: String::new() }
}

fn set(path: &str, value: &str) -> KvOp {
    KvOp { value: bytes(value), ..op(KvVerb::Set, path) }
}

fn with_session(verb: KvVerb, path: &str, session: &str) -> KvOp {
    KvOp { session: session.to_owned(), value: bytes("v"), ..op(verb, path) }
}

fn with_index(verb: KvVerb, path: &str, index: u64) -> KvOp {
    KvOp { index: LogIndex(index), value: bytes("v"), ..op(verb, path) }
}

fn session(id: &str) -> Session {
    Session { id: id.to_owned(), node: "n".to_owned(), ..Session::default() }
}

fn create(session: Session) -> Command {
    let create = SessionCreate { session, default_check: false, node_required: false };
    Command::Consul(ConsulCommand::SessionCreate(Box::new(create)))
}

fn destroy(id: &str) -> Command {
    Command::Consul(ConsulCommand::SessionDestroy(id.to_owned()))
}

fn kv(op: KvOp) -> Command {
    Command::Consul(ConsulCommand::Kv(op))
}

fn transaction(ops: impl IntoIterator<Item = KvOp>) -> Command {
    Command::Consul(ConsulCommand::Txn(ops.into_iter().map(ConsulTxnOp::Kv).collect()))
}

impl TestBed {
    /// Runs one operation; returns whether it was done.
    fn kv(&mut self, op: KvOp) -> bool {
        match self.apply(kv(op)) {
            Outcome::Consul(ConsulOutcome::Kv(done)) => done,
            other => panic!("{other:?}"),
        }
    }

    /// Creates a session.
    fn session(&mut self, session: Session) {
        assert_eq!(self.apply(create(session)), Outcome::Consul(ConsulOutcome::SessionCreated));
    }

    fn consul_entry(&self, path: &str) -> Option<KvEntry> {
        let db = self.store.current();
        db.view().unwrap().consul_entry(&bytes(path)).unwrap().map(|(_, entry)| entry)
    }

    /// The keys that begin with `prefix`, in order, as `PATH=VALUE/FLAGS LS@CREATED/MODIFIED`: `L`
    /// is the lock index, `S` the id of the session, empty without one.
    fn shown(&self, prefix: &str) -> Vec<String> {
        let db = self.store.current();
        let view = db.view().unwrap();
        let tree = consul_tree(&view, prefix.as_bytes()).unwrap();
        let entries = consul_entries(&view, &tree.versions).unwrap();
        for entry in &entries {
            assert_eq!(Some(entry), view.consul_entry(&entry.path).unwrap().map(|(_, entry)| entry).as_ref());
        }
        entries.iter().map(show_entry).collect()
    }

    /// The query index of a prefix.
    fn prefix_index(&self, prefix: &str) -> u64 {
        let db = self.store.current();
        let view = db.view().unwrap();
        consul_tree(&view, prefix.as_bytes()).unwrap().newest.max(view.head().compacted_index()).get()
    }

    fn session_ids(&self) -> Vec<String> {
        let db = self.store.current();
        sessions(&db.view().unwrap()).unwrap().into_iter().map(|session| session.id).collect()
    }

    fn deadline(&self, about: &Deadline) -> Option<LeaseId> {
        let db = self.store.current();
        let view = db.view().unwrap();
        let id = view.deadline(about).unwrap()?;
        assert_eq!(view.about_deadline(id).unwrap().as_ref(), Some(about));
        assert!(id.is_deadline() && view.lease(id).unwrap().is_some());
        Some(id)
    }

    /// Applies the expiry of a running deadline.
    fn run_out(&mut self, about: &Deadline) -> Outcome {
        let id = self.deadline(about).expect("it runs");
        let granted = self.lease(id.get()).unwrap().granted;
        self.apply(Command::LeaseExpire(LeaseExpire { id, granted, term: Term(1) }))
    }
}

fn show_entry(entry: &KvEntry) -> String {
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    let side = &entry.side;
    format!(
        "{}={}/{} {}{}@{}/{}",
        text(&entry.path),
        text(&entry.value),
        side.flags,
        side.lock_index,
        side.session,
        side.created,
        entry.modified
    )
}
