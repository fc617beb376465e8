//! The body of an answer: charged to the account of unread answers (`Answers`) until it is sent or
//! dropped, and passed on in parts. Answers of members to each other pass unchanged, without a
//! charge.
//!
//! A connection keeps every part until it is sent. So a large answer is copied out part by part:
//! when its stream is cut, the rest is dropped at once. A body that states how much it still yields
//! holds it in memory, and is charged with it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};

use super::task::{self, BodyPoll};
use super::{Connection, KeptPart, OpenRequest};
use headwater_node::Charge;
use headwater_types::limits::ANSWER_CHUNK_BYTES_MAX;

/// Parts below this size are not charged, bytes: the bound on streams of a connection bounds them,
/// too.
const UNCHARGED_BYTES: usize = 1024;

/// An answer on its way to a connection.
#[derive(Debug)]
pub(crate) struct AnswerBody<B> {
    /// The body of the answer. `None` for the answer to a request that the watchdog refuses.
    body: Option<B>,
    /// Counts the request as open until the answer is sent or dropped. `None` if `body` is `None`.
    open: Option<OpenRequest>,
    /// The unsent rest of a large part, with its charge.
    rest: Option<(Bytes, Charge)>,
    /// The charge for what `body` holds of a message that it has begun to yield.
    waiting: Option<Charge>,
}

impl<B> AnswerBody<B> {
    pub(super) fn new(body: B, open: OpenRequest) -> Self {
        Self { body: Some(body), open: Some(open), rest: None, waiting: None }
    }

    /// A body without content.
    pub(super) fn empty() -> Self {
        Self { body: None, open: None, rest: None, waiting: None }
    }
}

/// Takes at most [`ANSWER_CHUNK_BYTES_MAX`] bytes off the rest of a part. `None` if there is no
/// rest; the last take leaves none.
fn next_part(all: &mut Option<(Bytes, Charge)>, connection: &Arc<Connection>) -> Option<Bytes> {
    let (rest, charge) = all.as_mut()?;
    let length = rest.len().min(ANSWER_CHUNK_BYTES_MAX);
    let part = Bytes::copy_from_slice(&rest[..length]);
    rest.advance(length);
    let charge = charge.split(length);
    if rest.is_empty() {
        *all = None;
    }
    Some(charged(part, charge, connection))
}

/// The part as bytes whose drop releases `charge`. Until then the connection counts it as kept.
fn charged(part: Bytes, charge: Charge, connection: &Arc<Connection>) -> Bytes {
    Bytes::from_owner(ChargedPart { part, _charge: charge, _kept: connection.keep() })
}

struct ChargedPart {
    part: Bytes,
    _charge: Charge,
    _kept: KeptPart,
}

impl AsRef<[u8]> for ChargedPart {
    fn as_ref(&self) -> &[u8] {
        &self.part
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for AnswerBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = &mut *self;
        let (Some(body), Some(open)) = (&mut this.body, &this.open) else { return Poll::Ready(None) };
        let connection = &open.connection;
        let Some(answers) = &connection.watchdog.answers else { return Pin::new(body).poll_frame(cx) };
        if let Some(part) = next_part(&mut this.rest, connection) {
            task::note(BodyPoll::Passed);
            return Poll::Ready(Some(Ok(Frame::data(part))));
        }
        task::note(BodyPoll::Waits);
        let frame = match ready!(Pin::new(&mut *body).poll_frame(cx)) {
            Some(Ok(frame)) => frame,
            other => return Poll::Ready(other),
        };
        let data = match frame.into_data() {
            Ok(data) => data,
            Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
        };
        task::note(BodyPoll::Passed);
        this.waiting = None;
        let waiting = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
        if waiting >= UNCHARGED_BYTES {
            this.waiting = Some(answers.charge(waiting));
        }
        let part = match data.len() {
            ..UNCHARGED_BYTES => data,
            length @ ..=ANSWER_CHUNK_BYTES_MAX => charged(data, answers.charge(length), connection),
            length => {
                this.rest = Some((data, answers.charge(length)));
                next_part(&mut this.rest, connection).expect("the rest has just been set")
            }
        };
        Poll::Ready(Some(Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_none() && self.body.as_ref().is_none_or(B::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), B::size_hint);
        if let Some((rest, _)) = &self.rest {
            let length = rest.len() as u64;
            if let Some(upper) = hint.upper() {
                hint.set_upper(upper + length);
            }
            hint.set_lower(hint.lower() + length);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::poll_fn;

    use super::*;
    use crate::watchdog::Watchdog;
    use headwater_node::{Answers, LimitCounters};

    /// A body that yields the given parts.
    struct Parts(Vec<Bytes>);

    impl Body for Parts {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Ready(self.0.pop().map(|part| Ok(Frame::data(part))))
        }

        fn is_end_stream(&self) -> bool {
            self.0.is_empty()
        }

        fn size_hint(&self) -> SizeHint {
            SizeHint::with_exact(self.0.iter().map(|part| part.len() as u64).sum())
        }
    }

    /// A body of these parts, the last one first, with its account.
    fn body_of(parts: Vec<Bytes>) -> (AnswerBody<Parts>, Arc<Answers>) {
        let limit_counters = LimitCounters::default();
        let answers = Arc::new(Answers::new(limit_counters.clone()));
        let connection = Connection::new(&Watchdog::of_clients(Arc::clone(&answers), limit_counters), false);
        (AnswerBody::new(Parts(parts), OpenRequest::begin(&connection, || false).unwrap()), answers)
    }

    async fn next(body: &mut AnswerBody<Parts>) -> Option<Bytes> {
        let frame = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await?;
        frame.unwrap().into_data().ok()
    }

    #[tokio::test]
    async fn an_answer_is_whole_in_parts_and_charged_until_the_last_is_dropped() {
        let whole: Vec<u8> = (0..2 * ANSWER_CHUNK_BYTES_MAX + 7).map(|n| n as u8).collect();
        let (mut body, answers) = body_of(vec![whole.clone().into()]);
        let mut kept = Vec::new();
        while !body.is_end_stream() {
            kept.push(next(&mut body).await.unwrap());
            assert_eq!(answers.used(), whole.len());
        }
        assert!(next(&mut body).await.is_none());
        assert_eq!(kept.iter().map(Bytes::len).max(), Some(ANSWER_CHUNK_BYTES_MAX));
        assert_eq!(kept.concat(), whole);
        kept.truncate(1);
        assert_eq!(answers.used(), ANSWER_CHUNK_BYTES_MAX);
        kept.clear();
        assert_eq!(answers.used(), 0);
    }

    #[tokio::test]
    async fn a_dropped_answer_leaves_only_the_parts_that_were_passed_on() {
        let (mut body, answers) = body_of(vec![vec![0; 10 * ANSWER_CHUNK_BYTES_MAX].into()]);
        let first = next(&mut body).await.unwrap();
        drop(body);
        assert_eq!(answers.used(), first.len());
    }

    #[tokio::test]
    async fn what_a_body_holds_behind_a_small_part_is_charged() {
        let (small, large) = (Bytes::from_static(b"head"), Bytes::from(vec![0; ANSWER_CHUNK_BYTES_MAX]));
        let parts = || vec![large.clone(), small.clone()];
        let (mut body, answers) = body_of(parts());
        assert_eq!(next(&mut body).await.unwrap(), small);
        assert_eq!(answers.used(), large.len());
        let part = next(&mut body).await.unwrap();
        assert_eq!((part.as_ptr(), answers.used()), (large.as_ptr(), large.len()));
        drop(part);
        assert_eq!(answers.used(), 0);
        let (mut body, answers) = body_of(parts());
        next(&mut body).await.unwrap();
        drop(body);
        assert_eq!(answers.used(), 0);
    }

    #[tokio::test]
    async fn small_parts_pass_as_they_are() {
        let part = Bytes::from(vec![0; UNCHARGED_BYTES - 1]);
        let (mut body, answers) = body_of(vec![part.clone()]);
        assert_eq!(next(&mut body).await.unwrap().as_ptr(), part.as_ptr());
        assert_eq!(answers.used(), 0);
    }
}
