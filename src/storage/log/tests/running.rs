//! Promises of the log while it runs.

use std::sync::atomic::Ordering;

use super::*;

in_both_forms! {
    an_append_is_readable_at_once_and_a_vote_only_when_it_is_durable,
    what_waits_becomes_one_write_with_one_fsync,
    a_batch_is_cut_by_bytes_but_one_append_always_fits,
    save_committed_writes_nothing,
    without_fsync_nothing_counts_as_synced,
    truncation_and_what_replaces_it_may_share_a_batch,
    truncation_to_nothing_and_beyond_the_end,
    purge_within_and_beyond_the_log,
    reads_are_cut_by_bytes_but_never_empty,
    a_read_may_begin_on_disk_and_end_in_memory,
    a_hole_or_an_overlap_poisons_the_log,
    reset_to_what_is_applied,
    closing_writes_what_waits_and_refuses_what_comes,
    the_last_handle_may_be_dropped_by_a_callback,
    a_panic_in_a_callback_leaves_nobody_waiting,
    readers_see_one_history_whatever_writers_do,
    a_batch_on_disk_does_not_vouch_for_what_a_waiting_truncation_replaced,
    metrics_carry_the_names_that_dashboards_know,
}

fn fsyncs(log: &LogDb) -> u64 {
    log.metrics().fsync_seconds.get_sample_count()
}

fn an_append_is_readable_at_once_and_a_vote_only_when_it_is_durable() {
    let dir = tempfile::tempdir().unwrap();
    for options in [options(), without_tail()] {
        let log = LogDb::open(dir.path(), options).unwrap();
        let start = log.state().unwrap().last.map_or(0, |last| last.index.get() + 1);
        let gate = Gate::close(&log);
        let (appended, append_result) = waiter();
        let (voted, vote_result) = waiter();
        log.append(records(3, start..start + 3), appended);
        log.save_vote(vote(9), voted);
        assert_eq!(read(&log, start..start + 9), records(3, start..start + 3));
        assert_eq!(log.state().unwrap().last, Some(id(3, start + 2)));
        assert_eq!(log.vote().unwrap(), Some(vote(1)));
        assert!(append_result.try_recv().is_err(), "not durable yet");
        drop(gate);
        append_result.recv().unwrap().unwrap();
        vote_result.recv().unwrap().unwrap();
        assert_eq!(log.vote().unwrap(), Some(vote(9)));
        assert_eq!(read(&log, start..start + 9), records(3, start..start + 3));
    }
}

fn what_waits_becomes_one_write_with_one_fsync() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    let gate = Gate::close(&log);
    let before = (fsyncs(&log), log.metrics().batch_entries.get_sample_count());
    let (sender, order) = mpsc::channel();
    for index in 0..100 {
        let sender = sender.clone();
        log.append(vec![record(1, index)], move |result| {
            result.unwrap();
            sender.send(index).unwrap();
        });
    }
    log.save_committed(Some(id(1, 50))).unwrap();
    drop(gate);
    let order: Vec<u64> = order.iter().take(100).collect();
    assert_eq!(order, (0..100).collect::<Vec<_>>(), "callbacks run in the order of the calls");
    assert_eq!(fsyncs(&log) - before.0, 1);
    assert_eq!(log.metrics().batch_entries.get_sample_count() - before.1, 1);
    assert_eq!(log.metrics().batch_entries.get_sample_sum(), 100.0);
}

fn a_batch_is_cut_by_bytes_but_one_append_always_fits() {
    let dir = tempfile::tempdir().unwrap();
    let log = LogDb::open(dir.path(), LogOptions { batch_bytes_max: 10, ..options() }).unwrap();
    let gate = Gate::close(&log);
    let before = fsyncs(&log);
    let waiters: Vec<Waiter> = (0..3)
        .map(|part| {
            let (done, result) = waiter();
            log.append(records(1, part * 10..part * 10 + 10), done);
            result
        })
        .collect();
    drop(gate);
    for waiter in waiters {
        waiter.recv().unwrap().unwrap();
    }
    assert_eq!(fsyncs(&log) - before, 3);
    assert_eq!(read(&log, 0..99), records(1, 0..30));
}

fn save_committed_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    append(&log, records(1, 0..9));
    let before = (fsyncs(&log), log.metrics().write_bytes.get());
    for index in 0..9 {
        log.save_committed(Some(id(1, index))).unwrap();
    }
    assert_eq!((fsyncs(&log), log.metrics().write_bytes.get()), before);
    assert_eq!(log.committed().unwrap(), Some(id(1, 8)));
}

fn without_fsync_nothing_counts_as_synced() {
    let dir = tempfile::tempdir().unwrap();
    let log = LogDb::open(dir.path(), LogOptions { unsafe_no_fsync: true, ..options() }).unwrap();
    append(&log, records(1, 0..9));
    assert_eq!(fsyncs(&log), 0);
    drop(log);
    assert_eq!(ids(&open(dir.path())).len(), 9);
}

fn truncation_and_what_replaces_it_may_share_a_batch() {
    let dir = tempfile::tempdir().unwrap();
    for options in [options(), without_tail()] {
        let dir = dir.path().join(options.tail_bytes_max.to_string());
        let log = LogDb::open(&dir, options).unwrap();
        append(&log, records(1, 0..10));
        let gate = Gate::close(&log);
        let (done, result) = waiter();
        log.append(records(2, 10..12), |_| {});
        log.truncate_after(Some(LogIndex(5)), |_| {});
        log.append(records(3, 6..9), |_| {});
        log.truncate_after(Some(LogIndex(7)), |_| {});
        log.append(records(4, 8..11), done);
        let wanted = [records(1, 0..6), records(3, 6..8), records(4, 8..11)].concat();
        assert_eq!(read(&log, 0..99), wanted, "before it is durable");
        drop(gate);
        result.recv().unwrap().unwrap();
        assert_eq!(read(&log, 0..99), wanted, "when it is durable");
        drop(log);
        assert_eq!(read(&open(&dir), 0..99), wanted, "after a restart");
    }
}

fn truncation_to_nothing_and_beyond_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    append(&log, records(1, 0..5));
    durably(|done| log.truncate_after(Some(LogIndex(11)), done)).unwrap();
    assert_eq!(ids(&log).len(), 5, "nothing lies beyond");
    durably(|done| log.truncate_after(None, done)).unwrap();
    assert_eq!(log.state().unwrap(), LogState::default());
    append(&log, records(2, 0..2));
    durably(|done| log.purge(id(2, 0), done)).unwrap();
    durably(|done| log.truncate_after(None, done)).unwrap();
    assert_eq!(log.state().unwrap(), LogState { last_purged: Some(id(2, 0)), last: Some(id(2, 0)) });
}

fn purge_within_and_beyond_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    append(&log, records(1, 0..10));
    durably(|done| log.purge(id(1, 3), done)).unwrap();
    assert_eq!(log.state().unwrap(), LogState { last_purged: Some(id(1, 3)), last: Some(id(1, 9)) });
    assert_eq!(read(&log, 0..6), records(1, 4..6), "what is purged is absent, not an error");
    durably(|done| log.purge(id(1, 2), done)).unwrap();
    assert_eq!(log.state().unwrap().last_purged, Some(id(1, 3)), "the purge point never goes back");
    // As after a snapshot that is ahead of the log.
    durably(|done| log.purge(id(4, 20), done)).unwrap();
    assert_eq!(log.state().unwrap(), LogState { last_purged: Some(id(4, 20)), last: Some(id(4, 20)) });
    assert_eq!(read(&log, 0..99), []);
    append(&log, records(5, 21..23));
    drop(log);
    let log = open(dir.path());
    assert_eq!(log.state().unwrap(), LogState { last_purged: Some(id(4, 20)), last: Some(id(5, 22)) });
    assert_eq!(read(&log, 0..99), records(5, 21..23));
}

fn reads_are_cut_by_bytes_but_never_empty() {
    let dir = tempfile::tempdir().unwrap();
    for (options, name) in [(options(), "memory"), (without_tail(), "disk")] {
        let log = LogDb::open(&dir.path().join(name), options).unwrap();
        // Payloads of three bytes each.
        append(&log, records(1, 0..10));
        let cases = [
            ((0, 10, usize::MAX), 0..10),
            ((0, 10, 30), 0..10),
            ((0, 10, 29), 0..9),
            ((2, 10, 6), 2..4),
            ((2, 10, 0), 2..3),
            ((8, 99, 100), 8..10),
            ((3, 3, 100), 3..3),
            ((10, 20, 100), 10..10),
        ];
        for ((start, end, bytes_max), wanted) in cases {
            let found = log.read_limited(LogIndex(start), LogIndex(end), bytes_max).unwrap();
            assert_eq!(found, records(1, wanted), "{name}: {start}..{end} in {bytes_max} bytes");
        }
    }
}

fn a_read_may_begin_on_disk_and_end_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let log = LogDb::open(dir.path(), LogOptions { tail_bytes_max: 3 * 70, ..options() }).unwrap();
    append(&log, records(1, 0..10));
    let gate = Gate::close(&log);
    log.append(records(2, 10..15), |_| {});
    assert_eq!(log.shared().state.lock().tail_first(), 7, "durable entries are dropped from memory");
    assert_eq!(read(&log, 2..14), [records(1, 2..10), records(2, 10..14)].concat());
    let cut = log.read_limited(LogIndex(5), LogIndex(15), 4 * 3).unwrap();
    assert_eq!(cut, records(1, 5..9));
    drop(gate);
    append(&log, records(2, 15..16));
    let state = log.shared().state.lock();
    assert!(state.tail_bytes <= 3 * 70 && state.tail_first() > 10, "the tail is bounded again");
}

fn a_hole_or_an_overlap_poisons_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let cases = [("hole", records(1, 6..7)), ("overlap", records(1, 4..5)), ("gap", vec![record(1, 5), record(1, 7)])];
    for (name, misplaced) in cases {
        let log = open(&dir.path().join(name));
        append(&log, records(1, 0..5));
        let error = durably(|done| log.append(misplaced, done)).unwrap_err();
        assert!(error.to_string().contains("would leave a hole or an overlap"), "{error}");
        assert!(log.failure().is_some());
        drop(log);
        assert_eq!(ids(&open(&dir.path().join(name))).len(), 5, "{name}");
    }
}

fn reset_to_what_is_applied() {
    let after = |log: &LogDb| (log.state().unwrap(), ids(log).len());
    let state = |purged, last| LogState { last_purged: purged, last: Some(last) };
    let cases = [
        ("held", id(2, 5), Ok((state(None, id(2, 9)), 10))),
        ("the last", id(2, 9), Ok((state(None, id(2, 9)), 10))),
        ("ahead", id(3, 12), Ok((state(Some(id(3, 12)), id(3, 12)), 0))),
        ("replaced", id(3, 5), Ok((state(Some(id(3, 5)), id(3, 5)), 0))),
        ("of another history", id(1, 5), Err("log/entries")),
    ];
    for (name, applied, wanted) in cases {
        let dir = tempfile::tempdir().unwrap();
        let log = open(dir.path());
        append(&log, records(2, 0..10));
        match (log.reset_to(applied), wanted) {
            (Ok(()), Ok(wanted)) => {
                assert_eq!(after(&log), wanted, "{name}");
                drop(log);
                assert_eq!(after(&open(dir.path())), wanted, "{name}, after a restart");
            }
            (Err(error), Err(wanted)) => assert!(error.to_string().contains(wanted), "{name}: {error}"),
            (found, wanted) => panic!("{name}: {found:?} instead of {wanted:?}"),
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    durably(|done| log.purge(id(2, 9), done)).unwrap();
    log.reset_to(id(2, 4)).unwrap();
    assert_eq!(after(&log), (state(Some(id(2, 9)), id(2, 9)), 0), "purged further already");
}

fn closing_writes_what_waits_and_refuses_what_comes() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    let gate = Gate::close(&log);
    let (done, result) = waiter();
    log.append(records(1, 0..5), done);
    log.save_committed(Some(id(1, 4))).unwrap();
    drop(gate);
    log.close();
    log.close();
    result.try_recv().expect("done ran before close returned").unwrap();
    let error = durably(|done| log.append(records(1, 5..6), done)).unwrap_err();
    assert!(error.to_string().contains("closed"), "{error}");
    assert!(log.failure().is_none(), "to be closed is no failure");
    assert_eq!(ids(&log).len(), 5);
    drop(log);
    assert_eq!(open(dir.path()).committed().unwrap(), Some(id(1, 4)));
}

fn the_last_handle_may_be_dropped_by_a_callback() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    let (entered, inside) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let (finished, end) = mpsc::channel();
    let held = log.clone();
    log.append(records(1, 0..1), move |_| {
        entered.send(()).unwrap();
        assert!(released.recv().is_err());
        drop(held);
        finished.send(()).unwrap();
    });
    inside.recv().unwrap();
    drop(log);
    drop(release);
    end.recv().expect("the callback came to its end");
}

fn a_panic_in_a_callback_leaves_nobody_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    let gate = Gate::close(&log);
    log.append(records(1, 0..1), |_| panic!("a callback with a bug"));
    let (done, result) = waiter();
    log.append(records(1, 1..2), done);
    drop(gate);
    // The second append may or may not have shared the batch. In both cases its `done` is dropped
    // or gets an error.
    if let Ok(outcome) = result.recv() {
        assert!(outcome.is_err());
    }
    log.close();
    assert!(log.failure().is_some());
    assert!(durably(|done| log.append(records(1, 2..3), done)).is_err());
}

/// Reads during truncations, purges and reclamation: the entries of an answer are consecutive, with
/// terms that never fall, and with the payloads that were written.
fn readers_see_one_history_whatever_writers_do() {
    let dir = tempfile::tempdir().unwrap();
    let log = LogDb::open(dir.path(), LogOptions { tail_bytes_max: 2000, ..options() }).unwrap();
    append(&log, records(1, 0..200));
    let stop = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut reads = 0_u64;
                    while !stop.load(Ordering::Relaxed) {
                        let low = log.state().unwrap();
                        let first = low.last_purged.map_or(0, |purged| purged.index.get() + 1);
                        let found = read(&log, first..u64::MAX);
                        for pair in found.windows(2) {
                            assert_eq!(pair[0].index.next(), pair[1].index);
                            assert!(pair[0].term <= pair[1].term, "{:?} then {:?}", pair[0].id(), pair[1].id());
                        }
                        for found in &found {
                            assert_eq!(found.payload, record(found.term.get(), found.index.get()).payload);
                        }
                        reads += found.len() as u64;
                    }
                    reads
                })
            })
            .collect();
        let mut end = 200_u64;
        for round in 2..120_u64 {
            let keep = end - 1 - round % 40;
            log.truncate_after(Some(LogIndex(keep)), |result| result.unwrap());
            log.append(records(round, keep + 1..keep + 101), |result| result.unwrap());
            end = keep + 101;
            if round % 10 == 0 {
                // Files of their own, so that there is something to reclaim.
                append(&log, records(round, end..end + 1));
                end += 1;
                flush(&log);
                let purged = read(&log, end - 150..end - 149)[0].id();
                log.purge(purged, |result| result.unwrap());
                if log.form() == LogForm::RocksDb {
                    with_rocks(&log, |rocks| {
                        rocks.db().compact_range_cf::<&[u8], &[u8]>(rocks.family(CF_ENTRIES), None, None);
                    });
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
        for reader in readers {
            assert!(reader.join().unwrap() > 0);
        }
    });
    let wanted = ids(&log);
    drop(log);
    assert_eq!(ids(&open(dir.path())), wanted);
}

fn a_batch_on_disk_does_not_vouch_for_what_a_waiting_truncation_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let log = LogDb::open(dir.path(), without_tail()).unwrap();
    append(&log, records(1, 0..10));
    let gate = Gate::close(&log);
    log.truncate_after(Some(LogIndex(4)), |_| {});
    log.append(records(2, 5..10), |_| {});
    // As if a batch that was taken before the truncation reached the disk only now.
    log.shared().state.lock().written(10, 0);
    assert_eq!(read(&log, 0..99), [records(1, 0..5), records(2, 5..10)].concat());
    drop(gate);
}

fn metrics_carry_the_names_that_dashboards_know() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    append(&log, records(1, 0..3));
    let registry = prometheus::Registry::new();
    log.metrics().register(&registry).unwrap();
    assert!(log.metrics().register(&registry).is_err(), "twice");
    let names: Vec<String> = registry.gather().iter().map(|family| family.name().to_owned()).collect();
    let wanted =
        ["etcd_disk_wal_fsync_duration_seconds", "etcd_disk_wal_write_bytes_total", "headwater_log_batch_entries"];
    assert_eq!(names, wanted);
    assert!(log.metrics().write_bytes.get() > 0);
}
