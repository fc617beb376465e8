//! Random writers, readers, resets and compactions against a plain list.

use proptest::prelude::*;

use super::super::*;
use super::bed::{Bed, Reader, one, options, prefix};
use headwater_types::{KeyRange, LogIndex};

#[derive(Clone, Debug)]
enum Act {
    Commit(Vec<usize>),
    Publish,
    Install,
    Subscribe { subject: usize, start: Option<u64> },
    Read { reader: usize, limit: usize },
    ReadRuns { reader: usize, limit: usize },
    Leave(usize),
    Tasks,
}

const KEYS: [&str; 5] = ["a", "aa", "ab", "b", "c"];

fn subject(at: usize) -> KeyRange {
    [one("a"), one("b"), prefix("a"), prefix(""), prefix("b")][at].clone()
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => proptest::sample::subsequence(vec![0, 1, 2, 3, 4], 1..4).prop_map(Act::Commit),
        4 => Just(Act::Publish),
        1 => Just(Act::Install),
        2 => (0..5usize, proptest::option::of(0..30u64)).prop_map(|(subject, start)| Act::Subscribe { subject, start }),
        6 => (0..8usize, 1..5usize).prop_map(|(reader, limit)| Act::Read { reader, limit }),
        4 => (0..8usize, 1..3usize).prop_map(|(reader, limit)| Act::ReadRuns { reader, limit }),
        1 => (0..8usize).prop_map(Act::Leave),
        2 => Just(Act::Tasks),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn every_reader_sees_the_filtered_list(
        acts in proptest::collection::vec(act(), 1..120),
        window in 1..8usize,
        scan in 1..4usize,
    ) {
        let mut bed = Bed::new(options(window, scan));
        let mut readers: Vec<(Reader, LogIndex)> = Vec::new();
        for act in acts {
            match act {
                Act::Commit(keys) => {
                    let keys: Vec<&str> = keys.into_iter().map(|at| KEYS[at]).collect();
                    bed.commit(&keys);
                }
                Act::Publish => bed.publish(),
                Act::Install => {
                    bed.commit(&["a"]);
                    bed.reset();
                }
                Act::Subscribe { subject: at, start } => {
                    // Positions are those seen by some reader, so none is ahead of the applied
                    // index.
                    let applied = bed.log.0.lock().applied;
                    let start = start.map_or(Start::Now, |index| Start::After(LogIndex(index).min(applied)));
                    let reader = bed.subscribe(&subject(at), start);
                    let after = match start {
                        Start::Now => reader.subscription.started().index,
                        Start::After(index) => index,
                    };
                    readers.push((reader, after));
                }
                Act::Read { reader, limit } => {
                    if let Some((reader, _)) = readers.get_mut(reader) {
                        reader.read(limit).unwrap();
                    }
                }
                Act::ReadRuns { reader, limit } => {
                    if let Some((reader, _)) = readers.get_mut(reader) {
                        reader.read_runs(limit);
                    }
                }
                Act::Leave(at) => {
                    if at < readers.len() {
                        let (mut reader, after) = readers.swap_remove(at);
                        let wanted = bed.wanted(reader.subscription.subject(), after);
                        prop_assert!(wanted.starts_with(&reader.seen), "{:?} of {wanted:?}", reader.seen);
                        reader.read(0).unwrap();
                    }
                }
                Act::Tasks => bed.run_tasks(),
            }
        }
        bed.publish();
        for (mut reader, after) in readers {
            reader.drain(&mut bed).unwrap();
            let wanted = bed.wanted(reader.subscription.subject(), after);
            prop_assert_eq!(&reader.seen, &wanted);
            prop_assert!(reader.subscription.is_through(bed.feed.published().index));
        }
        let stats = bed.feed.stats();
        prop_assert_eq!((stats.subscriptions, stats.subjects, stats.lagging), (0, 0, 0));
        prop_assert!(stats.window_items <= window as u64);
    }
}
