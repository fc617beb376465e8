//! The requests of the clients, encoded straight into the frame that goes on the wire; and their
//! keys, by number.

use std::sync::Arc;
use std::time::Instant;

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;
use rand::Rng;
use rand::rngs::SmallRng;

use super::clock::Clock;
use super::resource;
use headwater_proto::pb::etcdserverpb::request_op::Request;
use headwater_proto::pb::etcdserverpb::{
    LeaseGrantRequest, LeaseKeepAliveRequest, PutRequest, RangeRequest, RequestOp, TxnRequest,
};
use headwater_proto::pb::headwater_v1::{self as store, CommitRequest, Operation, operation};
use headwater_proto::pb::pbresource::{ReadRequest, WriteRequest};

/// The kind of operations of a load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    /// Writes of single keys.
    Put,
    /// Reads of single keys.
    Get,
    /// Reads of `limit` keys in a row.
    Range {
        /// Keys in a range.
        limit: u64,
    },
    /// Reads of the first `limit` keys of all, or with a limit of 1 of single keys, as they were.
    Past {
        /// Keys in a read.
        limit: u64,
        /// The moment, as one of two APIs names it.
        moment: Moment,
    },
    /// Writes of several keys at once.
    Txn {
        /// Keys in a transaction.
        puts: usize,
    },
    /// Commits of several keys at once by `headwater.v1.Store`.
    Commit {
        /// Keys in a commit.
        puts: usize,
        /// Prefix of the idempotency keys: a number that no other run has. `None` for commits
        /// without a key.
        run: Option<u64>,
    },
    /// Reads and writes of single keys.
    Mixed {
        /// Reads for each write.
        reads_per_write: f64,
    },
    /// Grants of leases, and keep-alives.
    Lease {
        /// Keep-alives for each grant; infinity for keep-alives alone.
        keep_alives_per_grant: f64,
        /// Time to live of granted leases, seconds.
        ttl_seconds: i64,
    },
    /// Reads and writes of typed resources.
    Resource {
        /// Reads for each write.
        reads_per_write: f64,
    },
}

/// A moment in the past of the store.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Moment {
    /// A log index, for `Store.Read`.
    Index(u64),
    /// A revision, for `KV.Range`.
    Revision(i64),
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Get => "get",
            Self::Range { .. } => "range",
            Self::Past { .. } => "past",
            Self::Txn { .. } => "txn",
            Self::Commit { .. } => "commit",
            Self::Mixed { .. } => "mixed",
            Self::Lease { .. } => "lease",
            Self::Resource { .. } => "resource",
        }
    }
}

/// The methods that workloads call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    /// `KV.Put`
    Put,
    /// `KV.Range`
    Range,
    /// `KV.Txn`
    Txn,
    /// `Store.Commit`
    Commit,
    /// `Store.Read`
    StoreRead,
    /// `Watch.Watch`
    Watch,
    /// `Watcher.Watch`
    Follow,
    /// `StateChangeSubscription.Subscribe`
    Subscribe,
    /// `Lease.LeaseGrant`
    LeaseGrant,
    /// `Lease.LeaseKeepAlive`, a stream of one request
    LeaseKeepAlive,
    /// `ResourceService.Write`
    ResourceWrite,
    /// `ResourceService.Read`, serializable
    ResourceRead,
    /// `ResourceService.Read`, linearizable
    ResourceReadConsistent,
}

impl Method {
    pub(super) const ALL: [Self; 13] = [
        Self::Put,
        Self::Range,
        Self::Txn,
        Self::Commit,
        Self::StoreRead,
        Self::Watch,
        Self::Follow,
        Self::Subscribe,
        Self::LeaseGrant,
        Self::LeaseKeepAlive,
        Self::ResourceWrite,
        Self::ResourceRead,
        Self::ResourceReadConsistent,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Range => "range",
            Self::Txn => "txn",
            Self::Commit => "commit",
            Self::Watch => "watch",
            Self::Follow => "follow",
            Self::Subscribe => "subscribe",
            Self::LeaseGrant => "grant",
            Self::LeaseKeepAlive => "keep-alive",
            Self::ResourceWrite => "write",
            Self::StoreRead | Self::ResourceRead | Self::ResourceReadConsistent => "read",
        }
    }

    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Put => "/etcdserverpb.KV/Put",
            Self::Range => "/etcdserverpb.KV/Range",
            Self::Txn => "/etcdserverpb.KV/Txn",
            Self::Commit => "/headwater.v1.Store/Commit",
            Self::StoreRead => "/headwater.v1.Store/Read",
            Self::Follow => "/google.watcher.v1.Watcher/Watch",
            Self::Subscribe => "/subscribe.StateChangeSubscription/Subscribe",
            Self::Watch => "/etcdserverpb.Watch/Watch",
            Self::LeaseGrant => "/etcdserverpb.Lease/LeaseGrant",
            Self::LeaseKeepAlive => "/etcdserverpb.Lease/LeaseKeepAlive",
            Self::ResourceWrite => "/hashicorp.consul.resource.ResourceService/Write",
            Self::ResourceRead | Self::ResourceReadConsistent => "/hashicorp.consul.resource.ResourceService/Read",
        }
    }
}

/// The key space: numbers with leading zeros behind a prefix, so that the order of numbers is the
/// order of keys.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    prefix: Bytes,
    digits: usize,
    count: u64,
}

impl Keys {
    pub(super) fn new(prefix: &str, size: usize, count: u64) -> Result<Self, String> {
        // One past the last key must have a name too: it ends the last range.
        let needed = prefix.len() + count.to_string().len();
        if size < needed {
            return Err(format!("--key-size must be at least {needed} for {count} keys that begin with {prefix:?}"));
        }
        Ok(Self { prefix: Bytes::copy_from_slice(prefix.as_bytes()), digits: size - prefix.len(), count })
    }

    /// The key with this number.
    pub(super) fn key(&self, number: u64) -> Bytes {
        let mut key = BytesMut::with_capacity(self.prefix.len() + self.digits);
        key.put_slice(&self.prefix);
        key.put_bytes(b'0', self.digits);
        let mut rest = number;
        for digit in key[self.prefix.len()..].iter_mut().rev() {
            *digit = b'0' + u8::try_from(rest % 10).expect("a digit");
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        key.freeze()
    }
}

/// Makes the requests of a measurement.
#[derive(Clone, Debug)]
pub(super) struct Workload {
    pub(super) kind: Kind,
    pub(super) keys: Keys,
    pub(super) value: Bytes,
    /// Clock of the due times that puts carry at the beginning of their values; `None` for plain
    /// values.
    pub(super) clock: Option<Clock>,
    pub(super) serializable: bool,
    pub(super) sequential: bool,
    /// Ids of the leases to keep alive.
    pub(super) leases: Arc<[i64]>,
}

/// A request, framed as gRPC wants it.
pub(super) struct Encoded {
    pub(super) method: Method,
    pub(super) frame: Bytes,
    /// Number of the (first) key of the request; 0 if it has no key.
    pub(super) key: u64,
    /// Number of pairs that the request asks for; `None` unless the method is [`Method::Range`] or
    /// [`Method::StoreRead`].
    pub(super) pairs: Option<u64>,
}

impl Workload {
    /// The request of the operation with this number. Its latency counts from `due`, which stamped
    /// values carry.
    pub(super) fn next(&self, number: u64, due: Instant, random: &mut SmallRng) -> Encoded {
        match self.kind {
            Kind::Put => self.put(self.pick(number, 1, random), due),
            Kind::Get => self.range(self.pick(number, 1, random), 1),
            Kind::Range { limit } => self.range(self.pick(number, limit, random), limit),
            Kind::Past { limit, moment } => {
                let at = if limit == 1 { self.pick(number, 1, random) } else { 0 };
                match moment {
                    Moment::Index(index) => self.read_at(at, limit, index),
                    Moment::Revision(revision) => self.range_at(at, limit, revision),
                }
            }
            Kind::Txn { puts } => {
                // A key may be put once in a transaction: the keys lie side by side.
                let first = self.pick(number, puts as u64, random);
                let op = |at: u64| RequestOp { request: Some(Request::RequestPut(self.put_request(first + at, due))) };
                let txn = TxnRequest { success: (0..puts as u64).map(op).collect(), ..TxnRequest::default() };
                Encoded { method: Method::Txn, frame: frame(&txn), key: first, pairs: None }
            }
            Kind::Commit { puts, run } => {
                let first = self.pick(number, puts as u64, random);
                let operation = |at: u64| Operation {
                    operation: Some(operation::Operation::Put(self.put_request(first + at, due))),
                };
                let key = run.map(|run| Bytes::from(format!("bench-{run:016x}-{number:x}")));
                let commit = CommitRequest {
                    operations: (0..puts as u64).map(operation).collect(),
                    idempotency_key: key.unwrap_or_default(),
                    ..CommitRequest::default()
                };
                Encoded { method: Method::Commit, frame: frame(&commit), key: first, pairs: None }
            }
            Kind::Mixed { reads_per_write } => {
                let at = self.pick(number, 1, random);
                let read = random.random::<f64>() < reads_per_write / (1.0 + reads_per_write);
                if read { self.range(at, 1) } else { self.put(at, due) }
            }
            Kind::Resource { reads_per_write } => {
                let at = self.pick(number, 1, random);
                let read = random.random::<f64>() < reads_per_write / (1.0 + reads_per_write);
                if read { self.read_resource(at) } else { self.write_resource(at) }
            }
            Kind::Lease { keep_alives_per_grant: ratio, ttl_seconds } => {
                let keeps = ratio.is_infinite() || random.random::<f64>() < ratio / (1.0 + ratio);
                match keeps.then(|| self.leases[random.random_range(0..self.leases.len())]) {
                    Some(id) => lease(Method::LeaseKeepAlive, &LeaseKeepAliveRequest { id }),
                    None => lease(Method::LeaseGrant, &LeaseGrantRequest { ttl: ttl_seconds, id: 0 }),
                }
            }
        }
    }

    /// Number of the first of `width` neighbouring keys: in sequence by `number`, or at random.
    /// `width` is at most the number of keys.
    fn pick(&self, number: u64, width: u64, random: &mut SmallRng) -> u64 {
        let choices = self.keys.count - width + 1;
        if self.sequential { number.wrapping_mul(width) % choices } else { random.random_range(0..choices) }
    }

    fn put_request(&self, at: u64, due: Instant) -> PutRequest {
        let value = match self.clock {
            Some(clock) => clock.stamped(due, &self.value),
            None => self.value.clone(),
        };
        PutRequest { key: self.keys.key(at), value, ..PutRequest::default() }
    }

    fn put(&self, at: u64, due: Instant) -> Encoded {
        Encoded { method: Method::Put, frame: frame(&self.put_request(at, due)), key: at, pairs: None }
    }

    fn write_resource(&self, at: u64) -> Encoded {
        let resource = resource::of(&self.keys.key(at), &self.value);
        let frame = frame(&WriteRequest { resource: Some(resource) });
        Encoded { method: Method::ResourceWrite, frame, key: at, pairs: None }
    }

    fn read_resource(&self, at: u64) -> Encoded {
        let frame = frame(&ReadRequest { id: Some(resource::id(&self.keys.key(at))) });
        let method = if self.serializable { Method::ResourceRead } else { Method::ResourceReadConsistent };
        Encoded { method, frame, key: at, pairs: None }
    }

    fn read_at(&self, at: u64, limit: u64, index: u64) -> Encoded {
        let target = match limit {
            1 => format!("/kv/{}?children=false", String::from_utf8_lossy(&self.keys.key(at))),
            _ => format!("/kv/{}", String::from_utf8_lossy(&self.keys.prefix).trim_end_matches('/')),
        };
        let request = store::ReadRequest {
            targets: vec![target],
            at: Some(store::Point { point: Some(store::point::Point::Index(index)), ..Default::default() }),
            serializable: self.serializable,
            page_size: u32::try_from(limit).unwrap_or(u32::MAX),
            ..Default::default()
        };
        Encoded { method: Method::StoreRead, frame: frame(&request), key: at, pairs: Some(limit) }
    }

    fn range_at(&self, at: u64, limit: u64, revision: i64) -> Encoded {
        let range_end = if limit == 1 { Bytes::new() } else { self.keys.key(self.keys.count) };
        let request = RangeRequest {
            key: self.keys.key(at),
            range_end,
            limit: i64::try_from(limit).unwrap_or(i64::MAX),
            revision,
            serializable: self.serializable,
            ..RangeRequest::default()
        };
        Encoded { method: Method::Range, frame: frame(&request), key: at, pairs: Some(limit) }
    }

    fn range(&self, at: u64, width: u64) -> Encoded {
        let range_end = if width == 1 { Bytes::new() } else { self.keys.key(at + width) };
        let request = RangeRequest {
            key: self.keys.key(at),
            range_end,
            serializable: self.serializable,
            ..RangeRequest::default()
        };
        Encoded { method: Method::Range, frame: frame(&request), key: at, pairs: Some(width) }
    }
}

fn lease(method: Method, request: &impl Message) -> Encoded {
    Encoded { method, frame: frame(request), key: 0, pairs: None }
}

/// The encoded message after gRPC's prefix: a byte 0 (not compressed) and the length.
pub(super) fn frame(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut frame = BytesMut::with_capacity(5 + length);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(length).expect("requests are far below 4 GiB"));
    message.encode(&mut frame).expect("the buffer has room");
    frame.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    fn workload(kind: Kind, count: u64, sequential: bool) -> Workload {
        let keys = Keys::new("k/", 6, count).unwrap();
        Workload {
            kind,
            keys,
            value: Bytes::from_static(b"v"),
            clock: None,
            serializable: true,
            sequential,
            leases: [7].into(),
        }
    }

    #[test]
    fn keys_have_one_size_and_keep_order() {
        let keys = Keys::new("k/", 6, 9999).unwrap();
        assert_eq!(keys.key(0), "k/0000");
        assert_eq!(keys.key(7), "k/0007");
        assert_eq!(keys.key(1234), "k/1234");
        assert!(Keys::new("k/", 5, 9999).is_err());
        assert!(Keys::new("", 0, 1).is_err());
    }

    #[test]
    fn sequential_work_covers_the_key_space() {
        let mut random = SmallRng::seed_from_u64(1);
        let (work, now) = (workload(Kind::Put, 3, true), Instant::now());
        let keys: Vec<Bytes> = (0..4)
            .map(|number| PutRequest::decode(work.next(number, now, &mut random).frame.slice(5..)).unwrap().key)
            .collect();
        assert_eq!(keys, ["k/0000", "k/0001", "k/0002", "k/0000"]);
    }

    #[test]
    fn ranges_hold_exactly_their_keys() {
        let mut random = SmallRng::seed_from_u64(1);
        let (work, now) = (workload(Kind::Range { limit: 10 }, 10, false), Instant::now());
        let encoded = work.next(0, now, &mut random);
        let request = RangeRequest::decode(encoded.frame.slice(5..)).unwrap();
        assert_eq!((request.key, request.range_end, request.serializable), ("k/0000".into(), "k/0010".into(), true));
        assert_eq!(encoded.pairs, Some(10));
        assert_eq!(encoded.frame[..5], [0, 0, 0, 0, u8::try_from(encoded.frame.len() - 5).unwrap()]);
    }

    #[test]
    fn both_apis_read_the_same_keys() {
        let mut random = SmallRng::seed_from_u64(1);
        let mut frame = |limit, moment| {
            let work = workload(Kind::Past { limit, moment }, 10, true);
            let encoded = work.next(3, Instant::now(), &mut random);
            (encoded.pairs, encoded.frame.slice(5..))
        };
        for (limit, target, key, end) in
            [(1, "/kv/k/0003?children=false", "k/0003", ""), (5, "/kv/k", "k/0000", "k/0010")]
        {
            let (pairs, read) = frame(limit, Moment::Index(7));
            let read = store::ReadRequest::decode(read).unwrap();
            let point = read.at.unwrap().point;
            assert_eq!((&read.targets[0][..], point), (target, Some(store::point::Point::Index(7))));
            let (other_pairs, range) = frame(limit, Moment::Revision(7));
            let range = RangeRequest::decode(range).unwrap();
            assert_eq!((&range.key[..], &range.range_end[..], range.revision), (key.as_bytes(), end.as_bytes(), 7));
            assert_eq!((pairs, other_pairs, range.limit), (Some(limit), Some(limit), i64::try_from(limit).unwrap()));
        }
    }

    #[test]
    fn a_transaction_puts_different_keys() {
        let mut random = SmallRng::seed_from_u64(1);
        let txn = TxnRequest::decode(
            workload(Kind::Txn { puts: 3 }, 3, false).next(0, Instant::now(), &mut random).frame.slice(5..),
        );
        assert_eq!(txn.unwrap().success.len(), 3);
    }

    #[test]
    fn no_two_commits_have_one_idempotency_key() {
        let mut random = SmallRng::seed_from_u64(1);
        let mut commit = |run, number| {
            let work = workload(Kind::Commit { puts: 2, run }, 3, false);
            CommitRequest::decode(work.next(number, Instant::now(), &mut random).frame.slice(5..)).unwrap()
        };
        let keys = [(1, 1), (1, 2), (2, 1)].map(|(run, number)| commit(Some(run), number).idempotency_key);
        assert!(keys[0] != keys[1] && keys[0] != keys[2] && !keys[0].is_empty(), "{keys:?}");
        let plain = commit(None, 1);
        assert_eq!((plain.operations.len(), plain.idempotency_key.len()), (2, 0));
    }

    #[test]
    fn leases_are_granted_and_kept_alive_in_their_ratio() {
        let mut random = SmallRng::seed_from_u64(1);
        for (ratio, wanted) in [(0.0, 0..=0), (1.0, 4_800..=5_200), (f64::INFINITY, 10_000..=10_000)] {
            let kind = Kind::Lease { keep_alives_per_grant: ratio, ttl_seconds: 60 };
            let (work, now) = (workload(kind, 1, false), Instant::now());
            let kept = (0..10_000).filter(|n| work.next(*n, now, &mut random).method == Method::LeaseKeepAlive).count();
            assert!(wanted.contains(&kept), "{ratio}: {kept}");
        }
        let kind = Kind::Lease { keep_alives_per_grant: f64::INFINITY, ttl_seconds: 60 };
        let request = workload(kind, 1, false).next(0, Instant::now(), &mut random).frame;
        assert_eq!(LeaseKeepAliveRequest::decode(&request[5..]).unwrap().id, 7);
    }

    #[test]
    fn resources_are_written_and_read_by_their_names() {
        let mut random = SmallRng::seed_from_u64(1);
        let now = Instant::now();
        let write = workload(Kind::Resource { reads_per_write: 0.0 }, 3, true).next(2, now, &mut random);
        let resource = WriteRequest::decode(&write.frame[5..]).unwrap().resource.unwrap();
        assert_eq!((write.method, resource.id.unwrap().name.as_str()), (Method::ResourceWrite, "k/0002"));
        let reading = workload(Kind::Resource { reads_per_write: f64::MAX }, 3, true);
        assert_eq!(reading.next(0, now, &mut random).method, Method::ResourceRead);
        let strong = Workload { serializable: false, ..reading };
        assert_eq!(strong.next(0, now, &mut random).method, Method::ResourceReadConsistent);
    }

    #[test]
    fn the_ratio_of_a_mix_is_kept() {
        let mut random = SmallRng::seed_from_u64(1);
        let (work, now) = (workload(Kind::Mixed { reads_per_write: 3.0 }, 100, false), Instant::now());
        let reads = (0..10_000).filter(|number| work.next(*number, now, &mut random).method == Method::Range).count();
        assert!((7_300..7_700).contains(&reads), "{reads}");
    }
}
