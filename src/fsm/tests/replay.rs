//! Random commands against the model, in random batches, with reclamation, flushes, crashes and
//! snapshots in between: the outcome of a command must depend on none of these.

use proptest::prelude::*;

use super::bed::*;
use super::model::{self, Model};
use headwater_storage::state::{StateStore, Table};
use headwater_types::{Command, CommandEvents, KeyRange, KeyValue, LeaseId, LogIndex, RangeQuery, ReadAt, Revision};

/// An action between two commits.
#[derive(Clone, Copy, Debug)]
enum Between {
    Nothing,
    Flush,
    Reclaim(usize),
    Snapshot,
    Reopen,
}

fn between() -> impl Strategy<Value = Between> {
    prop_oneof![
        6 => Just(Between::Nothing),
        1 => Just(Between::Flush),
        3 => (1..20usize).prop_map(Between::Reclaim),
        1 => Just(Between::Snapshot),
        1 => Just(Between::Reopen),
    ]
}

fn happen(mut bed: TestBed, between: Between) -> TestBed {
    match between {
        Between::Nothing => {}
        Between::Flush => {
            bed.store.current().flush().unwrap();
        }
        Between::Reclaim(limit) => {
            bed.store.current().reclaim_step(limit).unwrap();
        }
        Between::Snapshot => {
            let copy = bed.dir.path().join("incoming");
            bed.store.current().checkpoint(&copy).unwrap();
            bed.store.install(&copy).unwrap();
        }
        Between::Reopen => bed = bed.reopened(),
    }
    bed
}

/// Checks that the head, the leases, all keys at each revision and the results of `queries` equal
/// the model's.
fn assert_equal(bed: &TestBed, model: &Model, queries: &[RangeQuery]) {
    let head = bed.store.current().head();
    assert_eq!(head.revision.get(), model.revision);
    assert_eq!(head.compaction.map_or(-1, |point| point.revision.get()), model.compacted);
    assert_eq!(head.compacted_index().get(), model.floor);
    assert_eq!(head.live_keys, model.now.len() as u64);
    let live_bytes: usize = model.now.values().map(|kv| kv.key.len() + kv.value.len()).sum();
    assert_eq!(head.live_bytes, live_bytes as u64);
    let everything =
        |revision| RangeQuery { at: ReadAt::Revision(Revision(revision)), ..RangeQuery::new(KeyRange::all()) };
    for revision in -1..model.revision + 2 {
        let query = everything(revision);
        assert_eq!(bed.range(&query), model.range(&model.now, &query), "at {revision}");
    }
    let db = bed.store.current();
    let view = db.view().unwrap();
    let mut leases = std::collections::BTreeMap::new();
    view.leases(|id, lease| leases.extend([(id, lease)])).unwrap();
    assert_eq!(leases, model.leases);
    assert_eq!(view.lease_clock().unwrap(), model.clock_ms);
    for id in (0..5).map(LeaseId) {
        let attached: Vec<_> = model.now.values().filter(|kv| id.is_some() && kv.lease == id).collect();
        let attached: Vec<_> = attached.into_iter().map(|kv| kv.key.clone()).collect();
        assert_eq!(view.lease_keys(id).unwrap(), attached, "keys of {id}");
    }
    for query in queries {
        assert_eq!(bed.range(query), model.range(&model.now, query), "{query:?}");
    }
}

/// The history of all keys from the compaction point on: the log index of each command that wrote
/// keys, with the key-value pairs that it wrote.
fn key_events(bed: &TestBed) -> Vec<(LogIndex, Vec<KeyValue>)> {
    let db = bed.store.current();
    let view = db.view().unwrap();
    let mut found = Vec::new();
    view.history(view.head().key_floor(), |command| {
        let keys = command.records.into_iter().filter(|record| record.table == Table::Kv);
        found.push((command.index, keys.map(|record| record.kv).collect()));
        true
    })
    .unwrap();
    found.retain(|(_, keys): &(_, Vec<KeyValue>)| !keys.is_empty());
    found
}

fn events_since(delivered: &[CommandEvents], from: LogIndex) -> Vec<(LogIndex, Vec<KeyValue>)> {
    let delivered = delivered.iter().filter(|commit| commit.index >= from && !commit.kv.is_empty());
    delivered.map(|commit| (commit.index, commit.kv.iter().map(|event| event.kv.clone()).collect())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn outcomes_do_not_depend_on_batches_reclamation_or_restarts(
        batches in prop::collection::vec((prop::collection::vec(model::command(), 1..8), between()), 1..10),
        queries in prop::collection::vec(model::query(), 0..20),
    ) {
        let mut model = Model::new();
        let (mut bed, mut plain) = (TestBed::new(), TestBed::new());
        let mut delivered = Vec::new();
        for (commands, between) in batches {
            let want: Vec<_> = commands.iter().map(|command| model.apply(command)).collect();
            let (outcomes, committed) = bed.apply_all(commands.clone(), true);
            prop_assert_eq!(&outcomes, &want);
            let mut events = Vec::new();
            for command in commands {
                events.extend(plain.apply_all([command], false).1.events);
            }
            prop_assert_eq!(&committed.events, &events);
            delivered.extend(committed.events);
            bed = happen(bed, between);
            prop_assert_eq!(key_events(&bed), events_since(&delivered, bed.store.current().head().key_floor()));
        }
        assert_equal(&bed, &model, &queries);
        let hash = plain.hash();
        prop_assert_eq!(bed.hash(), hash);
        bed.reclaim(7);
        assert_equal(&bed, &model, &queries);
        prop_assert_eq!(bed.hash(), hash);
        prop_assert_eq!(bed.reclaim(7), 0, "what is done stays done");
    }

    #[test]
    fn after_a_crash_the_state_is_a_prefix_and_replay_completes_it(
        batches in prop::collection::vec((prop::collection::vec(model::command(), 1..6), between()), 1..10),
    ) {
        let mut bed = TestBed::new();
        let mut log: Vec<Command> = Vec::new();
        for (commands, between) in batches {
            log.extend(commands.iter().cloned());
            bed.apply_all(commands, false);
            bed = happen(bed, between);
        }
        let durable = bed.store.durable_applied();
        let hash = bed.hash();
        let crashed = scratch_dir();
        bed.store.crash_copy(crashed.path());

        let store = StateStore::open(crashed.path(), &options()).unwrap();
        let applied = store.current().head().applied.map(|(_, index)| index);
        prop_assert!(applied >= durable, "{:?} was durable, {:?} is there", durable, applied);
        let applied = applied.map_or(0, LogIndex::get) as usize;
        let mut replayed = TestBed { dir: crashed, store, next: applied as u64 + 1 };
        let mut model = Model::new();
        for command in &log[..applied] {
            model.apply(command);
        }
        assert_equal(&replayed, &model, &[]);
        replayed.apply_all(log[applied..].iter().cloned(), false);
        prop_assert_eq!(replayed.hash(), hash);
    }
}

#[test]
fn hashes_tell_states_apart() {
    let base = || vec![put("a", "1"), put("b", "2")];
    let with = |command| TestBed::with(base().into_iter().chain([command])).hash();
    let hashes = [
        with(put("a", "1")),
        with(put("a", "2")),
        with(put("b", "1")),
        with(del("a", "")),
        with(del("x", "")),
        with(compact(2)),
        with(compact(3)),
    ];
    let mut distinct = hashes.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), hashes.len(), "{hashes:x?}");
    assert_eq!(with(put("a", "1")), hashes[0]);
}
