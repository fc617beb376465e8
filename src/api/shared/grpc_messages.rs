//! Counts the messages of calls: number and size, from the five bytes before each, and the versions
//! that clients state.
//!
//! Sees every byte of every call and copies none. A call updates counters that it holds; a client's
//! version is looked up in a short list.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderValue;
use http_body::{Body, Frame, SizeHint};
use parking_lot::RwLock;
use prometheus::{IntCounter, IntCounterVec};
use tonic::codegen::StdError;

use super::grpc_metrics::MethodMetrics;
use headwater_types::limits::{CLIENT_VERSION_BYTES_MAX, CLIENT_VERSIONS_SHOWN_MAX};

/// Bytes before each message: whether it is compressed, and its length.
pub(super) const HEAD_BYTES: u8 = 5;

/// Finds the messages in the bytes of one direction of a call. The bytes come in parts that may end
/// anywhere within a message.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MessageCounter {
    /// Bytes of the current head that were read, 0 to 5; 5 within a message.
    head: u8,
    /// While the head is read, the length so far; after it, the bytes of the message that are left.
    left: u32,
}

impl MessageCounter {
    /// Number of message heads that end in `data`, and number of message bytes in it, without
    /// heads.
    pub(super) fn count(&mut self, mut data: &[u8]) -> (u64, u64) {
        let (mut messages, mut bytes) = (0, 0);
        while !data.is_empty() {
            if self.head < HEAD_BYTES {
                if self.head > 0 {
                    self.left = self.left << 8 | u32::from(data[0]);
                }
                self.head += 1;
                data = &data[1..];
                if self.head == HEAD_BYTES {
                    messages += 1;
                    self.rest();
                }
                continue;
            }
            let here = data.len().min(self.left as usize);
            bytes += here as u64;
            self.left -= here as u32;
            data = &data[here..];
            self.rest();
        }
        (messages, bytes)
    }

    /// Expects the next head, if no byte of the message is left.
    fn rest(&mut self) {
        if self.left == 0 {
            *self = Self::default();
        }
    }
}

/// The body of a request. Its messages are counted as they arrive.
pub struct CountedRequest<B> {
    body: B,
    metrics: Arc<MethodMetrics>,
    messages: MessageCounter,
}

impl<B> CountedRequest<B> {
    /// Counts the messages of `body` for the method of `metrics`.
    pub fn new(body: B, metrics: &Arc<MethodMetrics>) -> Self {
        Self { body, metrics: Arc::clone(metrics), messages: MessageCounter::default() }
    }
}

impl<B> Body for CountedRequest<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<StdError>,
{
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        let this = &mut *self;
        Poll::Ready(match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    let (messages, bytes) = this.messages.count(data);
                    this.metrics.received(messages, bytes);
                }
                Some(Ok(frame))
            }
            Some(Err(error)) => {
                let error = error.into();
                if !is_going_away(&*error) {
                    this.metrics.receive_failed();
                }
                Some(Err(error))
            }
            None => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Whether the error means that the client ended the call or its connection broke, which does not
/// count as a failure.
fn is_going_away(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<h2::Error>() {
            return error.is_io() || matches!(error.reason(), Some(h2::Reason::CANCEL | h2::Reason::NO_ERROR));
        }
        if error.is::<std::io::Error>() {
            return true;
        }
        next = error.source();
    }
    false
}

/// Counters of calls by the version that their client states.
pub(super) struct ClientVersions {
    family: IntCounterVec,
    unknown: [IntCounter; 2],
    other: [IntCounter; 2],
    /// Counters of each version that a client has stated: of streams, then of unary calls. Calls
    /// with a new version count as `other` once there are [`CLIENT_VERSIONS_SHOWN_MAX`].
    known: RwLock<Vec<(HeaderValue, [IntCounter; 2])>>,
}

impl ClientVersions {
    /// Creates the counters in `family`, which has two labels in this order: the type of a call
    /// (`stream` or `unary`) and the version that the client states.
    pub(super) fn new(family: IntCounterVec) -> Self {
        let of = |version| counters(&family, version);
        Self { unknown: of("unknown"), other: of("other"), known: RwLock::default(), family }
    }

    /// Counts a call: as `unknown` without a version, as `other` once too many versions are known
    /// or if the version is too long. A version that is not text is refused later, and not counted,
    /// as in etcd.
    pub(super) fn count(&self, version: Option<&HeaderValue>, is_unary: bool) {
        let of = |counters: &[IntCounter; 2]| counters[usize::from(is_unary)].inc();
        let Some(version) = version else { return of(&self.unknown) };
        if let Some((_, counters)) = self.known.read().iter().find(|(known, _)| known == version) {
            return of(counters);
        }
        let Ok(text) = std::str::from_utf8(version.as_bytes()) else { return };
        let mut known = self.known.write();
        if known.len() >= CLIENT_VERSIONS_SHOWN_MAX || text.len() > CLIENT_VERSION_BYTES_MAX {
            return of(&self.other);
        }
        let new = counters(&self.family, text);
        of(&new);
        if !known.iter().any(|(known, _)| known == version) {
            known.push((version.clone(), new));
        }
    }
}

/// The counters of one version: of streams, then of unary calls.
fn counters(family: &IntCounterVec, version: &str) -> [IntCounter; 2] {
    ["stream", "unary"].map(|kind| family.with_label_values(&[kind, version]))
}

#[cfg(test)]
mod tests {
    use prometheus::Opts;

    use super::*;

    #[test]
    fn messages_are_found_however_they_are_cut() {
        let lengths = [0_usize, 1, 5, 300, 70_000, 0, 7];
        let mut all = Vec::new();
        for length in lengths {
            all.push(0);
            all.extend_from_slice(&(length as u32).to_be_bytes());
            all.resize(all.len() + length, 0xff);
        }
        let wanted = (lengths.len() as u64, lengths.iter().sum::<usize>() as u64);
        for size in [1, 2, 3, 4, 5, 6, 7, 299, 4096, all.len()] {
            let mut counter = MessageCounter::default();
            let counts = all.chunks(size).map(|chunk| counter.count(chunk));
            let found = counts.fold((0, 0), |sum, (messages, bytes)| (sum.0 + messages, sum.1 + bytes));
            assert_eq!(found, wanted, "in pieces of {size}");
        }
    }

    #[test]
    fn versions_of_clients_are_bounded() {
        let family = IntCounterVec::new(Opts::new("n", "h"), &["type", "client_api_version"]).unwrap();
        let versions = ClientVersions::new(family.clone());
        let value = |text: &str| HeaderValue::from_str(text).unwrap();
        let shown = |kind: &str, version: &str| family.with_label_values(&[kind, version]).get();
        versions.count(None, true);
        versions.count(Some(&value("3.5")), true);
        versions.count(Some(&value("3.5")), true);
        versions.count(Some(&value("3.5")), false);
        versions.count(Some(&HeaderValue::from_bytes(b"\xff\xfe").unwrap()), true);
        assert_eq!((shown("unary", "unknown"), shown("unary", "3.5"), shown("stream", "3.5")), (1, 2, 1));
        versions.count(Some(&value(&"x".repeat(CLIENT_VERSION_BYTES_MAX + 1))), true);
        assert_eq!(shown("unary", "other"), 1);
        for number in 0..CLIENT_VERSIONS_SHOWN_MAX + 3 {
            versions.count(Some(&value(&format!("v{number}"))), true);
        }
        assert_eq!(versions.known.read().len(), CLIENT_VERSIONS_SHOWN_MAX);
        assert_eq!(shown("unary", "other"), 1 + 4);
    }

    #[test]
    fn a_client_that_goes_away_is_no_failure() {
        for (reason, is_gone) in
            [(h2::Reason::CANCEL, true), (h2::Reason::NO_ERROR, true), (h2::Reason::PROTOCOL_ERROR, false)]
        {
            assert_eq!(is_going_away(&h2::Error::from(reason)), is_gone, "{reason:?}");
        }
        assert!(is_going_away(&std::io::Error::other("reset")));
        assert!(!is_going_away(&tonic::Status::internal("defect")));
    }
}
