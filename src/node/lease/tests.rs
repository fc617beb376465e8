//! Lease keepers on a state machine without consensus: the test moves leadership, confirmations and
//! time by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::sync::watch;

use super::clock::{LeaseClock, ManualClock};
use super::keeper::{LeaseKeeper, run};
use super::quorum::{Loaded, Quorum};
use crate::{NodeError, Unanswered};
use headwater_raft::{Leading, Timing};
use headwater_storage::{AppliedState, StateOptions, StateStore};
use headwater_types::limits::LEASE_EXPIRIES_MAX;
use headwater_types::{
    Command, Lease, LeaseAnswer, LeaseGrant, LeaseId, LeaseQuestion, LeaseRevoke, LogIndex, NodeId, Outcome, Proposal,
    Term,
};

const GRACE: Duration = Duration::from_secs(1);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Runs every task until it is idle.
async fn settle() {
    for _ in 0..500 {
        tokio::task::yield_now().await;
    }
}

async fn until(why: &str, condition: impl Fn() -> bool) {
    let give_up = Instant::now() + seconds(30);
    while !condition() {
        assert!(Instant::now() < give_up, "waited in vain: {why}");
        tokio::task::yield_now().await;
    }
}

/// The state that all members here share, with the index of its last command. Also the leader, the
/// faults that the test sets, and counts of what keepers did.
struct World {
    store: StateStore,
    _dir: TempDir,
    index: Mutex<u64>,
    leading: Mutex<Leading>,
    keepers: Mutex<Vec<Arc<LeaseKeeper>>>,
    /// Commands that keepers proposed.
    proposed: AtomicUsize,
    /// Expiries among `proposed`.
    ends_proposed: AtomicUsize,
    expired: Mutex<Vec<LeaseId>>,
    under_way: AtomicUsize,
    under_way_max: AtomicUsize,
    stalled: watch::Sender<bool>,
    loading: watch::Sender<bool>,
    /// Number of the next proposals that fail, with an unknown result.
    fails: AtomicUsize,
    unconfirmed: AtomicBool,
    /// Number of confirmations of leadership that each member has asked for.
    asked: [AtomicUsize; 2],
}

impl World {
    fn commit(&self, command: Command) -> Outcome {
        let mut last = self.index.lock();
        *last += 1;
        let (index, term) = (LogIndex(*last), self.leading.lock().term);
        let db = self.store.current();
        let mut txn = self.store.begin(&db).unwrap();
        let outcome = headwater_fsm::apply(&mut txn, term, index, &Proposal::new(0, command.clone()), true).unwrap();
        txn.set_applied(&AppliedState { term, index, membership: None });
        let committed = txn.commit().unwrap();
        if let (Command::LeaseExpire(expire), Outcome::LeaseEnded { .. }) = (&command, &outcome) {
            self.expired.lock().push(expire.id);
        }
        for keeper in self.keepers.lock().iter() {
            keeper.leases_changed(&committed.leases);
        }
        outcome
    }

    fn grant(&self, id: i64, ttl_seconds: i64) {
        let outcome = self.commit(Command::LeaseGrant(LeaseGrant { id: LeaseId(id), ttl_seconds }));
        assert_eq!(outcome, Outcome::LeaseGranted { ttl_seconds });
    }

    fn lease(&self, id: i64) -> Option<Lease> {
        self.store.current().view().unwrap().lease(LeaseId(id)).unwrap()
    }

    fn proposed(&self) -> usize {
        self.proposed.load(Ordering::Relaxed)
    }

    fn asked(&self, member: NodeId) -> &AtomicUsize {
        &self.asked[member.get() as usize - 1]
    }
}

struct MemberQuorum {
    world: Arc<World>,
    me: NodeId,
}

impl Quorum for MemberQuorum {
    async fn confirm(&self) -> Option<Term> {
        self.world.asked(self.me).fetch_add(1, Ordering::Relaxed);
        tokio::task::yield_now().await;
        let leading = *self.world.leading.lock();
        let confirms = leading.leader == Some(self.me) && !self.world.unconfirmed.load(Ordering::Relaxed);
        confirms.then_some(leading.term)
    }

    async fn load(&self, term: Term) -> Option<Loaded> {
        let loaded = {
            let db = self.world.store.current();
            let view = db.view().unwrap();
            let mut leases = Vec::new();
            view.leases(|id, lease| leases.push((id, lease))).unwrap();
            Loaded { clock_ms: view.lease_clock().unwrap(), leases }
        };
        self.world.loading.subscribe().wait_for(|loading| !*loading).await.unwrap();
        (self.confirm().await == Some(term)).then_some(loaded)
    }

    async fn propose(&self, command: Command) -> Result<(), NodeError> {
        let world = &self.world;
        world.proposed.fetch_add(1, Ordering::Relaxed);
        world.ends_proposed.fetch_add(usize::from(matches!(command, Command::LeaseExpire(_))), Ordering::Relaxed);
        let now = world.under_way.fetch_add(1, Ordering::Relaxed) + 1;
        world.under_way_max.fetch_max(now, Ordering::Relaxed);
        world.stalled.subscribe().wait_for(|stalled| !*stalled).await.unwrap();
        world.under_way.fetch_sub(1, Ordering::Relaxed);
        if world.fails.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |fails| fails.checked_sub(1)).is_ok() {
            return Err(NodeError::Indeterminate(Unanswered::Timeout));
        }
        match world.commit(command) {
            Outcome::Refused(refusal) => Err(refusal.into()),
            _ => Ok(()),
        }
    }
}

struct Member {
    me: NodeId,
    keeper: Arc<LeaseKeeper>,
    clock: ManualClock,
    leadership: watch::Sender<Leading>,
}

impl Member {
    async fn ask(&self, question: LeaseQuestion) -> LeaseAnswer {
        tokio::time::timeout(seconds(30), self.keeper.answer(question)).await.expect("an answer in time")
    }

    async fn keep_alive(&self, id: i64) -> LeaseAnswer {
        self.ask(LeaseQuestion::KeepAlive(LeaseId(id))).await
    }

    /// The remaining time of a lease; `None` if there is no such lease.
    async fn left(&self, id: i64) -> Option<Duration> {
        match self.ask(LeaseQuestion::Remaining(LeaseId(id))).await {
            LeaseAnswer::Alive { remaining_ms, .. } => Some(Duration::from_millis(remaining_ms)),
            LeaseAnswer::Unknown => None,
            other => panic!("{other:?}"),
        }
    }

    /// Advances this member's clock by `time` in small steps, and runs every task after each step.
    async fn pass(&self, time: Duration) {
        let step = Duration::from_millis(500);
        let mut left = time;
        while left > Duration::ZERO {
            self.clock.advance(step.min(left));
            left = left.saturating_sub(step);
            settle().await;
        }
    }
}

fn alive(seconds: i64) -> LeaseAnswer {
    LeaseAnswer::Alive { granted_seconds: seconds, remaining_ms: seconds as u64 * 1000 }
}

struct Bed {
    world: Arc<World>,
    members: Vec<Member>,
}

impl Bed {
    /// Two members, of which the first one leads in term 1.
    async fn new() -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let options = StateOptions { block_cache_bytes: 1 << 20, ..StateOptions::default() };
        let store = StateStore::open(dir.path(), &options).unwrap();
        let world = Arc::new(World {
            store,
            _dir: dir,
            index: Mutex::default(),
            leading: Mutex::default(),
            keepers: Mutex::default(),
            proposed: AtomicUsize::new(0),
            ends_proposed: AtomicUsize::new(0),
            expired: Mutex::default(),
            under_way: AtomicUsize::new(0),
            under_way_max: AtomicUsize::new(0),
            stalled: watch::Sender::new(false),
            loading: watch::Sender::new(false),
            fails: AtomicUsize::new(0),
            unconfirmed: AtomicBool::new(false),
            asked: Default::default(),
        });
        let members = [1, 2].map(|id| {
            let (clock, hand) = LeaseClock::by_hand();
            // The members' clocks are unrelated.
            hand.advance(seconds(id * 1000));
            let keeper = LeaseKeeper::new(clock, GRACE);
            world.keepers.lock().push(Arc::clone(&keeper));
            let (leadership, leading) = watch::channel(Leading::default());
            let quorum = Arc::new(MemberQuorum { world: Arc::clone(&world), me: NodeId(id) });
            tokio::spawn(run(Arc::clone(&keeper), quorum, NodeId(id), leading));
            Member { me: NodeId(id), keeper, clock: hand, leadership }
        });
        let bed = Self { world, members: members.into() };
        bed.elect(0, 1);
        bed.wait_ready(0).await;
        bed
    }

    /// Elects a member without a notice to any keeper.
    fn elect_silently(&self, member: usize, term: u64) -> Leading {
        let leading = Leading { leader: Some(self.members[member].me), term: Term(term) };
        *self.world.leading.lock() = leading;
        leading
    }

    fn elect(&self, member: usize, term: u64) {
        let leading = self.elect_silently(member, term);
        for member in &self.members {
            member.leadership.send_replace(leading);
        }
    }

    async fn wait_ready(&self, member: usize) {
        until("the leader has its table", || self.members[member].keeper.count().is_some()).await;
    }

    fn expired(&self) -> Vec<i64> {
        self.world.expired.lock().iter().map(|id| id.get()).collect()
    }
}

#[tokio::test]
async fn a_lease_ends_when_its_time_is_up_not_earlier_and_once() {
    let bed = Bed::new().await;
    let leader = &bed.members[0];
    bed.world.grant(1, 4);
    bed.world.grant(2, 3);
    leader.clock.advance(Duration::from_millis(2999));
    settle().await;
    assert_eq!((bed.expired(), leader.left(2).await), (vec![], Some(Duration::from_millis(1))));
    leader.clock.advance(Duration::from_millis(1));
    until("the shorter one is gone", || bed.world.lease(2).is_none()).await;
    assert_eq!((leader.left(2).await, leader.left(1).await), (None, Some(seconds(1))));
    leader.clock.advance(seconds(1));
    until("the longer one is gone", || bed.world.lease(1).is_none()).await;
    leader.pass(seconds(20)).await;
    let ends = bed.world.ends_proposed.load(Ordering::Relaxed);
    assert_eq!((bed.expired(), ends), (vec![2, 1], 2), "each once");
    assert_eq!(leader.keep_alive(1).await, LeaseAnswer::Unknown);
}

#[tokio::test]
async fn a_lease_that_is_kept_alive_often_costs_the_log_nothing() {
    let bed = Bed::new().await;
    let leader = &bed.members[0];
    bed.world.grant(1, 6);
    for _ in 0..30 {
        leader.pass(Duration::from_millis(900)).await;
        assert_eq!(leader.keep_alive(1).await, alive(6));
    }
    assert_eq!(bed.world.proposed(), 0);
    leader.pass(Duration::from_millis(5999)).await;
    assert!(bed.world.lease(1).is_some());
    leader.pass(Duration::from_millis(1)).await;
    until("it is gone", || bed.world.lease(1).is_none()).await;
}

#[tokio::test]
async fn the_log_hears_of_quiet_leases_and_again_when_they_are_kept_alive_after_all() {
    let bed = Bed::new().await;
    let leader = &bed.members[0];
    bed.world.grant(1, 60);
    leader.pass(Duration::from_millis(900)).await;
    assert_eq!(bed.world.lease(1).unwrap().due_ms, None);
    leader.pass(seconds(3)).await;
    let due_ms = bed.world.lease(1).unwrap().due_ms.expect("the log was told");
    assert!((59_000..=60_000).contains(&due_ms), "{due_ms}");
    // A keep-alive is logged before the client gets its answer.
    assert_eq!(leader.keep_alive(1).await, alive(60));
    assert_eq!(bed.world.lease(1).unwrap().due_ms, None);
    assert_eq!(leader.left(1).await, Some(seconds(60)));
    let proposed = bed.world.proposed();
    assert_eq!(leader.keep_alive(1).await, alive(60));
    assert_eq!(bed.world.proposed(), proposed, "once is enough");
}

#[tokio::test]
async fn a_new_leader_goes_on_with_what_remains() {
    let bed = Bed::new().await;
    bed.world.grant(1, 60);
    bed.world.grant(2, 60);
    bed.members[0].pass(seconds(40)).await;
    assert_eq!(bed.members[0].keep_alive(2).await, alive(60));
    bed.elect(1, 2);
    bed.wait_ready(1).await;
    let (old, new) = (&bed.members[0], &bed.members[1]);
    let left = new.left(1).await.unwrap();
    // 20 s remain. The new leader may add the unlogged time and the grace, but subtract nothing.
    assert!(left >= seconds(20) && left <= seconds(20 + 2) + GRACE, "{left:?}");
    assert_eq!(new.left(2).await, Some(seconds(60) + GRACE), "it was kept alive: nobody else knows when");
    settle().await;
    assert_eq!(old.keep_alive(1).await, LeaseAnswer::NotLeader);
    new.pass(left - Duration::from_millis(1)).await;
    assert_eq!(bed.expired(), [] as [i64; 0]);
    new.pass(Duration::from_millis(1)).await;
    until("it is gone", || bed.world.lease(1).is_none()).await;
    assert_eq!(bed.expired(), [1]);
    // Leadership goes back: the times that the second leader measured are kept, too.
    bed.elect(0, 3);
    bed.wait_ready(0).await;
    let left_there = bed.members[0].left(2).await.unwrap();
    let truth = seconds(60) + GRACE - left;
    assert!(
        left_there >= truth.min(seconds(60)) && left_there <= truth + seconds(2) + GRACE,
        "{left_there:?} {truth:?}"
    );
}

#[tokio::test]
async fn a_leader_that_was_stopped_ends_nothing_before_it_knows_that_it_leads() {
    let bed = Bed::new().await;
    bed.world.grant(1, 10);
    // The first member is stopped. Another one is elected, and keeps the lease alive.
    let leading = bed.elect_silently(1, 2);
    bed.members[1].leadership.send_replace(leading);
    bed.wait_ready(1).await;
    assert_eq!(bed.members[1].keep_alive(1).await, alive(10));
    // The first member continues a long time later, and believes that it leads.
    let old = &bed.members[0];
    let asked = bed.world.asked(old.me);
    let before = asked.load(Ordering::Relaxed);
    old.clock.advance(seconds(1000));
    until("it has asked, was told nothing, and asks again", || asked.load(Ordering::Relaxed) >= before + 2).await;
    settle().await;
    assert_eq!((bed.expired(), bed.world.proposed()), (vec![], 0));
    let mut asking = Box::pin(old.keeper.answer(LeaseQuestion::KeepAlive(LeaseId(1))));
    assert!(futures::poll!(&mut asking).is_pending(), "the lease looks as if it had run out: nothing is promised");
    old.leadership.send_replace(leading);
    assert_eq!(asking.await, LeaseAnswer::NotLeader);
    assert_eq!(bed.members[1].left(1).await, Some(seconds(10) + GRACE));
}

#[tokio::test]
async fn what_is_not_confirmed_is_not_promised() {
    let bed = Bed::new().await;
    bed.world.grant(1, 10);
    bed.world.unconfirmed.store(true, Ordering::Relaxed);
    assert_eq!(bed.members[0].keep_alive(1).await, LeaseAnswer::NotLeader);
    assert_eq!(bed.members[0].keep_alive(7).await, LeaseAnswer::NotLeader, "nor that there is no such lease");
    bed.members[0].clock.advance(seconds(11));
    settle().await;
    assert_eq!(bed.world.proposed(), 0);
    bed.world.unconfirmed.store(false, Ordering::Relaxed);
    until("it ends as soon as somebody confirms", || bed.world.lease(1).is_none()).await;
    assert_eq!(bed.expired(), [1]);
}

#[tokio::test]
async fn a_lease_that_has_run_out_is_never_alive_again() {
    let bed = Bed::new().await;
    let leader = &bed.members[0];
    bed.world.grant(1, 4);
    bed.world.stalled.send_replace(true);
    leader.clock.advance(seconds(4));
    until("its end is proposed", || bed.world.proposed() == 1).await;
    let mut asking = Box::pin(leader.keeper.answer(LeaseQuestion::KeepAlive(LeaseId(1))));
    settle().await;
    assert!(futures::poll!(&mut asking).is_pending(), "whoever asks waits for the outcome");
    assert_eq!(leader.left(1).await, Some(Duration::ZERO));
    bed.world.stalled.send_replace(false);
    assert_eq!(asking.await, LeaseAnswer::Unknown);
    assert_eq!(bed.expired(), [1]);
}

#[tokio::test]
async fn an_end_of_which_nobody_knows_is_proposed_again() {
    let bed = Bed::new().await;
    let leader = &bed.members[0];
    bed.world.grant(1, 4);
    bed.world.fails.store(2, Ordering::Relaxed);
    leader.clock.advance(seconds(4));
    until("the first attempt", || bed.world.proposed() == 1).await;
    settle().await;
    let mut asking = Box::pin(leader.keeper.answer(LeaseQuestion::KeepAlive(LeaseId(1))));
    settle().await;
    assert!(futures::poll!(&mut asking).is_pending(), "the first attempt may still count");
    leader.pass(seconds(2)).await;
    assert_eq!(asking.await, LeaseAnswer::Unknown);
    assert_eq!((bed.expired(), bed.world.proposed()), (vec![1], 3));
}

#[tokio::test]
async fn an_id_that_is_granted_again_begins_anew() {
    let bed = Bed::new().await;
    let leader = &bed.members[0];
    bed.world.grant(1, 4);
    leader.clock.advance(seconds(3));
    bed.world.commit(Command::LeaseRevoke(LeaseRevoke { id: LeaseId(1) }));
    bed.world.grant(1, 4);
    leader.clock.advance(seconds(3));
    settle().await;
    assert_eq!((bed.expired(), leader.left(1).await), (vec![], Some(seconds(1))));
    leader.clock.advance(seconds(1));
    until("it is gone", || bed.world.lease(1).is_none()).await;
}

#[tokio::test]
async fn what_is_committed_while_a_term_begins_is_not_missed() {
    let bed = Bed::new().await;
    bed.world.grant(1, 10);
    bed.world.grant(2, 10);
    bed.world.loading.send_replace(true);
    bed.elect(1, 2);
    settle().await;
    // The view is taken, the table is not made yet.
    bed.world.grant(3, 10);
    bed.world.commit(Command::LeaseRevoke(LeaseRevoke { id: LeaseId(1) }));
    assert_eq!(bed.members[1].keep_alive(2).await, LeaseAnswer::NotLeader, "not before the table is there");
    bed.world.loading.send_replace(false);
    bed.wait_ready(1).await;
    assert_eq!(bed.members[1].keeper.count(), Some(2));
    assert_eq!((bed.members[1].left(1).await, bed.members[1].left(3).await), (None, Some(seconds(10))));
}

#[tokio::test]
async fn very_many_leases_end_together_and_each_once() {
    let bed = Bed::new().await;
    let leader = &bed.members[0];
    let count = 5000;
    for id in 1..=count {
        bed.world.grant(id, 4);
    }
    leader.clock.advance(seconds(4));
    until("all are gone", || bed.world.expired.lock().len() == count as usize).await;
    settle().await;
    let mut expired = bed.expired();
    expired.sort_unstable();
    assert_eq!(expired, (1..=count).collect::<Vec<_>>());
    assert_eq!((leader.keeper.count(), bed.world.proposed()), (Some(0), count as usize));
    assert!(bed.world.under_way_max.load(Ordering::Relaxed) <= LEASE_EXPIRIES_MAX);
}

#[tokio::test]
async fn very_many_quiet_leases_are_told_in_few_commands() {
    let bed = Bed::new().await;
    let leader = &bed.members[0];
    for id in 1..=2500 {
        bed.world.grant(id, 600);
    }
    leader.pass(Duration::from_millis(1500)).await;
    until("all are told", || (1..=2500).all(|id| bed.world.lease(id).is_some_and(|lease| lease.due_ms.is_some())))
        .await;
    assert_eq!(bed.world.proposed(), 3);
    leader.pass(seconds(20)).await;
    assert!(bed.world.proposed() <= 3 + 21, "only the clock goes on: {}", bed.world.proposed());
}

#[test]
fn a_lease_must_outlive_an_election() {
    let least = |election_max_ms| {
        super::ttl_seconds_min(&Timing {
            heartbeat: Duration::from_millis(100),
            election_min: Duration::from_millis(300),
            election_max: Duration::from_millis(election_max_ms),
        })
    };
    assert_eq!([least(600), least(1000), least(667), least(10)], [2, 3, 3, 1]);
}
