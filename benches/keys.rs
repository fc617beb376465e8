//! Cost of encoding and decoding the keys of the state's column families.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, criterion_group};
use headwater_storage::state::{Table, keys};
use headwater_types::LogIndex;

const PLAIN: &[u8] = b"/registry/pods/default/frontend-7c5ddbdf54-x2q8k";
const ZEROS: &[u8] = b"\0tenant\0\0bucket\0object\0";

fn benches(c: &mut Criterion) {
    for (name, key) in [("plain", PLAIN), ("with zeros", ZEROS)] {
        let mut encoded = Vec::new();
        keys::push_version_prefix(&mut encoded, Table::Kv, key);
        keys::push_inverted(&mut encoded, LogIndex(123_456));
        c.bench_function(&format!("encode version key, {name}"), |b| {
            let mut out = Vec::with_capacity(128);
            b.iter(|| {
                out.clear();
                keys::push_version_prefix(&mut out, Table::Kv, black_box(key));
                keys::push_inverted(&mut out, black_box(LogIndex(123_456)));
                out.len()
            });
        });
        c.bench_function(&format!("decode version key, {name}"), |b| {
            b.iter_batched_ref(
                || Vec::with_capacity(128),
                |out| {
                    let (prefix, index) = keys::split_version(black_box(&encoded)).expect("a version key");
                    keys::unescape(prefix, out);
                    index
                },
                BatchSize::SmallInput,
            );
        });
    }
    c.bench_function("encode history key", |b| b.iter(|| keys::history(black_box(LogIndex(123_456)), black_box(1))));
}

criterion_group!(all, benches);
