//! Random sequences of changes, conversions, restarts and crashes of the log, compared with a
//! vector.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Append {
        entries: u64,
        payload_bytes: usize,
    },
    /// Keeps this percentage of the entries.
    Truncate(u64),
    /// Purges up to and with the entry at this percentage of the log; from 100 on, beyond the end.
    Purge(u64),
    Vote(u64),
    Commit(u64),
    Read {
        from: u64,
        to: u64,
        bytes_max: usize,
    },
    Flush,
    /// Stores the log in the other form.
    Convert,
    Restart,
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1..40_u64, 0..300_usize).prop_map(|(entries, payload_bytes)| Step::Append { entries, payload_bytes }),
        2 => (0..=100_u64).prop_map(Step::Truncate),
        2 => (0..130_u64).prop_map(Step::Purge),
        1 => any::<u64>().prop_map(Step::Vote),
        2 => (0..=100_u64).prop_map(Step::Commit),
        4 => (0..200_u64, 0..200_u64, 0..4000_usize)
            .prop_map(|(from, to, bytes_max)| Step::Read { from, to, bytes_max }),
        1 => Just(Step::Flush),
        1 => Just(Step::Convert),
        1 => Just(Step::Restart),
        1 => Just(Step::Crash),
    ]
}

/// The expected content of the log.
#[derive(Clone, Debug, Default)]
struct Model {
    purged: Option<LogId>,
    records: Vec<LogRecord>,
    vote: Option<Vote>,
    /// The committed ids that were saved, without truncated ones. A crash may bring back any of
    /// them.
    committed: Vec<Option<LogId>>,
}

impl Model {
    fn first(&self) -> u64 {
        self.purged.map_or(0, |purged| purged.index.get() + 1)
    }

    fn last(&self) -> Option<LogId> {
        self.records.last().map(LogRecord::id).or(self.purged)
    }

    /// Index of the entry at this percentage of the log.
    fn at(&self, share: u64) -> u64 {
        self.first() + self.records.len() as u64 * share / 100
    }

    fn limited(&self, from: u64, to: u64, bytes_max: usize) -> Vec<LogRecord> {
        let mut left = bytes_max;
        let mut out = Vec::new();
        for found in self.records.iter().filter(|found| (from..to).contains(&found.index.get())) {
            if !out.is_empty() && found.payload.len() > left {
                break;
            }
            left = left.saturating_sub(found.payload.len());
            out.push(found.clone());
        }
        out
    }

    fn check(&self, log: &LogDb) {
        assert_eq!(log.state().unwrap(), LogState { last_purged: self.purged, last: self.last() });
        assert_eq!(read(log, 0..u64::MAX), self.records);
        assert_eq!(log.vote().unwrap(), self.vote);
    }
}

/// Runs `steps`; it waits for changes only before a restart or a crash, so that batches of any size
/// form.
fn run(options: &LogOptions, steps: &[Step]) {
    let temp = tempfile::tempdir().unwrap();
    let mut dir = temp.path().join("0");
    let mut log = LogDb::open(&dir, options.clone()).unwrap();
    let mut form = options.form;
    let mut model = Model { committed: vec![None], ..Model::default() };
    let mut waiting: Vec<Waiter> = Vec::new();
    let settle = |waiting: &mut Vec<Waiter>| {
        for waiter in waiting.drain(..) {
            waiter.recv().unwrap().unwrap();
        }
    };
    for (number, step) in steps.iter().enumerate() {
        let term = number as u64 + 1;
        let (done, result) = waiter();
        match *step {
            Step::Append { entries, payload_bytes } => {
                let start = model.last().map_or(0, |last| last.index.get() + 1);
                let payload = Bytes::from(vec![number as u8; payload_bytes]);
                let records: Vec<LogRecord> = (start..start + entries)
                    .map(|index| LogRecord { payload: payload.clone(), ..record(term, index) })
                    .collect();
                model.records.extend(records.iter().cloned());
                log.append(records, done);
                waiting.push(result);
            }
            Step::Truncate(share) => {
                let end = model.at(share);
                model.records.retain(|record| record.index.get() < end);
                // Committed entries are never truncated.
                model.committed.retain(|id| id.is_none_or(|id| id.index.get() < end));
                let kept = *model.committed.last().unwrap();
                if log.committed().unwrap() != kept {
                    log.save_committed(kept).unwrap();
                }
                log.truncate_after(end.checked_sub(1).map(LogIndex), done);
                waiting.push(result);
            }
            Step::Purge(share) => {
                let index = model.at(share);
                let within = model.records.iter().find(|record| record.index.get() == index);
                let purged = within.map_or(id(term, index), LogRecord::id);
                model.purged = Some(purged);
                model.records.retain(|record| record.index > purged.index);
                log.purge(purged, done);
                waiting.push(result);
            }
            Step::Vote(term) => {
                model.vote = Some(vote(term));
                log.save_vote(vote(term), done);
                waiting.push(result);
            }
            Step::Commit(share) => {
                let index = model.at(share);
                if let Some(found) = model.records.iter().find(|record| record.index.get() == index) {
                    model.committed.push(Some(found.id()));
                    log.save_committed(Some(found.id())).unwrap();
                }
            }
            Step::Read { from, to, bytes_max } => {
                let found = log.read_limited(LogIndex(from), LogIndex(to), bytes_max).unwrap();
                assert_eq!(found, model.limited(from, to, bytes_max), "before everything is durable");
            }
            Step::Flush => flush(&log),
            Step::Convert => {
                // Conversions that wait for the writer change nothing here yet.
                form = if form == LogForm::RocksDb { LogForm::Segments } else { LogForm::RocksDb };
                log.convert(form, done);
                waiting.push(result);
            }
            Step::Restart => {
                settle(&mut waiting);
                drop(log);
                log = LogDb::open(&dir, options.clone()).unwrap();
                model.check(&log);
                assert_eq!(log.committed().unwrap(), *model.committed.last().unwrap(), "written when it was closed");
            }
            Step::Crash => {
                settle(&mut waiting);
                let next = temp.path().join(format!("{}", number + 1));
                crash_copy(&log, &next);
                drop(log);
                dir = next;
                log = LogDb::open(&dir, options.clone()).unwrap();
                model.check(&log);
                let committed = log.committed().unwrap();
                assert!(model.committed.contains(&committed), "{committed:?} was never saved");
                model.committed.push(committed);
            }
        }
    }
    settle(&mut waiting);
    model.check(&log);
    drop(log);
    model.check(&LogDb::open(&dir, options.clone()).unwrap());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_log_is_a_vector(
        tail_bytes_max in prop::sample::select(vec![0, 1000, 1 << 20]),
        batch_bytes_max in prop::sample::select(vec![1, 2000, 1 << 20]),
        form in prop::sample::select(vec![LogForm::RocksDb, LogForm::Segments]),
        segment_bytes in prop::sample::select(vec![600, 4000, 1 << 20]),
        steps in prop::collection::vec(step(), 1..40),
    ) {
        run(&LogOptions { tail_bytes_max, batch_bytes_max, form, segment_bytes, ..options() }, &steps);
    }
}
