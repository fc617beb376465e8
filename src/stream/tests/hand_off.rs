//! The hand-off, model-checked: every interleaving of a writer's steps with a reader's. Each step
//! is one critical section of the feed, so that these are all the schedules that there are.

use std::sync::Arc;

use super::super::*;
use super::bed::{Bed, options, prefix, seen};
use headwater_types::LogIndex;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Write {
    /// A commit becomes readable.
    Commit,
    /// The readable commits are published.
    Publish,
    /// A state with one more commit is installed. Commits not published before it never are.
    Install,
    /// The feed's tasks run.
    Tasks,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Read {
    /// Holds the live list.
    Hold,
    /// Reads the view.
    View,
    /// Begins to read.
    Subscribe,
    /// Reads one commit.
    One,
    /// Reads all there is.
    All,
}

/// Calls `run` with every merge of the two scripts; true picks a step of the first.
fn interleavings(left: usize, right: usize, run: &mut dyn FnMut(&[bool])) {
    fn go(left: usize, right: usize, chosen: &mut Vec<bool>, run: &mut dyn FnMut(&[bool])) {
        if left + right == 0 {
            return run(chosen);
        }
        for (from_left, any) in [(true, left > 0), (false, right > 0)] {
            if any {
                chosen.push(from_left);
                go(left - usize::from(from_left), right - usize::from(!from_left), chosen, run);
                chosen.pop();
            }
        }
    }
    go(left, right, &mut Vec::new(), run);
}

const SCRIPTS: &[&[Write]] = &[
    &[Write::Commit, Write::Publish, Write::Commit, Write::Publish, Write::Commit, Write::Publish],
    &[Write::Commit, Write::Commit, Write::Publish, Write::Tasks, Write::Commit, Write::Publish, Write::Tasks],
    &[Write::Commit, Write::Publish, Write::Install, Write::Tasks, Write::Commit, Write::Publish],
    &[Write::Commit, Write::Commit, Write::Publish, Write::Install, Write::Install, Write::Tasks],
];

fn step(bed: &mut Bed, step: Write) {
    match step {
        Write::Commit => bed.commit(&["k"]),
        Write::Publish => bed.publish(),
        Write::Install => {
            bed.commit(&["k"]);
            bed.reset();
        }
        Write::Tasks => bed.run_tasks(),
    }
}

#[test]
fn a_view_and_the_list_make_every_commit_once() {
    let script = [Read::Hold, Read::View, Read::Subscribe, Read::One, Read::All];
    let mut schedules = 0;
    for window in [1, 2, 100] {
        for writes in SCRIPTS {
            interleavings(writes.len(), script.len(), &mut |schedule| {
                schedules += 1;
                let mut bed = Bed::new(options(window, 1));
                let (mut writes, mut reads) = (writes.iter(), script.iter());
                let cache = SnapshotCache::<Kv, Vec<u64>>::new(Arc::clone(&bed.feed), std::time::Duration::ZERO);
                // The hold and the view are two steps of one future; `gate` stands between them.
                let (gate, gated) = tokio::sync::oneshot::channel::<()>();
                let log = bed.log.clone();
                let session = Session::new();
                let subject = prefix("");
                let mut building = Box::pin(cache.get(&subject, std::time::Instant::now(), async || {
                    gated.await.unwrap();
                    let log = log.0.lock();
                    let contents: Vec<u64> = log.commits.iter().map(|commit| commit.index.get()).collect();
                    Ok::<_, CloseReason>((log.applied, contents))
                }));
                let mut gate = Some(gate);
                let mut snapshot = None;
                let mut subscription = None;
                let mut found = Vec::new();
                let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
                for &from_left in schedule {
                    if from_left {
                        step(&mut bed, *writes.next().unwrap());
                        continue;
                    }
                    match reads.next().unwrap() {
                        Read::Hold => assert!(building.as_mut().poll(&mut cx).is_pending()),
                        Read::View => {
                            gate.take().unwrap().send(()).unwrap();
                            let std::task::Poll::Ready(Ok(built)) = building.as_mut().poll(&mut cx) else { panic!() };
                            found.extend(&built.contents);
                            snapshot = Some(built);
                        }
                        Read::Subscribe => {
                            subscription = Some(snapshot.take().unwrap().subscribe(&session, 1).unwrap())
                        }
                        Read::One => {
                            let next = subscription.as_mut().unwrap().try_next().unwrap();
                            found.extend(next.map(|item| item.index().get()));
                        }
                        Read::All => {
                            while let Some(item) = subscription.as_mut().unwrap().try_next().unwrap() {
                                found.push(item.index().get());
                            }
                        }
                    }
                }
                let mut subscription = subscription.unwrap();
                for _ in 0..20 {
                    bed.run_tasks();
                    while let Some(item) = subscription.try_next().unwrap() {
                        found.push(item.index().get());
                    }
                }
                // The reader need not have the commits that are still unpublished.
                bed.publish();
                while let Some(item) = subscription.try_next().unwrap() {
                    found.push(item.index().get());
                }
                for _ in 0..20 {
                    bed.run_tasks();
                    while let Some(item) = subscription.try_next().unwrap() {
                        found.push(item.index().get());
                    }
                }
                let wanted: Vec<u64> = bed.log.0.lock().commits.iter().map(|commit| commit.index.get()).collect();
                assert_eq!(found, wanted, "window {window}, {writes:?}, {schedule:?}");
            });
        }
    }
    assert!(schedules > 5000, "{schedules}");
}

#[test]
fn a_position_continues_with_every_later_commit_once() {
    let script = [Read::Subscribe, Read::One, Read::One, Read::All];
    for window in [1, 2, 100] {
        for after in 0..4 {
            for writes in SCRIPTS {
                interleavings(writes.len(), script.len(), &mut |schedule| {
                    let mut bed = Bed::new(options(window, 2));
                    for _ in 0..2 {
                        bed.put(&["k"]);
                    }
                    let (mut writes, mut reads) = (writes.iter(), script.iter());
                    let mut reader = None;
                    for &from_left in schedule {
                        if from_left {
                            step(&mut bed, *writes.next().unwrap());
                            continue;
                        }
                        match reads.next().unwrap() {
                            Read::Subscribe => {
                                reader = Some(bed.subscribe(&prefix(""), Start::After(LogIndex(after))));
                            }
                            Read::One => reader.as_mut().unwrap().read(1).unwrap(),
                            Read::All => reader.as_mut().unwrap().read(usize::MAX).unwrap(),
                            Read::Hold | Read::View => unreachable!(),
                        }
                    }
                    let mut reader = reader.unwrap();
                    bed.publish();
                    reader.drain(&mut bed).unwrap();
                    assert_eq!(
                        reader.seen,
                        bed.wanted(&prefix(""), LogIndex(after)),
                        "window {window}, after {after}, {schedule:?}"
                    );
                    let published = bed.feed.published().index;
                    assert!(reader.subscription.is_through(published) && !reader.subscription.is_lagging());
                });
            }
        }
    }
}

#[test]
fn now_is_what_is_published_after_the_subscription() {
    let writes = SCRIPTS[0];
    interleavings(writes.len(), 2, &mut |schedule| {
        let mut bed = Bed::new(options(100, 100));
        let mut writes = writes.iter();
        let mut reader = None;
        for &from_left in schedule {
            match reader.as_mut() {
                _ if from_left => step(&mut bed, *writes.next().unwrap()),
                None => reader = Some(bed.subscribe(&prefix("k"), Start::Now)),
                Some(reader) => reader.read(usize::MAX).unwrap(),
            }
        }
        let mut reader = reader.unwrap();
        reader.drain(&mut bed).unwrap();
        assert_eq!(reader.seen, bed.wanted(&prefix("k"), reader.subscription.started().index), "{schedule:?}");
    });
}

#[test]
fn progress_never_runs_ahead_of_events() {
    let writes = SCRIPTS[0];
    // In every order of publish and read: a reader that is through the published position has its
    // events.
    interleavings(writes.len(), 3, &mut |schedule| {
        let mut bed = Bed::new(options(1, 1));
        let mut reader = bed.subscribe(&prefix("k"), Start::Now);
        let mut writes = writes.iter();
        for &from_left in schedule {
            if from_left {
                step(&mut bed, *writes.next().unwrap());
                continue;
            }
            let published = bed.feed.published().index;
            let through = reader.subscription.is_through(published);
            let last = reader.seen.last().map_or(0, |(index, _)| *index);
            assert!(!through || last >= published.get(), "{schedule:?}: through {published}, has {last}");
            reader.read(1).unwrap();
        }
    });
}

#[test]
fn a_limit_stops_a_reader_and_loses_nothing() {
    // With a window of one commit, the reader reads history.
    for window in [1, 100] {
        let mut bed = Bed::new(options(window, 100));
        let mut reader = bed.subscribe(&prefix("k"), Start::Now);
        for _ in 0..3 {
            bed.put(&["k"]);
        }
        let mut seen = Vec::new();
        for limit in [0, 2, 2, u64::MAX, u64::MAX] {
            while let Some(item) = reader.subscription.try_next_through(LogIndex(limit)).unwrap() {
                assert!(item.index().get() <= limit, "window {window}");
                seen.push(item.index().get());
            }
            bed.run_tasks();
        }
        assert_eq!(seen, [1, 2, 3], "window {window}");
    }
}

#[test]
fn a_commit_arrives_whole_and_filtered() {
    let mut bed = Bed::new(options(100, 100));
    let mut all = bed.subscribe(&prefix(""), Start::Now);
    let mut some = bed.subscribe(&prefix("a"), Start::Now);
    let mut b = bed.subscribe(&super::bed::one("b"), Start::Now);
    let mut none = bed.subscribe(&super::bed::one("c"), Start::Now);
    bed.put(&["a1", "b", "a2"]);
    for reader in [&mut all, &mut some, &mut b, &mut none] {
        reader.read(usize::MAX).unwrap();
    }
    let keys = |keys: &[&str]| vec![(1, keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>())];
    assert_eq!(all.seen, keys(&["a1", "b", "a2"]));
    assert_eq!(some.seen, keys(&["a1", "a2"]));
    assert_eq!(b.seen, keys(&["b"]));
    assert_eq!(none.seen, []);
    let item = Item::<Kv>::select(&Arc::new(Commit::new(&super::bed::commit(9, &["a", "b"])).unwrap()), &prefix("b"));
    assert_eq!(seen(&item.unwrap()), (9, vec!["b".to_owned()]));
}
