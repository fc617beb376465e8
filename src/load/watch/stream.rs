//! One watch stream: creates its watchers, then counts events.
//!
//! Invariant: a counted event was read in full. While the readers are on hold, at most one chunk is
//! taken from a stream and no window is given back, so that the server sees a client that has
//! stopped reading.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::{Bytes, BytesMut};
use h2::RecvStream;
use hdrhistogram::Histogram;
use tokio::sync::watch;

use super::super::clock::Clock;
use super::super::ledger::Seen;
use super::super::protobuf::Malformed;
use super::super::wire::{self, Connection, Failure};
use super::super::workload::{Method, frame};
use super::decode::{Response, Splitter};
use super::layout::Layout;
use super::readers::{Order, Shared};
use headwater_proto::pb::etcdserverpb::watch_request::RequestUnion;
use headwater_proto::pb::etcdserverpb::{WatchCreateRequest, WatchRequest};

/// Counts of the streams of one thread.
pub(super) struct Tally {
    /// Counts of events: one list for each stream, one element for each watcher on it. The list of
    /// a stream that another thread reads is empty.
    pub(super) streams: Vec<Vec<Seen>>,
    /// Time from the moment from which a put's latency counts until its event was read,
    /// microseconds.
    pub(super) latency: Histogram<u64>,
}

/// The reader of one stream, which counts the events of the watchers on it.
pub(super) struct WatchStream {
    pub(super) shared: Arc<Shared>,
    pub(super) number: usize,
    pub(super) order: watch::Receiver<Order>,
    pub(super) tally: Rc<RefCell<Tally>>,
}

/// The reason for which a response cannot be counted: it is malformed, or the text says why.
enum ResponseError {
    Malformed,
    Said(String),
}

impl From<Malformed> for ResponseError {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

impl WatchStream {
    /// Reads until the stream ends, which it should not. Returns the reason for its end.
    pub(super) async fn run(self, connection: Connection) -> String {
        let shared = Arc::clone(&self.shared);
        let number = self.number;
        let why = match connection.open_stream(Method::Watch, create_requests(&shared.layout, number)).await {
            Ok((sending, mut body)) => {
                let why = self.read(&mut body).await;
                // Dropped earlier, it would close our side, and a server may then end the stream
                // (spec: etcd §2.1).
                drop(sending);
                why
            }
            Err(Failure::Status(reason) | Failure::Transport(reason)) => reason,
        };
        format!("watch stream {number} on {} ended: {why}", shared.layout.endpoint_of_stream(number))
    }

    async fn read(mut self, body: &mut RecvStream) -> String {
        let shared = Arc::clone(&self.shared);
        let mut splitter = Splitter::default();
        loop {
            let chunk = match body.data().await {
                Some(Ok(chunk)) => chunk,
                Some(Err(error)) => return error.to_string(),
                None => return wire::ending(body).await,
            };
            // Whether there is a new order costs no lock. The sender lives as long as the run; if
            // it is gone, so is the reason to wait.
            if self.order.has_changed().unwrap_or(true)
                && *self.order.borrow_and_update() == Order::Hold
                && self.order.wait_for(|order| *order != Order::Hold).await.is_err()
            {
                return "the run is over".to_owned();
            }
            let now = shared.clock.nanos();
            let (counted, created, events) = {
                let tally = &mut *self.tally.borrow_mut();
                let latency = shared.measures_latency.load(Ordering::Relaxed).then_some(&mut tally.latency);
                let mut reader = Reader { seen: &mut tally.streams[self.number], latency, now, created: 0, events: 0 };
                let counted = splitter.push(&chunk, |message| reader.take(message));
                (counted, reader.created, reader.events)
            };
            match counted {
                Ok(()) => {}
                Err(ResponseError::Malformed) => return "what came is no watch response".to_owned(),
                Err(ResponseError::Said(why)) => return why,
            }
            if created > 0 {
                shared.created.fetch_add(created, Ordering::Relaxed);
            }
            if events > 0 {
                shared.last_event.fetch_max(now, Ordering::Relaxed);
                shared.received.fetch_add(events, Ordering::Relaxed);
            }
            if let Err(error) = body.flow_control().release_capacity(chunk.len()) {
                return error.to_string();
            }
        }
    }
}

/// Counts the events and confirmations of one chunk.
struct Reader<'a> {
    /// Events seen, by watcher.
    seen: &'a mut [Seen],
    latency: Option<&'a mut Histogram<u64>>,
    /// Time at which the chunk was read, nanoseconds of the clock.
    now: u64,
    created: u64,
    events: u64,
}

impl Reader<'_> {
    #[inline]
    fn take(&mut self, message: &[u8]) -> Result<(), ResponseError> {
        let response = Response::read(message)?;
        if response.is_canceled {
            let why = String::from_utf8_lossy(response.cancel_reason);
            return Err(ResponseError::Said(match response.compact_revision {
                0 => format!("watcher {} was cancelled: {why}", response.watch_id),
                revision => format!("watcher {} was cancelled: compacted at revision {revision}", response.watch_id),
            }));
        }
        if response.is_created {
            self.created += 1;
        }
        for event in response.events() {
            let event = event?;
            let unknown = || ResponseError::Said(format!("an event came for watcher {}, unknown", response.watch_id));
            let watcher = usize::try_from(response.watch_id - FIRST_WATCH_ID).map_err(|_| unknown())?;
            self.seen.get_mut(watcher).ok_or_else(unknown)?.event(event.revision);
            self.events += 1;
            if let (Some(latency), Some(due)) = (&mut self.latency, Clock::stamp_of(event.value)) {
                latency.saturating_record(self.now.saturating_sub(due) / 1000);
            }
        }
        Ok(())
    }
}

/// Id of the first watcher of a stream; the ids of the others follow it. Not 0, which asks the
/// server to choose an id.
const FIRST_WATCH_ID: i64 = 1;

/// The requests for all watchers of a stream, in one buffer.
fn create_requests(layout: &Layout, stream: usize) -> Bytes {
    let mut requests = BytesMut::new();
    for (watcher, watch_id) in (0..layout.watchers).zip(FIRST_WATCH_ID..) {
        let key = layout.keys.key(layout.key_of(stream, watcher));
        let create = WatchCreateRequest { key, watch_id, ..WatchCreateRequest::default() };
        let request = WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
        requests.extend_from_slice(&frame(&request));
    }
    requests.freeze()
}

#[cfg(test)]
mod tests {
    use super::super::super::drive::new_histogram;
    use super::super::super::ledger::{Fault, Ledger};
    use super::*;
    use headwater_proto::pb::etcdserverpb::WatchResponse;
    use headwater_proto::pb::mvccpb::{Event, KeyValue};
    use prost::Message;

    fn response(watch_id: i64, revisions: &[i64], due: u64) -> Vec<u8> {
        let events = revisions.iter().map(|revision| {
            let value = due.to_le_bytes().to_vec().into();
            Event { kv: Some(KeyValue { mod_revision: *revision, value, ..Default::default() }), ..Default::default() }
        });
        WatchResponse { watch_id, events: events.collect(), ..Default::default() }.encode_to_vec()
    }

    #[test]
    fn what_comes_is_entered_and_judged() {
        let ledger = Ledger::new(2, 2);
        for (key, revision) in [(0, 2), (1, 3), (0, 4)] {
            ledger.acknowledged(key, revision);
        }
        let mut seen = vec![Seen::default(); 2];
        let mut latency = new_histogram();
        let now = 5_000_000;
        let mut reader = Reader { seen: &mut seen, latency: Some(&mut latency), now, created: 0, events: 0 };
        let created = WatchResponse { watch_id: 1, created: true, ..Default::default() }.encode_to_vec();
        assert!(reader.take(&created).is_ok());
        assert!(reader.take(&response(1, &[2, 4], 3_500_000)).is_ok());
        assert!(reader.take(&response(2, &[3, 3], 4_000_000)).is_ok());
        assert_eq!((reader.created, reader.events), (1, 4));
        assert_eq!((latency.len(), latency.min(), latency.max()), (4, 1_000, 1_500));
        assert_eq!(ledger.judge(0, &seen[0]), None);
        assert_eq!(ledger.judge(1, &seen[1]), Some(Fault::Disorder { after: 3, came: 3 }));
    }

    #[test]
    fn what_ends_a_stream_is_told() {
        let mut seen = vec![Seen::default(); 2];
        let mut reader = Reader { seen: &mut seen, latency: None, now: 0, created: 0, events: 0 };
        let canceled = WatchResponse { watch_id: 2, canceled: true, compact_revision: 9, ..Default::default() };
        for (message, wanted) in [
            (canceled.encode_to_vec(), "watcher 2 was cancelled: compacted at revision 9"),
            (response(3, &[1], 0), "an event came for watcher 3, unknown"),
            (response(0, &[1], 0), "an event came for watcher 0, unknown"),
        ] {
            match reader.take(&message) {
                Err(ResponseError::Said(why)) => assert_eq!(why, wanted),
                Ok(()) | Err(ResponseError::Malformed) => panic!("expected: {wanted}"),
            }
        }
        assert!(matches!(reader.take(&[0x12, 9]), Err(ResponseError::Malformed)));
    }
}
