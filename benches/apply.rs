//! Cost of applying commands, on a real database with the default options.

use std::time::Duration;

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group};
use headwater_types::catalog::{CatalogCommand, CatalogNode, Check, CheckStatus, Registration, Service};
use headwater_types::commit::{CommitKey, CommitOp};
use headwater_types::resource::{
    Any, DEFAULT_UNIT, Resource, ResourceCommand, ResourceId, ResourceWrite, Scope, Tenancy, Type, TypeName,
};
use headwater_types::{Command, Commit, LogIndex, Proposal, Put, Term, ValueChoice, Version, VersionChange};

use super::bed::{Bed, VALUE_BYTES, key, preload, put, scatter};

/// The write of the resource `bench-NUMBER`, of the type that [`register`] registers. Its data is
/// the value that [`put`] makes of `fill`.
fn write(number: u64, fill: u64) -> Proposal {
    let Command::Put(Put { value: ValueChoice::Set(value), .. }) = put(Bytes::new(), fill, VALUE_BYTES).command else {
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

/// Registers the type of [`write`]'s resources. Must be the first command of a bed: each write
/// names log index 1 as the version of its type.
fn register() -> Proposal {
    let id = ResourceId {
        uid: String::new(),
        name: TypeName::of(&type_()).0,
        type_: Type::resource_type(),
        tenancy: Tenancy::default(),
    };
    write_of(Resource { id, ..Resource::default() }, LogIndex::ZERO, Some((type_(), Scope::Namespace)))
}

fn puts(c: &mut Criterion) {
    let mut bed = Bed::new();
    let loaded = preload();
    bed.load((0..loaded).map(scatter), VALUE_BYTES);
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
                                put(key(if is_new { fresh } else { scatter(fresh % loaded) }), fresh, VALUE_BYTES)
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

/// One commit with the commands of `operations`. Its idempotency key is made from `key`; 0: it has
/// none.
fn commit(operations: Vec<Proposal>, key: u64) -> Proposal {
    let operations = operations.into_iter().map(|it| CommitOp::new(it.command).expect("an operation of a commit"));
    let id = (u128::from(key) << 64 | u128::from(key)).to_be_bytes();
    let key = (key != 0).then_some(CommitKey { id, body: [7; 16] });
    Proposal::new(
        1,
        Command::Commit(Box::new(Commit { conditions: Vec::new(), operations: operations.collect(), key })),
    )
}

/// Registers the instance `bench-NUMBER` with `fill` in its meta. Repeated with another `fill`, it
/// changes the meta only.
fn registration(number: u64, fill: u64) -> Proposal {
    let node = CatalogNode { name: "bench".to_owned(), address: "10.0.0.1".to_owned(), ..CatalogNode::default() };
    let service = Service {
        id: format!("bench-{number}"),
        name: "bench".to_owned(),
        meta: [("value".to_owned(), fill.to_string())].into(),
        ..Service::default()
    };
    let mut registration = Registration { node, service: Some(service), ..Registration::default() };
    registration.complete().expect("a whole registration");
    Proposal::new(1, Command::Catalog(CatalogCommand::Register(Box::new(registration))))
}

/// Instances on one node in [`changes_of_health`], count.
const INSTANCES_PER_NODE: u64 = 10;

/// The check of instance `number` with a status, and with the instance itself if `is_new`.
fn health(number: u64, status: CheckStatus, is_new: bool) -> Proposal {
    let name = format!("node-{}", number / INSTANCES_PER_NODE);
    let node = CatalogNode { name, address: "10.0.0.1".to_owned(), ..CatalogNode::default() };
    let id = format!("web-{number}");
    let service = Service {
        id: id.clone(),
        name: format!("web-{}", number % 1000),
        tags: vec!["bench".to_owned()],
        ..Service::default()
    };
    let check = Check {
        id: format!("{id}-check"),
        name: "health".to_owned(),
        service_id: id,
        output: format!("as of {status:?}"),
        status,
        ..Check::default()
    };
    let mut registration = Registration {
        node,
        skip_node_update: !is_new,
        service: is_new.then_some(service),
        checks: vec![check],
        ..Registration::default()
    };
    registration.complete().expect("a whole registration");
    Proposal::new(1, Command::Catalog(CatalogCommand::Register(Box::new(registration))))
}

/// Compares changes of the status of a check with puts.
fn changes_of_health(c: &mut Criterion) {
    let mut bed = Bed::new();
    let (loaded, instances) = (preload(), preload() / 20);
    bed.load((0..loaded).map(scatter), VALUE_BYTES);
    let all: Vec<u64> = (0..instances).collect();
    for some in all.chunks(512) {
        bed.apply(&some.iter().map(|number| health(*number, CheckStatus::Passing, true)).collect::<Vec<_>>());
    }
    let mut group = c.benchmark_group("change of health");
    let mut turn = 0;
    for batch in [1u64, 64] {
        for name in ["put", "change of a check"] {
            group.throughput(Throughput::Elements(batch));
            group.bench_function(format!("{name}, {batch} a commit"), |b| {
                b.iter_custom(|rounds| {
                    let mut spent = Duration::ZERO;
                    for _ in 0..rounds {
                        let mut one = |fresh: u64| {
                            if name == "put" {
                                return put(key(scatter(fresh % loaded)), fresh, VALUE_BYTES);
                            }
                            turn += 1;
                            let is_even = (turn / instances) % 2 == 0;
                            let status = if is_even { CheckStatus::Warning } else { CheckStatus::Passing };
                            health(turn % instances, status, false)
                        };
                        let batch: Vec<Proposal> = (0..batch).map(|_| one(bed.fresh())).collect();
                        spent += bed.apply(&batch);
                    }
                    spent
                });
            });
        }
    }
    group.finish();
}

/// Five puts, three writes of resources and two registrations. Keys and resources are among those
/// loaded before; instances are `bench-0` to `bench-99`.
fn mixed(fill: u64, loaded: u64) -> Vec<Proposal> {
    let number = |at: u64| (fill.wrapping_add(at)) % loaded;
    let puts = (0..5).map(|at| put(key(scatter(number(at))), fill ^ at, VALUE_BYTES));
    let resources = (0..3).map(|at| write(scatter(number(at)), fill ^ at));
    let instances = (0..2).map(|at| registration(fill.wrapping_add(at) % 100, fill ^ at));
    puts.chain(resources).chain(instances).collect()
}

/// Compares commits with the same operations as commands of their own, in one write transaction or
/// in one for each.
fn commits(c: &mut Criterion) {
    let mut bed = Bed::new();
    let loaded = preload() / 4;
    let raise = VersionChange::Raise { to: Version::V0_4, term: Term(1) };
    bed.apply(&[register(), Proposal::new(1, Command::SetVersion(raise))]);
    bed.load((0..loaded).map(scatter), VALUE_BYTES);
    let all: Vec<u64> = (0..loaded).map(scatter).collect();
    for some in all.chunks(512) {
        bed.apply(&some.iter().map(|number| write(*number, *number)).collect::<Vec<_>>());
    }
    let mut group = c.benchmark_group("commit");
    for batch in [1u64, 64] {
        for name in ["put", "commit of a put", "commit of a put with a key"] {
            group.throughput(Throughput::Elements(batch));
            group.bench_function(format!("{name}, {batch} a batch"), |b| {
                b.iter_custom(|rounds| {
                    let mut spent = Duration::ZERO;
                    for _ in 0..rounds {
                        let one = |fresh: u64| {
                            let put = put(key(scatter(fresh % loaded)), fresh, VALUE_BYTES);
                            match name {
                                "put" => put,
                                "commit of a put" => commit(vec![put], 0),
                                _ => commit(vec![put], fresh),
                            }
                        };
                        let batch: Vec<Proposal> = (0..batch).map(|_| one(bed.fresh())).collect();
                        spent += bed.apply(&batch);
                    }
                    spent
                });
            });
        }
    }
    for name in ["ten operations, one by one", "ten operations in one batch", "ten operations in a commit"] {
        group.throughput(Throughput::Elements(10));
        group.bench_function(name, |b| {
            b.iter_custom(|rounds| {
                let mut spent = Duration::ZERO;
                for _ in 0..rounds {
                    let all = mixed(bed.fresh(), loaded);
                    spent += match name {
                        "ten operations, one by one" => all.chunks(1).map(|one| bed.apply(one)).sum(),
                        "ten operations in one batch" => bed.apply(&all),
                        _ => bed.apply(&[commit(all, 0)]),
                    };
                }
                spent
            });
        });
    }
    group.finish();
}

criterion_group! {
    name = all;
    config = Criterion::default().sample_size(10).measurement_time(Duration::from_secs(2)).warm_up_time(Duration::from_millis(500));
    targets = puts, resources, commits, changes_of_health
}
