//! The task of one HTTP/2 stream. hyper polls the body of an answer only while the reader takes
//! data, so a body cannot notice a stalled reader. The task that polls the stream notices it, and
//! ends. That drops the stream, which resets it and frees its memory. Only streams whose answers
//! are charged are watched.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::Executor;
use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep};

use super::Watchdog;
use headwater_node::Limit;
use headwater_types::limits::{STALLED_READER_TIMEOUT, STALLED_READER_TIMEOUT_MIN};

/// The result of the last poll of an answer's body within one poll of its task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyPoll {
    /// The body yielded data, which may now wait for the reader.
    Passed,
    /// The body has no data now, or has ended: the reader has taken all of it.
    Waits,
}

thread_local! {
    /// The last result of the body in the current poll of the current task; `None` if that poll has
    /// not polled the body.
    static LAST: Cell<Option<BodyPoll>> = const { Cell::new(None) };
}

/// Records the result of a poll of the body for the task that is being polled on this thread.
pub(super) fn note(body_poll: BodyPoll) {
    LAST.set(Some(body_poll));
}

/// Spawns a task for each HTTP/2 stream of the connections of a port.
#[derive(Clone, Debug)]
pub(crate) struct StreamExecutor {
    watchdog: Arc<Watchdog>,
}

impl StreamExecutor {
    pub(crate) fn new(watchdog: &Arc<Watchdog>) -> Self {
        Self { watchdog: Arc::clone(watchdog) }
    }

    fn task<F>(&self, stream: F) -> StreamTask<F> {
        StreamTask { stream, waits_since: None, timer: None, watchdog: Arc::clone(&self.watchdog) }
    }
}

impl<F> Executor<F> for StreamExecutor
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, stream: F) {
        tokio::spawn(self.task(stream));
    }
}

pin_project! {
    // A stream that ends when its reader has stalled.
    struct StreamTask<F> {
        #[pin]
        stream: F,
        // Time of the last data that waits for the reader; `None` if none waits.
        waits_since: Option<Instant>,
        timer: Option<Pin<Box<Sleep>>>,
        watchdog: Arc<Watchdog>,
    }
}

impl<F: Future> Future for StreamTask<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        LAST.set(None);
        if this.stream.poll(cx).is_ready() {
            return Poll::Ready(());
        }
        match LAST.take() {
            Some(BodyPoll::Passed) => *this.waits_since = Some(Instant::now()),
            Some(BodyPoll::Waits) => (*this.waits_since, *this.timer) = (None, None),
            None => {}
        }
        let Some(since) = *this.waits_since else { return Poll::Pending };
        let timer = this.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(STALLED_READER_TIMEOUT_MIN)));
        while timer.as_mut().poll(cx).is_ready() {
            let stalled = since.elapsed();
            let is_scarce = this.watchdog.answers.as_ref().is_some_and(|answers| answers.is_scarce());
            if is_too_long(stalled, is_scarce) {
                this.watchdog.limit_counters.count(Limit::StalledReader);
                tracing::debug!(?stalled, "reset a stream: its reader takes nothing");
                return Poll::Ready(());
            }
            timer.as_mut().reset(Instant::now() + STALLED_READER_TIMEOUT_MIN);
        }
        Poll::Pending
    }
}

fn is_too_long(stalled: Duration, is_scarce: bool) -> bool {
    stalled >= if is_scarce { STALLED_READER_TIMEOUT_MIN } else { STALLED_READER_TIMEOUT }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;
    use headwater_node::{Answers, LimitCounters};
    use headwater_types::limits::UNREAD_ANSWERS_BYTES_MAX;

    fn executor() -> StreamExecutor {
        let limit_counters = LimitCounters::default();
        StreamExecutor::new(&Watchdog::of_clients(Arc::new(Answers::new(limit_counters.clone())), limit_counters))
    }

    /// A stream whose body did `body_poll` once, and is not polled since.
    fn stuck_after(body_poll: BodyPoll) -> impl Future<Output = ()> {
        let mut body_poll = Some(body_poll);
        poll_fn(move |_| {
            if let Some(body_poll) = body_poll.take() {
                note(body_poll);
            }
            Poll::Pending
        })
    }

    /// Time until the task ends; `None` if it goes on for an hour.
    async fn ends_after(executor: &StreamExecutor, body_poll: BodyPoll) -> Option<Duration> {
        let began = Instant::now();
        let task = executor.task(stuck_after(body_poll));
        tokio::time::timeout(Duration::from_secs(3600), task).await.is_ok().then(|| began.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_is_cut_when_data_waits_too_long() {
        let executor = executor();
        let ended = ends_after(&executor, BodyPoll::Passed).await.unwrap();
        assert!((STALLED_READER_TIMEOUT..STALLED_READER_TIMEOUT + STALLED_READER_TIMEOUT_MIN).contains(&ended));
        assert_eq!(executor.watchdog.limit_counters.counter(Limit::StalledReader).get(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_cut_sooner_while_answers_are_scarce() {
        let executor = executor();
        let _scarce = executor.watchdog.answers.as_ref().unwrap().charge(UNREAD_ANSWERS_BYTES_MAX / 2);
        let ended = ends_after(&executor, BodyPoll::Passed).await.unwrap();
        assert!((STALLED_READER_TIMEOUT_MIN..2 * STALLED_READER_TIMEOUT_MIN).contains(&ended), "{ended:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_has_nothing_to_say_goes_on() {
        let executor = executor();
        assert_eq!(ends_after(&executor, BodyPoll::Waits).await, None);
        assert_eq!(executor.watchdog.limit_counters.counter(Limit::StalledReader).get(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn progress_begins_the_time_anew() {
        let executor = executor();
        let mut parts = 0;
        let mut pause = Box::pin(tokio::time::sleep(Duration::ZERO));
        let slow = poll_fn(move |cx| {
            while pause.as_mut().poll(cx).is_ready() {
                note(BodyPoll::Passed);
                parts += 1;
                if parts == 5 {
                    return Poll::Ready(());
                }
                pause.as_mut().reset(Instant::now() + STALLED_READER_TIMEOUT - Duration::from_secs(1));
            }
            Poll::Pending
        });
        executor.task(slow).await;
        assert_eq!(executor.watchdog.limit_counters.counter(Limit::StalledReader).get(), 0);
    }
}
