//! Reads `WatchResponse` without generated code, straight from the frames: a generator that decodes
//! every event costs more than a server.
//!
//! Owns gRPC's framing of a stream of messages. Invariant: nothing is allocated for an event; bytes
//! are copied only if a message comes in several frames.

use super::super::protobuf::{Fields, Malformed};
use super::super::wire::PREFIX_BYTES;

/// Largest message that a server may send, bytes. A larger length means that the stream was
/// misread.
const MESSAGE_BYTES_MAX: usize = 256 << 20;

/// A decoded `WatchResponse`, up to its events.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Response<'a> {
    pub(super) watch_id: i64,
    pub(super) is_created: bool,
    pub(super) is_canceled: bool,
    pub(super) compact_revision: i64,
    pub(super) cancel_reason: &'a [u8],
    /// The rest of the message, from the first event on.
    tail: &'a [u8],
}

/// The fields of an event that are needed here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Event<'a> {
    pub(super) revision: u64,
    pub(super) value: &'a [u8],
}

/// Number of the field `WatchResponse.events`.
const EVENTS: u64 = 11;

impl<'a> Response<'a> {
    /// Reads the needed fields before the events. Events have the highest field number, and
    /// therefore come last.
    pub(super) fn read(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut response = Self::default();
        let mut fields = Fields::of(message);
        loop {
            let rest = fields.rest();
            let Some(field) = fields.next() else { return Ok(response) };
            let (number, content) = field?;
            match number {
                2 => response.watch_id = content.number().ok_or(Malformed)?.cast_signed(),
                3 => response.is_created = content.number() == Some(1),
                4 => response.is_canceled = content.number() == Some(1),
                5 => response.compact_revision = content.number().ok_or(Malformed)?.cast_signed(),
                6 => response.cancel_reason = content.bytes().ok_or(Malformed)?,
                EVENTS => {
                    response.tail = rest;
                    return Ok(response);
                }
                _ => {}
            }
        }
    }

    /// The events of the response, in the order of the message. [`Malformed`] for any field after
    /// the first event that is no event.
    #[inline]
    pub(super) fn events(&self) -> impl Iterator<Item = Result<Event<'a>, Malformed>> + use<'a> {
        Fields::of(self.tail).map(|field| match field? {
            (EVENTS, content) => Event::read(content.bytes().ok_or(Malformed)?),
            // `read` stops at the first event: a later field would be overlooked.
            _ => Err(Malformed),
        })
    }
}

impl<'a> Event<'a> {
    /// Reads the needed fields of an `mvccpb.Event`: field 2 is the pair, and there field 3 the
    /// revision and field 5 the value.
    #[inline]
    fn read(message: &'a [u8]) -> Result<Self, Malformed> {
        for field in Fields::of(message) {
            let (2, content) = field? else { continue };
            let mut event = Self { revision: 0, value: &[] };
            for field in Fields::of(content.bytes().ok_or(Malformed)?) {
                match field? {
                    (3, content) => event.revision = content.number().ok_or(Malformed)?,
                    (5, content) => {
                        event.value = content.bytes().ok_or(Malformed)?;
                        break;
                    }
                    _ => {}
                }
            }
            return Ok(event);
        }
        Err(Malformed)
    }
}

/// Cuts the bytes of a gRPC stream, which come in chunks of any size, into messages.
#[derive(Debug, Default)]
pub(crate) struct Splitter {
    /// The beginning of an incomplete message, with its prefix.
    partial: Vec<u8>,
}

impl Splitter {
    /// Calls `each` with every message that `chunk` completes, without its prefix, until `each`
    /// fails. Must not be called again after an error.
    ///
    /// # Errors
    ///
    /// The first error of `each`; [`Malformed`] for a message that is compressed, or longer than a
    /// server may send.
    pub(crate) fn push<E: From<Malformed>>(
        &mut self,
        mut chunk: &[u8],
        mut each: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        while !self.partial.is_empty() {
            let wanted = needed(&self.partial)?.unwrap_or(PREFIX_BYTES);
            let missing = wanted - self.partial.len();
            let (now, rest) = chunk.split_at(missing.min(chunk.len()));
            self.partial.extend_from_slice(now);
            chunk = rest;
            match needed(&self.partial)? {
                Some(length) if length == self.partial.len() => {
                    each(&self.partial[PREFIX_BYTES..])?;
                    self.partial.clear();
                }
                _ if chunk.is_empty() => return Ok(()),
                _ => {}
            }
        }
        while let Some(length) = needed(chunk)?.filter(|length| *length <= chunk.len()) {
            let (message, rest) = chunk.split_at(length);
            each(&message[PREFIX_BYTES..])?;
            chunk = rest;
        }
        self.partial.extend_from_slice(chunk);
        Ok(())
    }
}

/// Length of the message at the beginning of `bytes`, with its prefix; `None` if the prefix is
/// incomplete.
#[inline]
fn needed(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
    let Some([compressed, length @ ..]) = bytes.first_chunk::<PREFIX_BYTES>() else { return Ok(None) };
    match usize::try_from(u32::from_be_bytes(*length)) {
        Ok(length) if *compressed == 0 && length <= MESSAGE_BYTES_MAX => Ok(Some(PREFIX_BYTES + length)),
        _ => Err(Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::workload::frame;
    use super::*;
    use prost::Message;

    use headwater_proto::pb::etcdserverpb::{ResponseHeader, WatchResponse};
    use headwater_proto::pb::mvccpb::{self, KeyValue};

    fn event(revision: i64, value: &'static str) -> mvccpb::Event {
        let kv = KeyValue {
            key: "watch/17".into(),
            create_revision: 1,
            mod_revision: revision,
            version: 300,
            value: value.into(),
            lease: -1,
        };
        mvccpb::Event { kv: Some(kv.clone()), prev_kv: Some(kv), ..Default::default() }
    }

    fn responses() -> Vec<WatchResponse> {
        let header = Some(ResponseHeader { cluster_id: u64::MAX, revision: 7, ..Default::default() });
        let response = |watch_id, events| WatchResponse { header, watch_id, events, ..Default::default() };
        vec![
            WatchResponse { created: true, ..response(0, vec![]) },
            response(300, vec![event(5, "one"), event(1 << 40, "")]),
            WatchResponse {
                canceled: true,
                compact_revision: 9,
                cancel_reason: "why".into(),
                fragment: true,
                ..response(-1, vec![])
            },
            response(1, vec![event(6, "x"); 40]),
            WatchResponse::default(),
        ]
    }

    /// A response with everything that matters, owned.
    type Plain = (i64, bool, bool, i64, String, Vec<(u64, Vec<u8>)>);

    fn plain(response: &WatchResponse) -> Plain {
        let pairs = response.events.iter().filter_map(|event| event.kv.as_ref());
        let events = pairs.map(|kv| (kv.mod_revision.cast_unsigned(), kv.value.to_vec())).collect();
        let WatchResponse { watch_id, created, canceled, compact_revision, ref cancel_reason, .. } = *response;
        (watch_id, created, canceled, compact_revision, cancel_reason.clone(), events)
    }

    fn read(message: &[u8]) -> Plain {
        let response = Response::read(message).unwrap();
        let events = response.events().map(|event| event.map(|e| (e.revision, e.value.to_vec())).unwrap());
        (
            response.watch_id,
            response.is_created,
            response.is_canceled,
            response.compact_revision,
            String::from_utf8(response.cancel_reason.to_vec()).unwrap(),
            events.collect(),
        )
    }

    #[test]
    fn messages_are_read_however_they_are_cut() {
        let wanted: Vec<Plain> = responses().iter().map(plain).collect();
        let stream: Vec<u8> = responses().iter().flat_map(frame).collect();
        for size in (1..40).chain([997, stream.len()]) {
            let mut splitter = Splitter::default();
            let mut found = Vec::new();
            for chunk in stream.chunks(size) {
                let keep = |message: &[u8]| {
                    found.push(read(message));
                    Ok::<_, Malformed>(())
                };
                splitter.push(chunk, keep).unwrap();
            }
            assert_eq!(found, wanted, "frames of {size}");
            assert!(splitter.partial.is_empty());
        }
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let ignore = |_: &[u8]| Ok::<_, Malformed>(());
        // Compressed, and far too long.
        for bytes in [[1, 0, 0, 0, 0], [0, 0xff, 0, 0, 0]] {
            assert_eq!(Splitter::default().push(&bytes, ignore), Err(Malformed));
        }
        assert!(Response::read(&[0x12, 9]).is_err());
        // An event without a pair.
        let response = WatchResponse { events: vec![mvccpb::Event::default()], ..Default::default() };
        let bytes = frame(&response);
        let events: Vec<_> = Response::read(&bytes[PREFIX_BYTES..]).unwrap().events().collect();
        assert_eq!(events, [Err(Malformed)]);
        // Something else after the events.
        let mut bytes = WatchResponse { events: vec![event(5, "one")], ..Default::default() }.encode_to_vec();
        bytes.extend(WatchResponse { canceled: true, ..Default::default() }.encode_to_vec());
        let events: Vec<_> = Response::read(&bytes).unwrap().events().collect();
        assert_eq!(events, [Ok(Event { revision: 5, value: b"one" }), Err(Malformed)]);
    }

    #[test]
    fn reading_ends_with_the_first_objection() {
        let stream: Vec<u8> = responses().iter().flat_map(frame).collect();
        let mut count = 0;
        let outcome = Splitter::default().push(&stream, |_| {
            count += 1;
            if count == 2 { Err(Malformed) } else { Ok(()) }
        });
        assert_eq!((outcome, count), (Err(Malformed), 2));
    }
}
