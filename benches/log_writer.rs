//! Entries a second that the log makes durable in each of its forms: by entries in one append, and
//! by appends in flight together. Also the rate of reads from memory, and of conversions.
//!
//! Every figure of an append includes the fsync of the disk below the temporary directory, except
//! the case without fsync. Compare only runs on one machine.

use std::hint::black_box;
use std::sync::mpsc;
use std::time::Duration;

use bytes::Bytes;
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group};
use headwater_storage::log::{LogDb, LogForm, LogOptions, LogRecord, RecordKind};
use headwater_types::{LogIndex, Term};

/// Length of a record's payload: about that of a put with a value of 256 bytes.
const PAYLOAD_BYTES: usize = 300;

struct Bench {
    log: LogDb,
    next: u64,
    payload: Bytes,
    _dir: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        Self::with(LogOptions::default())
    }

    fn with(options: LogOptions) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let log = LogDb::open(dir.path(), options).expect("a new log");
        Self { log, next: 0, payload: vec![7; PAYLOAD_BYTES].into(), _dir: dir }
    }

    fn records(&mut self, count: u64) -> Vec<LogRecord> {
        let start = self.next;
        self.next += count;
        (start..self.next)
            .map(|index| LogRecord {
                term: Term(1),
                index: LogIndex(index),
                kind: RecordKind::Normal,
                payload: self.payload.clone(),
            })
            .collect()
    }

    /// Submits `appends` appends with `entries` records each, then waits for the results of all of
    /// them.
    fn append(&mut self, appends: u64, entries: u64) {
        let (sender, done) = mpsc::channel();
        for _ in 0..appends {
            let sender = sender.clone();
            let records = self.records(entries);
            self.log.append(records, move |result| sender.send(result).expect("the bench waits"));
        }
        for _ in 0..appends {
            done.recv().expect("the writer answers").expect("a healthy disk");
        }
    }
}

fn append(c: &mut Criterion) {
    for form in [LogForm::RocksDb, LogForm::Segments] {
        append_to(c, form);
    }
}

fn append_to(c: &mut Criterion, form: LogForm) {
    let options = || LogOptions { form, ..LogOptions::default() };
    let mut group = c.benchmark_group(format!("log_append/{form}"));
    group.measurement_time(Duration::from_secs(3)).warm_up_time(Duration::from_millis(500)).sample_size(20);
    for entries in [1, 16, 256] {
        group.throughput(Throughput::Elements(entries));
        let mut bench = Bench::with(options());
        group.bench_function(BenchmarkId::new("entries_in_one_append", entries), |b| {
            b.iter(|| bench.append(1, entries))
        });
    }
    for appends in [16, 256] {
        group.throughput(Throughput::Elements(appends));
        let mut bench = Bench::with(options());
        group.bench_function(BenchmarkId::new("appends_waiting", appends), |b| b.iter(|| bench.append(appends, 1)));
    }
    // The processor's share, without the disk.
    group.throughput(Throughput::Elements(256));
    let mut bench = Bench::with(LogOptions { unsafe_no_fsync: true, ..options() });
    group.bench_function(BenchmarkId::new("entries_without_fsync", 256), |b| b.iter(|| bench.append(1, 256)));
    group.finish();
}

fn read(c: &mut Criterion) {
    let mut group = c.benchmark_group("log_read");
    group.measurement_time(Duration::from_secs(2)).warm_up_time(Duration::from_millis(500)).sample_size(20);
    let mut bench = Bench::new();
    bench.append(1, 10_000);
    group.throughput(Throughput::Elements(256));
    group.bench_function("256_from_memory", |b| {
        b.iter(|| black_box(bench.log.read(LogIndex(9_000)..LogIndex(9_256)).expect("a healthy log")));
    });
    group.finish();
}

/// A log of 10 MB that is stored in the other form.
fn convert(c: &mut Criterion) {
    const ENTRIES: u64 = 33_000;
    let mut group = c.benchmark_group("log_convert");
    group.measurement_time(Duration::from_secs(3)).warm_up_time(Duration::from_millis(500)).sample_size(10);
    group.throughput(Throughput::Bytes(ENTRIES * PAYLOAD_BYTES as u64));
    for (from, to) in [(LogForm::RocksDb, LogForm::Segments), (LogForm::Segments, LogForm::RocksDb)] {
        let full = || {
            let mut bench = Bench::with(LogOptions { form: from, ..LogOptions::default() });
            bench.append(1, ENTRIES);
            bench
        };
        group.bench_function(format!("to_{to}"), |b| {
            b.iter_batched(
                full,
                |bench| {
                    let (sender, done) = mpsc::channel();
                    bench.log.convert(to, move |result| sender.send(result).expect("the bench waits"));
                    done.recv().expect("the writer answers").expect("a healthy disk");
                    bench
                },
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, append, read, convert);
