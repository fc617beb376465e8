//! Cost of ranges by size of value, order of writing and cache, from the view to the encoded
//! answer; and of puts into a range that was just read.
//!
//! Every store has ten times as many keys as its range, so that the range's rows lie far apart in a
//! scattered history. "Cold" is a store that was just opened: its files are in the memory of the
//! kernel, and nothing is in its caches.

use std::hint::black_box;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use criterion::{BenchmarkGroup, Criterion, SamplingMode, Throughput, criterion_group, measurement::WallTime};
use headwater_fsm::{RangeCursor, RangePart};
use headwater_proto::pb::{etcdserverpb, mvccpb};
use headwater_storage::state::StateDb;
use headwater_types::{KeyRange, KeyValue, Proposal, RangeQuery};
use prost::Message;

use super::bed::{Bed, VALUE_BYTES, key, put, scatter};

/// Pairs of the number of keys of a range and the length of each value, bytes. Each range has about
/// 2.5 MB of values.
const SIZES: [(u64, usize); 3] = [(10_000, VALUE_BYTES), (1_250, 2 << 10), (156, 16 << 10)];
/// Size of tonic's buffer before the first message, bytes.
const BUFFER_BYTES: usize = 8 << 10;
/// Keys of one page of a list.
const PAGE: u64 = 500;
/// Most keys and most bytes of one part of a streamed range, as in the node.
const PART: (usize, usize) = (1000, 1 << 20);

#[derive(Clone, Copy, PartialEq)]
enum History {
    /// Each key was written once, in the order of the keys.
    Ordered,
    /// Each key was written once, in a random order.
    Scattered,
    /// As `Scattered`, five times: all keys in another random order each time.
    Rewritten,
}

fn is_trial() -> bool {
    std::env::args().any(|arg| arg == "--test")
}

fn filled(count: u64, bytes: usize, history: History) -> Bed {
    let mut bed = Bed::new();
    let all = count * 10;
    let shuffled = |round: u64| {
        let mut keys: Vec<u64> = (0..all).collect();
        keys.sort_by_key(|number| scatter(number + round * all));
        keys.into_iter()
    };
    match history {
        History::Ordered => bed.load(0..all, bytes),
        History::Scattered => bed.load(shuffled(0), bytes),
        History::Rewritten => (0..5).for_each(|round| bed.load(shuffled(round), bytes)),
    }
    bed.reopened()
}

fn message(kv: KeyValue) -> mvccpb::KeyValue {
    mvccpb::KeyValue {
        key: kv.key,
        create_revision: kv.create_revision.get(),
        mod_revision: kv.mod_revision.get(),
        version: kv.version,
        value: kv.value,
        lease: kv.lease.get(),
    }
}

/// Encodes pairs as the client port does, into a buffer that has the initial capacity of tonic's
/// and grows. Returns the encoded length, bytes.
fn encode(kvs: Vec<KeyValue>) -> usize {
    let mut into = BytesMut::with_capacity(BUFFER_BYTES);
    response(kvs).encode(&mut into).expect("memory");
    black_box(into).len()
}

/// As [`encode`], into a buffer of the right size.
fn encode_exactly(kvs: Vec<KeyValue>) -> usize {
    let response = response(kvs);
    let mut into = BytesMut::with_capacity(response.encoded_len());
    response.encode_raw(&mut into);
    black_box(into).len()
}

fn response(kvs: Vec<KeyValue>) -> etcdserverpb::RangeResponse {
    etcdserverpb::RangeResponse { kvs: kvs.into_iter().map(message).collect(), ..Default::default() }
}

/// Reads the whole range in one answer. Returns the encoded length, bytes.
fn whole(db: &StateDb, query: &RangeQuery) -> usize {
    let view = db.view().expect("a view");
    let result = headwater_fsm::range(&view, query).expect("no failure").expect("a range");
    encode(result.kvs)
}

/// Reads the range in pages of [`PAGE`] keys, each from a view of its own. Returns the encoded
/// length of all pages, bytes.
fn paged(db: &StateDb, query: &RangeQuery) -> usize {
    let mut query = RangeQuery { limit: PAGE, ..query.clone() };
    let mut bytes = 0;
    loop {
        let view = db.view().expect("a view");
        let result = headwater_fsm::range(&view, &query).expect("no failure").expect("a range");
        if let Some(last) = result.kvs.last()
            && let KeyRange::Span { start, .. } = &mut query.range
        {
            *start = [&last.key[..], &[0]].concat().into();
        }
        bytes += encode(result.kvs);
        if !result.more {
            return bytes;
        }
    }
}

/// Reads the range in the parts of one stream, from one view. Returns the encoded length of all
/// parts, bytes.
fn streamed(db: &StateDb, query: &RangeQuery) -> usize {
    let view = db.view().expect("a view");
    let mut cursor = RangeCursor::new(&view, query.clone()).expect("no failure").expect("a range");
    let mut bytes = 0;
    while let Some(RangePart::Kvs(kvs)) = cursor.next(PART.0, PART.1).expect("no failure") {
        bytes += encode(kvs);
    }
    bytes
}

type Read = fn(&StateDb, &RangeQuery) -> usize;

fn measure(group: &mut BenchmarkGroup<'_, WallTime>, bed: Bed, name: &str, count: u64) -> Bed {
    let all = RangeQuery::new(KeyRange::Span { start: key(0), end: Some(key(count)) });
    let cases: [(&str, RangeQuery, Read); 5] = [
        ("whole", all.clone(), whole),
        ("paged", all.clone(), paged),
        ("streamed", all.clone(), streamed),
        ("keys only", RangeQuery { keys_only: true, ..all.clone() }, whole),
        ("count", RangeQuery { count_only: true, ..all }, whole),
    ];
    group.throughput(Throughput::Elements(count));
    let mut bed = Some(bed);
    for (case, query, read) in &cases {
        // Each cold round opens the store, which is not measured and takes longer than the range.
        group.measurement_time(Duration::from_millis(50)).warm_up_time(Duration::from_millis(10));
        group.bench_function(format!("{name}, {case}, cold"), |b| {
            b.iter_custom(|rounds| {
                let mut spent = Duration::ZERO;
                for _ in 0..rounds {
                    let opened = bed.take().expect("a store").reopened();
                    let db = opened.store.current();
                    let start = Instant::now();
                    read(&db, query);
                    spent += start.elapsed();
                    drop(db);
                    bed = Some(opened);
                }
                spent
            });
        });
        let db = bed.as_ref().expect("a store").store.current();
        group.measurement_time(Duration::from_millis(600)).warm_up_time(Duration::from_millis(100));
        group.bench_function(format!("{name}, {case}, warm"), |b| b.iter(|| read(&db, query)));
    }
    bed.expect("a store")
}

fn sizes(c: &mut Criterion) {
    let mut group = c.benchmark_group("range");
    group.sampling_mode(SamplingMode::Flat);
    for (count, bytes) in SIZES {
        let count = if is_trial() { count.min(100) } else { count };
        for (history, order) in
            [(History::Ordered, "in order"), (History::Scattered, "scattered"), (History::Rewritten, "rewritten")]
        {
            let bed = filled(count, bytes, history);
            drop(measure(&mut group, bed, &format!("{count} of {bytes} B, {order}"), count));
        }
    }
    group.finish();
}

/// The cost of puts into a range that was read right before, and of puts outside of it. The read is
/// not measured.
fn puts(c: &mut Criterion) {
    let count = if is_trial() { 100 } else { 10_000 };
    let mut bed = filled(count, VALUE_BYTES, History::Scattered);
    let query = RangeQuery::new(KeyRange::Span { start: key(0), end: Some(key(count)) });
    let mut group = c.benchmark_group("put");
    for batch in [1u64, 64] {
        group.throughput(Throughput::Elements(batch));
        for is_read in [false, true] {
            let name = if is_read { "into a range just read" } else { "elsewhere" };
            group.bench_function(format!("{name}, {batch} a commit"), |b| {
                b.iter_custom(|rounds| {
                    let mut spent = Duration::ZERO;
                    for _ in 0..rounds {
                        if is_read {
                            whole(&bed.store.current(), &query);
                        }
                        let first = if is_read { 0 } else { count };
                        let next = |bed: &mut Bed| {
                            let fresh = bed.fresh();
                            put(key(first + fresh % count), fresh, VALUE_BYTES)
                        };
                        let batch: Vec<Proposal> = (0..batch).map(|_| next(&mut bed)).collect();
                        spent += bed.apply(&batch);
                    }
                    spent
                });
            });
        }
    }
    group.finish();
}

/// The cost of encoding alone.
fn encoding(c: &mut Criterion) {
    let mut group = c.benchmark_group("encode a range");
    for (count, bytes) in SIZES {
        let count = if is_trial() { count.min(100) } else { count };
        let bed = filled(count, bytes, History::Ordered);
        let query = RangeQuery::new(KeyRange::Span { start: key(0), end: Some(key(count)) });
        let db = bed.store.current();
        let view = db.view().expect("a view");
        let result = headwater_fsm::range(&view, &query).expect("no failure").expect("a range");
        group.throughput(Throughput::Elements(count));
        group.bench_function(format!("{count} of {bytes} B, grown"), |b| b.iter(|| encode(result.kvs.clone())));
        group.bench_function(format!("{count} of {bytes} B, exact"), |b| b.iter(|| encode_exactly(result.kvs.clone())));
    }
    group.finish();
}

/// Whether the command line has a filter for none of `words`, which are parts of the names of this
/// file's benchmarks: filling their stores takes minutes. A filter for another part of the names,
/// such as `cold`, leaves them out, too.
fn is_left_out() -> bool {
    let words = ["range", "put", "encode a range", "in order", "scattered", "rewritten"];
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    filter.is_some_and(|filter| !words.iter().any(|word| filter.contains(word) || word.contains(&*filter)))
}

fn benches(c: &mut Criterion) {
    if !is_left_out() {
        sizes(c);
        puts(c);
        encoding(c);
    }
}

criterion_group! {
    name = all;
    config = Criterion::default().sample_size(10).measurement_time(Duration::from_millis(600)).warm_up_time(Duration::from_millis(100));
    targets = benches
}
