//! Cost of applying commands and reading ranges, on a real database with the default options.

use std::time::{Duration, Instant};

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group};
use headwater_storage::state::{AppliedState, StateOptions, StateStore};
use headwater_types::resource::{
    Any, DEFAULT_UNIT, Resource, ResourceCommand, ResourceId, ResourceWrite, Scope, Tenancy, Type, TypeName,
};
use headwater_types::{
    Command, KeyRange, LeaseChoice, LeaseId, LogIndex, Outcome, Proposal, Put, RangeQuery, Term, ValueChoice,
};

const VALUE_BYTES: usize = 256;

/// A store with the commands that were applied to it.
struct Bed {
    _dir: tempfile::TempDir,
    store: StateStore,
    next: u64,
    /// State of the generator that scatters keys.
    seed: u64,
}

fn key(number: u64) -> Bytes {
    Bytes::from(format!("/registry/bench/{number:016x}"))
}

fn put(key: Bytes, fill: u64) -> Proposal {
    let mut value = vec![0u8; VALUE_BYTES];
    for (word, chunk) in (fill..).zip(value.chunks_exact_mut(8)) {
        chunk.copy_from_slice(&scatter(word).to_le_bytes());
    }
    let command = Command::Put(Put {
        key,
        value: ValueChoice::Set(value.into()),
        lease: LeaseChoice::Set(LeaseId::NONE),
        prev_kv: false,
    });
    Proposal::new(1, command)
}

/// The same value as the data of a resource of a registered type.
fn write(number: u64, fill: u64) -> Proposal {
    let Command::Put(Put { value: ValueChoice::Set(value), .. }) = put(Bytes::new(), fill).command else {
        unreachable!("invariant: a put sets a value")
    };
    let id = ResourceId {
        uid: String::new(),
        name: format!("bench-{number:016x}"),
        type_: type_(),
        tenancy: Tenancy::new(DEFAULT_UNIT, DEFAULT_UNIT),
    };
    let data = Any { type_url: "type.googleapis.com/bench.Item".to_owned(), value };
    write_of(Resource { id, data: Some(data), ..Resource::default() }, LogIndex(1), None)
}

fn type_() -> Type {
    Type::new("bench", "v1", "Item")
}

fn write_of(resource: Resource, type_version: LogIndex, registers: Option<(Type, Scope)>) -> Proposal {
    let ulid = || "01ARZ3NDEKTSV4RRFFQ69G5FAV".to_owned();
    let write = ResourceWrite { resource, expected: None, uid: ulid(), generation: ulid(), type_version, registers };
    Proposal::new(1, Command::Resource(ResourceCommand::Write(Box::new(write))))
}

/// The first command of a store with resources.
fn register() -> Proposal {
    let id = ResourceId {
        uid: String::new(),
        name: TypeName::of(&type_()).0,
        type_: Type::resource_type(),
        tenancy: Tenancy::default(),
    };
    write_of(Resource { id, ..Resource::default() }, LogIndex::ZERO, Some((type_(), Scope::Namespace)))
}

fn scatter(number: u64) -> u64 {
    let mixed = (number ^ (number >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ (mixed >> 32)
}

impl Bed {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let store = StateStore::open(dir.path(), &StateOptions::default()).expect("a store");
        Self { _dir: dir, store, next: 1, seed: 1 }
    }

    /// Applies `proposals` in one commit and returns how long that took.
    fn apply(&mut self, proposals: &[Proposal]) -> Duration {
        let start = Instant::now();
        let db = self.store.current();
        let mut txn = self.store.begin(&db).expect("a transaction");
        for proposal in proposals {
            let index = LogIndex(self.next);
            self.next += 1;
            let outcome = headwater_fsm::apply(&mut txn, Term(1), index, proposal, true).expect("no failure");
            assert!(!matches!(outcome, Outcome::Refused(_)), "{outcome:?}");
            txn.set_applied(&AppliedState { term: Term(1), index, membership: None });
        }
        txn.commit().expect("a commit");
        start.elapsed()
    }

    fn load(&mut self, keys: impl Iterator<Item = u64>) {
        let mut batch = Vec::new();
        for number in keys {
            batch.push(put(key(number), number));
            if batch.len() == 512 {
                self.apply(&batch);
                batch.clear();
            }
        }
        self.apply(&batch);
    }

    fn fresh(&mut self) -> u64 {
        self.seed += 1;
        scatter(self.seed)
    }
}

/// Keys in the store before anything is measured; few where the benches are only tried.
fn preload() -> u64 {
    if std::env::args().any(|arg| arg == "--test") { 1000 } else { 200_000 }
}

fn puts(c: &mut Criterion) {
    let mut bed = Bed::new();
    let loaded = preload();
    bed.load((0..loaded).map(scatter));
    let mut group = c.benchmark_group("put");
    for batch in [1u64, 16, 64, 512] {
        group.throughput(Throughput::Elements(batch));
        for (name, is_new) in [("new keys", true), ("known keys", false)] {
            group.bench_function(format!("{name}, {batch} a commit"), |b| {
                b.iter_custom(|rounds| {
                    let mut spent = Duration::ZERO;
                    for _ in 0..rounds {
                        let batch: Vec<Proposal> = (0..batch)
                            .map(|_| {
                                let fresh = bed.fresh();
                                put(key(if is_new { fresh } else { scatter(fresh % loaded) }), fresh)
                            })
                            .collect();
                        spent += bed.apply(&batch);
                    }
                    spent
                });
            });
        }
    }
    group.finish();
}

fn resources(c: &mut Criterion) {
    let mut bed = Bed::new();
    let loaded = preload() / 4;
    bed.apply(&[register()]);
    let all: Vec<u64> = (0..loaded).map(scatter).collect();
    for some in all.chunks(512) {
        bed.apply(&some.iter().map(|number| write(*number, *number)).collect::<Vec<_>>());
    }
    let mut group = c.benchmark_group("write a resource");
    for batch in [1u64, 64] {
        group.throughput(Throughput::Elements(batch));
        for (name, is_new) in [("new names", true), ("known names", false)] {
            group.bench_function(format!("{name}, {batch} a commit"), |b| {
                b.iter_custom(|rounds| {
                    let mut spent = Duration::ZERO;
                    for _ in 0..rounds {
                        let batch: Vec<Proposal> = (0..batch)
                            .map(|_| {
                                let fresh = bed.fresh();
                                write(if is_new { fresh } else { scatter(fresh % loaded) }, fresh)
                            })
                            .collect();
                        spent += bed.apply(&batch);
                    }
                    spent
                });
            });
        }
    }
    group.finish();
}

fn reads(c: &mut Criterion) {
    let count = preload().min(10_000);
    let mut group = c.benchmark_group("range");
    for (name, in_order) in [("written in order", true), ("written scattered", false)] {
        let mut bed = Bed::new();
        // Ten times as many commands as keys in the range, so that a scattered range is really
        // scattered.
        let all = count * 10;
        bed.load((0..all).map(|number| if in_order { number } else { number.wrapping_mul(7_919) % all }));
        for flushed in [false, true] {
            if flushed {
                bed.store.current().flush().expect("a flush");
            }
            let state = if flushed { "on disk" } else { "fresh" };
            let db = bed.store.current();
            let span = KeyRange::Span { start: key(0), end: Some(key(count)) };
            let query = RangeQuery::new(span.clone());
            group.throughput(Throughput::Elements(count));
            group.bench_function(format!("{count} keys, {name}, {state}"), |b| {
                b.iter(|| headwater_fsm::range(&db.view().expect("a view"), &query).expect("no failure"));
            });
            let query = RangeQuery { count_only: true, ..RangeQuery::new(span) };
            group.bench_function(format!("count {count} keys, {name}, {state}"), |b| {
                b.iter(|| headwater_fsm::range(&db.view().expect("a view"), &query).expect("no failure"));
            });
            group.throughput(Throughput::Elements(1));
            let mut number = 0u64;
            group.bench_function(format!("one key, {name}, {state}"), |b| {
                b.iter(|| {
                    number = number.wrapping_add(1);
                    let query = RangeQuery::new(KeyRange::One(key(scatter(number) % all)));
                    headwater_fsm::range(&db.view().expect("a view"), &query).expect("no failure")
                });
            });
        }
    }
    group.finish();
}

criterion_group! {
    name = all;
    config = Criterion::default().sample_size(10).measurement_time(Duration::from_secs(2)).warm_up_time(Duration::from_millis(500));
    targets = puts, resources, reads
}
