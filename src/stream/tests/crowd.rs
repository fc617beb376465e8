//! Crowds: real threads, with one writer, many sessions and a window that is too small for them;
//! and the order in which crowds are woken.

use std::sync::Arc;

use super::super::*;
use super::bed::{Bed, Reader, SharedLog, commit, one, options, prefix, seen};
use headwater_types::{KeyRange, LogIndex};

const COMMITS: u64 = 3000;
const READERS: usize = 60;

fn subject(reader: usize) -> KeyRange {
    [one("a"), one("b"), prefix("a"), prefix("")][reader % 4].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_reader_has_everything_in_order() {
    let log = SharedLog::default();
    let feed = Feed::<Kv>::new(StatePoint::default(), options(50, 20));
    let tasks = [tokio::spawn(feed.wake_readers()), tokio::spawn(feed.serve_catch_up(Arc::new(log.clone())))];
    let readers: Vec<_> = (0..READERS)
        .map(|number| {
            let session = Session::new();
            let mut subscription = feed.subscribe(subject(number), Start::Now, &session, 3).unwrap();
            tokio::spawn(async move {
                let mut found = Vec::new();
                let mut raised = vec![3];
                loop {
                    assert_eq!(raised, [3]);
                    while let Some(item) = subscription.try_next().unwrap() {
                        found.push(seen(&item));
                        if number % 3 == 0 && found.len() % 10 == 0 {
                            // A slow one.
                            tokio::task::yield_now().await;
                        }
                        if item.events().any(|event| event.kv.value == "end") {
                            return found;
                        }
                    }
                    raised = session.raised().await;
                }
            })
        })
        .collect();
    let writer = {
        let (feed, log) = (Arc::clone(&feed), log.clone());
        tokio::task::spawn_blocking(move || {
            for index in 1..=COMMITS {
                let keys: &[&str] = [&["a"][..], &["b"], &["ab", "b"], &["c", "a"]][(index % 4) as usize];
                let mut new = commit(index, keys);
                if index == COMMITS {
                    new = commit(index, &["a", "b"]);
                    let mut events = new.kv.to_vec();
                    events.iter_mut().for_each(|event| event.kv.value = "end".into());
                    new.kv = events.into();
                }
                {
                    let mut log = log.0.lock();
                    log.commits.push(new.clone());
                    log.applied = LogIndex(index);
                }
                feed.publish(&[new]);
            }
        })
    };
    writer.await.unwrap();
    for (number, reader) in readers.into_iter().enumerate() {
        let found = reader.await.unwrap();
        let log = log.0.lock();
        let wanted: Vec<_> = log
            .commits
            .iter()
            .filter_map(|commit| Item::<Kv>::select(&Arc::new(Commit::new(commit)?), &subject(number)))
            .map(|item| seen(&item))
            .collect();
        assert_eq!(found, wanted, "reader {number}");
    }
    drop(feed);
    for task in tasks {
        task.await.unwrap();
    }
}

#[test]
fn a_crowd_that_is_published_all_the_time_does_not_keep_another_asleep() {
    // The waker needs two steps for a crowd.
    const CROWD: usize = 300;
    let mut bed = Bed::new(options(1000, 1000));
    let gather = |bed: &Bed, key| -> Vec<Reader> {
        let mut readers: Vec<_> = (0..CROWD).map(|_| bed.subscribe(&one(key), Start::Now)).collect();
        readers.iter_mut().for_each(|reader| reader.read(usize::MAX).unwrap());
        readers
    };
    let (hot, quiet) = (gather(&bed, "hot"), gather(&bed, "quiet"));
    bed.put(&["hot"]);
    bed.step_waker();
    assert!(hot.iter().any(|reader| !reader.session.take_raised().is_empty()), "its turn has begun");
    bed.put(&["quiet"]);
    let mut woken = 0;
    // The second step of the hot crowd, and both of the quiet one.
    for _ in 0..3 {
        bed.put(&["hot"]);
        bed.step_waker();
        woken += quiet.iter().filter(|reader| !reader.session.take_raised().is_empty()).count();
    }
    assert_eq!(woken, CROWD);
}
