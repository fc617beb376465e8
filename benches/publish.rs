//! Cost of publishing a commit, by the number of its subscribers. Every write waits for this before
//! its answer.
//!
//! Subscriptions of other keys must cost nothing. A crowd on one key costs the publisher one
//! append. A second group measures publishing together with waking the crowd and reading.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group};
use headwater_stream::{EventPublisher, FeedOptions, Kv, Publisher, Session, Start, StatePoint, Subscription};
use headwater_types::{ChangeKind, CommandEvents, KeyRange, KeyValue, KvEvent, LogIndex, Revision};

const VALUE_BYTES: usize = 256;
/// Most subscriptions of one session: as if a client had this many watchers on one stream.
const SUBSCRIPTIONS_PER_SESSION: usize = 100;

/// A publisher, and its subscriptions. They have read everything between two rounds.
struct Bed {
    publisher: EventPublisher,
    sessions: Vec<Client>,
    wakes: Pin<Box<dyn Future<Output = ()> + Send>>,
    value: Bytes,
    next: u64,
}

/// One client stream.
struct Client {
    session: Arc<Session>,
    subscriptions: Vec<Subscription<Kv>>,
}

fn key(number: usize) -> Bytes {
    Bytes::from(format!("/registry/bench/{number:016x}"))
}

/// Makes the subject of a subscription from its number.
type Subject = fn(usize) -> KeyRange;

/// The key that every commit changes.
const CHANGED: usize = 0;

impl Bed {
    /// Makes a publisher with `count` subscriptions. Number N, from 0, is of `subject(N)`.
    fn new(count: usize, subject: impl Fn(usize) -> KeyRange) -> Self {
        let publisher = EventPublisher::new(StatePoint::default(), FeedOptions::default());
        let mut sessions = Vec::new();
        for first in (0..count).step_by(SUBSCRIPTIONS_PER_SESSION) {
            let session = Session::new();
            let numbers = first..count.min(first + SUBSCRIPTIONS_PER_SESSION);
            let subscriptions = numbers.map(|number| {
                let token = (number - first) as u64;
                publisher.kv().subscribe(subject(number), Start::Now, &session, token).expect("the feed is open")
            });
            let subscriptions = subscriptions.collect();
            sessions.push(Client { session, subscriptions });
        }
        let wakes = Box::pin(publisher.kv().wake_readers());
        let mut bed = Self { publisher, sessions, wakes, value: vec![7; VALUE_BYTES].into(), next: 1 };
        // A new subscription is read once before it waits.
        for client in &mut bed.sessions {
            for subscription in &mut client.subscriptions {
                assert!(subscription.try_next().expect("the feed is open").is_none());
            }
        }
        bed
    }

    /// The events of the next commit: one put of the key [`CHANGED`].
    fn commit(&mut self) -> CommandEvents {
        let revision = Revision(self.next.cast_signed());
        let index = LogIndex(self.next);
        self.next += 1;
        let kv = KeyValue {
            key: key(CHANGED),
            value: self.value.clone(),
            create_revision: revision,
            mod_revision: revision,
            version: 1,
            ..KeyValue::default()
        };
        let event = KvEvent { kind: ChangeKind::Put, kv };
        CommandEvents {
            index,
            revision: Some(revision),
            kv: [event].into(),
            resources: [].into(),
            catalog: [].into(),
            cluster: [].into(),
        }
    }

    /// Lets the feed wake readers and reads every woken subscription, until none is woken. Returns
    /// the number of events read.
    fn read(&mut self) -> usize {
        let mut cx = Context::from_waker(Waker::noop());
        let mut events = 0;
        loop {
            // The feed wakes a part of the readers at each poll.
            assert!(self.wakes.as_mut().poll(&mut cx).is_pending());
            let mut raised = 0;
            for client in &mut self.sessions {
                for token in client.session.take_raised() {
                    raised += 1;
                    let subscription = &mut client.subscriptions[usize::try_from(token).expect("a small number")];
                    while let Some(item) = subscription.try_next().expect("the feed is open") {
                        events += item.len();
                    }
                }
            }
            if raised == 0 {
                return events;
            }
        }
    }

    /// Publishes one commit and reads it, `rounds` times. Returns the time that publishing took,
    /// the time of publishing and reading together, and the number of events read.
    fn run(&mut self, rounds: u64) -> (Duration, Duration, usize) {
        let (mut publishing, mut all, mut events) = (Duration::ZERO, Duration::ZERO, 0);
        for _ in 0..rounds {
            let commits = vec![self.commit()];
            let began = Instant::now();
            self.publisher.publish(commits);
            publishing += began.elapsed();
            events += self.read();
            all += began.elapsed();
        }
        (publishing, all, events)
    }
}

/// Subscriptions of the largest bed; few if the benches are only tried (`--test`).
fn many() -> usize {
    if std::env::args().any(|arg| arg == "--test") { 200 } else { 10_000 }
}

fn publish(c: &mut Criterion) {
    let mut group = c.benchmark_group("publish");
    group.throughput(Throughput::Elements(1));
    for count in [0, 1, 100, many()] {
        let mut bed = Bed::new(count, |_| KeyRange::One(key(CHANGED)));
        group.bench_function(BenchmarkId::new("subscriptions of the key", count), |b| {
            b.iter_custom(|rounds| {
                let (publishing, _, events) = bed.run(rounds);
                assert_eq!(events as u64, rounds * count as u64, "everybody reads everything");
                publishing
            });
        });
    }
    let others: [(&str, Subject); 2] = [
        ("subscriptions of other keys", |number| KeyRange::One(key(CHANGED + 1 + number))),
        ("subscriptions of intervals without it", |number| KeyRange::Span {
            start: key(CHANGED + 1 + number),
            end: Some(key(CHANGED + 100 + number)),
        }),
    ];
    for (name, subject) in others {
        let count = many();
        let mut bed = Bed::new(count, subject);
        group.bench_function(BenchmarkId::new(name, count), |b| {
            b.iter_custom(|rounds| {
                let (publishing, _, events) = bed.run(rounds);
                assert_eq!(events, 0, "nobody is concerned");
                publishing
            });
        });
    }
    group.finish();
}

fn publish_and_read(c: &mut Criterion) {
    let mut group = c.benchmark_group("publish, wake and read");
    for count in [1, 100, many()] {
        let mut bed = Bed::new(count, |_| KeyRange::One(key(CHANGED)));
        group.throughput(Throughput::Elements(count as u64));
        group.bench_function(BenchmarkId::new("subscriptions of the key", count), |b| {
            b.iter_custom(|rounds| bed.run(rounds).1);
        });
    }
    group.finish();
}

criterion_group! {
    name = all;
    config = Criterion::default().sample_size(20).measurement_time(Duration::from_secs(2)).warm_up_time(Duration::from_millis(500));
    targets = publish, publish_and_read
}
