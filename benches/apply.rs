//! Cost of applying commands, on a real database with the default options.

use std::time::Duration;

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group};
use headwater_types::resource::{
    Any, DEFAULT_UNIT, Resource, ResourceCommand, ResourceId, ResourceWrite, Scope, Tenancy, Type, TypeName,
};
use headwater_types::{Command, LogIndex, Proposal, Put, ValueChoice};

use super::bed::{Bed, VALUE_BYTES, key, preload, put, scatter};

/// The write of the resource `bench-NUMBER` of a registered type. Its data is the value that
/// [`put`] makes of `fill`.
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

criterion_group! {
    name = all;
    config = Criterion::default().sample_size(10).measurement_time(Duration::from_secs(2)).warm_up_time(Duration::from_millis(500));
    targets = puts, resources
}
