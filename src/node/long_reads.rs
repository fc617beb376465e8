//! Reads that may take long, on threads that may block.
//!
//! Owns the bounds on waiting and running reads, the turns of clients, and the cancellation of
//! abandoned reads. Invariants: a read holds its permit until its thread has finished it, so that
//! clients that go away cannot take all threads from the node's own work; one client never holds
//! more permits than its own bound.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::ClientKey;
use super::error::NodeError;
use super::fair_queue::{FairQueue, Ticket};

/// Bounds on reads, count.
#[derive(Clone, Copy, Debug)]
pub(super) struct LongReadBounds {
    /// Most reads that run or wait. One more read refuses the newest waiting read of the client
    /// with the most of them, which may be the new one.
    pub(super) reads_max: usize,
    /// Most reads that run at once.
    pub(super) running_max: usize,
    /// Most reads of one client that run at once.
    pub(super) running_of_client_max: usize,
}

/// The permits by which long reads run on blocking threads, and the queue of reads that wait for
/// one.
pub(super) struct LongReads {
    shared: Arc<Shared>,
}

struct Shared {
    bounds: LongReadBounds,
    state: Mutex<State>,
}

struct State {
    running: usize,
    /// Running reads by client; clients without any are absent.
    running_of: HashMap<ClientKey, usize>,
    /// The senders by which waiting reads get their permits. Each read costs its client one turn.
    waiting: FairQueue<oneshot::Sender<Turn>>,
}

/// A permit to run; released by drop.
pub(super) struct Turn {
    /// The bounds that the permit counts against. `None` if drop must not release the permit: that
    /// is done already, or `pass_on` does it.
    shared: Option<Arc<Shared>>,
    client: ClientKey,
}

/// A slot among the waiting reads, until it is dropped.
struct Waiting<'a> {
    shared: &'a Shared,
    client: ClientKey,
    ticket: Ticket,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let abandoned = self.shared.state.lock().waiting.remove(self.client, self.ticket);
        drop(abandoned);
    }
}

impl Shared {
    fn may_run(&self, state: &State, client: ClientKey) -> bool {
        let of_client = state.running_of.get(&client).copied().unwrap_or(0);
        state.running < self.bounds.running_max && of_client < self.bounds.running_of_client_max
    }

    /// Counts a running read.
    fn begin(self: &Arc<Self>, state: &mut State, client: ClientKey) -> Turn {
        state.running += 1;
        *state.running_of.entry(client).or_insert(0) += 1;
        Turn { shared: Some(Arc::clone(self)), client }
    }

    /// Counts the end of a read.
    fn end(&self, state: &mut State, client: ClientKey) {
        state.running -= 1;
        if let Some(count) = state.running_of.get_mut(&client) {
            *count -= 1;
            if *count == 0 {
                state.running_of.remove(&client);
            }
        }
    }

    /// Ends a read of `client`, and passes its permit on to a waiting one.
    fn pass_on(self: &Arc<Self>, client: ClientKey) {
        let mut ended = Some(client);
        while let Some(client) = ended.take() {
            let (wake_up, turn) = {
                let mut state = self.state.lock();
                self.end(&mut state, client);
                let State { running_of, waiting, .. } = &mut *state;
                let most = self.bounds.running_of_client_max;
                let may = |client: ClientKey| running_of.get(&client).is_none_or(|count| *count < most);
                let Some((client, wake_up)) = waiting.pop_of(may) else { return };
                (wake_up, self.begin(&mut state, client))
            };
            if let Err(mut turn) = wake_up.send(turn) {
                // The reader is gone. Dropped as it is, the permit would call this function again.
                turn.shared = None;
                ended = Some(turn.client);
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.take() {
            shared.pass_on(self.client);
        }
    }
}

impl LongReads {
    pub(super) fn new(bounds: LongReadBounds) -> Self {
        let state = State { running: 0, running_of: HashMap::new(), waiting: FairQueue::new(1) };
        Self { shared: Arc::new(Shared { bounds, state: Mutex::new(state) }) }
    }

    /// A permit to run at once.
    ///
    /// # Errors
    ///
    /// [`NodeError::TooManyRequests`] if too many reads run, in all or of the client, or if any
    /// read waits.
    pub(super) fn turn_now(&self, client: ClientKey) -> Result<Turn, NodeError> {
        let mut state = self.shared.state.lock();
        match self.shared.may_run(&state, client) && state.waiting.is_empty() {
            true => Ok(self.shared.begin(&mut state, client)),
            false => Err(NodeError::TooManyRequests),
        }
    }

    /// Waits for a permit to run, clients in turn.
    ///
    /// # Errors
    ///
    /// [`NodeError::TooManyRequests`] beyond the bound, at once or when a client with fewer reads
    /// needs the slot; [`NodeError::Timeout`] after `deadline`.
    pub(super) async fn turn(&self, client: ClientKey, deadline: Instant) -> Result<Turn, NodeError> {
        let (waiting, granted, refused) = {
            let mut state = self.shared.state.lock();
            // A client at its bound may wait while others run.
            if self.shared.may_run(&state, client) {
                return Ok(self.shared.begin(&mut state, client));
            }
            let (wake_up, granted) = oneshot::channel();
            let ticket = state.waiting.push(client, 1, wake_up);
            let is_over = state.running + state.waiting.len() > self.shared.bounds.reads_max;
            let refused = is_over.then(|| state.waiting.pop_newest_of_longest(client));
            (Waiting { shared: &self.shared, client, ticket }, granted, refused)
        };
        drop(refused);
        let granted = tokio::time::timeout_at(deadline.into(), granted).await;
        drop(waiting);
        match granted {
            Ok(Ok(turn)) => Ok(turn),
            Ok(Err(_)) => Err(NodeError::TooManyRequests),
            Err(_) => Err(NodeError::Timeout),
        }
    }

    /// Runs `work` on a blocking thread. If the caller is dropped or `deadline` passes before
    /// `work` begins, it never begins. Work that has begun runs to its end, also if the caller is
    /// gone.
    ///
    /// # Errors
    ///
    /// Those of [`LongReads::turn`] and of `work`; [`NodeError::Timeout`] if `deadline` passes
    /// before the end of `work`; [`NodeError::Stopped`] if `work` panics.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        client: ClientKey,
        deadline: Instant,
        work: impl FnOnce() -> Result<T, NodeError> + Send + 'static,
    ) -> Result<T, NodeError> {
        let turn = self.turn(client, deadline).await?;
        let mut reading = Reading(tokio::task::spawn_blocking(move || {
            let _turn = turn;
            work()
        }));
        match tokio::time::timeout_at(deadline.into(), &mut reading.0).await {
            Ok(Ok(read)) => read,
            Ok(Err(_)) => Err(NodeError::Stopped),
            Err(_) => Err(NodeError::Timeout),
        }
    }
}

/// A read with a waiting caller. Its drop cancels work that still waits for a thread; work that has
/// begun continues.
struct Reading<T>(JoinHandle<T>);

impl<T> Drop for Reading<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::time::Duration;

    use futures::FutureExt;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);
    const CLIENT: ClientKey = ClientKey::Named(0);

    fn modest(number: u64) -> ClientKey {
        ClientKey::Named(number + 1)
    }

    fn bounded(reads_max: usize, running_max: usize, running_of_client_max: usize) -> LongReads {
        LongReads::new(LongReadBounds { reads_max, running_max, running_of_client_max })
    }

    /// Runs `test` on a runtime with one blocking thread.
    fn with_one_thread(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .max_blocking_threads(1)
            .build()
            .unwrap()
            .block_on(test);
    }

    /// A read that blocks until the sender is dropped.
    fn stuck() -> (mpsc::Sender<()>, impl FnOnce() -> Result<(), NodeError> + Send + 'static) {
        let (release, released) = mpsc::channel::<()>();
        (release, move || {
            assert!(released.recv().is_err());
            Ok(())
        })
    }

    #[test]
    fn one_beyond_the_limit_is_refused_at_once() {
        with_one_thread(async {
            let reads = bounded(2, 1, 1);
            let deadline = Instant::now() + LONG;
            let (release, work) = stuck();
            let third = async {
                let refused = reads.run(CLIENT, deadline, || Ok(())).await;
                drop(release);
                refused
            };
            let results =
                tokio::join!(biased; reads.run(CLIENT, deadline, work), reads.run(CLIENT, deadline, || Ok(())), third);
            assert_eq!(results, (Ok(()), Ok(()), Err(NodeError::TooManyRequests)));
            assert_eq!(reads.run(CLIENT, deadline, || Ok(7)).await, Ok(7), "there is room again");
        });
    }

    #[test]
    fn reads_leave_threads_for_others() {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().max_blocking_threads(2).build().unwrap();
        runtime.block_on(async {
            let reads = bounded(8, 1, 1);
            let deadline = Instant::now() + LONG;
            let (release, work) = stuck();
            let other = async {
                let waits = reads.run(CLIENT, Instant::now() + Duration::from_millis(1), || Ok(()));
                assert_eq!(waits.await, Err(NodeError::Timeout), "there is one turn");
                let own = tokio::time::timeout(LONG, tokio::task::spawn_blocking(|| 7)).await;
                drop(release);
                own.unwrap().unwrap()
            };
            let (first, own) = tokio::join!(biased; reads.run(CLIENT, deadline, work), other);
            assert_eq!((first, own), (Ok(()), 7));
        });
    }

    #[test]
    fn what_has_not_begun_when_nobody_waits_any_more_never_does() {
        with_one_thread(async {
            let reads = bounded(8, 8, 8);
            let deadline = Instant::now() + LONG;
            let begun = Arc::new(AtomicUsize::new(0));
            let count = || {
                let begun = Arc::clone(&begun);
                move || Ok(begun.fetch_add(1, Ordering::Relaxed))
            };
            let (release, work) = stuck();
            let others = async {
                let late = reads.run(CLIENT, Instant::now() + Duration::from_millis(1), count()).await;
                assert_eq!(late, Err(NodeError::Timeout));
                let gave_up =
                    tokio::time::timeout(Duration::from_millis(1), reads.run(CLIENT, deadline, count())).await;
                assert!(gave_up.is_err());
                drop(release);
            };
            let (first, ()) = tokio::join!(biased; reads.run(CLIENT, deadline, work), others);
            assert_eq!(first, Ok(()));
            // The thread takes waiting work in order: the others ran before this one.
            assert_eq!(reads.run(CLIENT, deadline, count()).await, Ok(0));
            let state = reads.shared.state.lock();
            assert!(state.waiting.is_empty() && state.running == 0 && state.running_of.is_empty());
        });
    }

    /// Polls `turn` once: the request is in the queue then.
    fn enqueue<'a>(
        reads: &'a LongReads,
        client: ClientKey,
    ) -> std::pin::Pin<Box<dyn Future<Output = Result<Turn, NodeError>> + 'a>> {
        let mut turn: std::pin::Pin<Box<dyn Future<Output = _>>> = Box::pin(reads.turn(client, Instant::now() + LONG));
        assert!(turn.as_mut().now_or_never().is_none(), "it waits");
        turn
    }

    #[tokio::test]
    async fn fifty_modest_clients_wait_for_one_read_of_a_greedy_one_each_round() {
        let reads = bounded(10_000, 1, 1);
        let mut running = reads.turn_now(CLIENT).unwrap();
        let order = std::cell::RefCell::new(Vec::new());
        let mut waiting: futures::stream::FuturesUnordered<_> = (0..2000)
            .map(|_| CLIENT)
            .chain((0..50).map(modest))
            .map(|client| {
                let (turn, order) = (enqueue(&reads, client), &order);
                async move {
                    let turn = turn.await.unwrap();
                    order.borrow_mut().push(client);
                    turn
                }
            })
            .collect();
        for _ in 0..60 {
            drop(running);
            running = futures::StreamExt::next(&mut waiting).await.unwrap();
        }
        drop(waiting);
        let order = order.into_inner();
        let last = order.iter().rposition(|client| *client != CLIENT).unwrap();
        assert_eq!(last, 50, "one of the greedy client is before the last of the others");
        drop(running);
        assert!(reads.shared.state.lock().waiting.is_empty(), "abandoned reads do not wait");
    }

    #[tokio::test]
    async fn one_client_leaves_permits_to_others() {
        let reads = bounded(10, 4, 3);
        let held = [(); 3].map(|()| reads.turn_now(CLIENT).unwrap());
        assert_eq!(reads.turn_now(CLIENT).err(), Some(NodeError::TooManyRequests));
        let next = enqueue(&reads, CLIENT);
        let other = reads.turn(modest(0), Instant::now() + LONG).await.unwrap();
        assert_eq!(reads.turn_now(modest(1)).err(), Some(NodeError::TooManyRequests), "all permits are taken");
        drop(held);
        next.await.unwrap();
        drop(other);
    }

    #[tokio::test]
    async fn a_full_queue_refuses_the_client_with_the_most() {
        let reads = bounded(4, 1, 1);
        let running = reads.turn_now(CLIENT).unwrap();
        let [first, second, third] = [(); 3].map(|()| enqueue(&reads, CLIENT));
        let fifth = reads.turn(CLIENT, Instant::now() + LONG).await;
        assert_eq!(fifth.err(), Some(NodeError::TooManyRequests), "one past the bound");
        let other = enqueue(&reads, modest(0));
        assert_eq!(third.await.err(), Some(NodeError::TooManyRequests), "it makes room for the other client");
        drop(running);
        drop(first.await.unwrap());
        drop(other.await.unwrap());
        drop(second.await.unwrap());
    }
}
