//! What only a log in segments has: rolling over to the next file, files that are written over, and
//! damage in them.

use super::crash::contents;
use super::inspect::{inspect, texts};
use super::*;
use crate::error::DAMAGED;

/// Runs `test` on a log of several segments: its folder, and a copy to damage.
fn several(test: impl Fn(&Path, &Path)) {
    with_form(LogForm::Segments, || {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("log");
        let log = open(&dir);
        durably(|done| log.save_vote(vote(4), done)).unwrap();
        for index in 0..60 {
            append(&log, vec![large(index)]);
        }
        drop(log);
        assert!(segments(&dir).len() > 4, "{:?}", segments(&dir));
        test(&dir, &temp.path().join("copy"));
    });
}

fn large(index: u64) -> LogRecord {
    LogRecord { payload: vec![index as u8; 300].into(), ..record(1, index) }
}

fn segments(dir: &Path) -> Vec<PathBuf> {
    files_with_extension(dir, "segment")
}

fn spares(dir: &Path) -> usize {
    files_with_extension(dir, "spare").len()
}

fn copy(dir: &Path, to: &Path) {
    fs::remove_dir_all(to).unwrap_or_default();
    copy_dir(dir, to);
}

fn change(path: &Path, act: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    act(&mut bytes);
    fs::write(path, bytes).unwrap();
}

#[test]
fn purged_segments_are_written_over() {
    with_form(LogForm::Segments, || {
        let temp = tempfile::tempdir().unwrap();
        let mut log = open(temp.path());
        let (mut numbers, mut next) = (Vec::new(), 0);
        for round in 0..30 {
            for _ in 0..40 {
                append(&log, vec![large(next)]);
                next += 1;
            }
            durably(|done| log.purge(id(1, next - 5), done)).unwrap();
            // The end of the writer waits for the reclaimer.
            drop(log);
            let files = segments(temp.path());
            assert!(files.len() <= 2, "round {round}: {files:?}");
            assert!(spares(temp.path()) <= 2, "round {round}");
            assert!(files.iter().all(|path| fs::metadata(path).unwrap().len() <= 4096), "round {round}");
            numbers.extend(files);
            log = LogDb::open(temp.path(), without_tail()).unwrap();
            assert_eq!(read(&log, 0..next), (next - 4..next).map(large).collect::<Vec<_>>(), "round {round}");
            assert!(inspect(temp.path()).1.is_empty());
        }
        numbers.dedup();
        assert_eq!(numbers.len(), 30, "each round needs new ones: {numbers:?}");
        assert!(spares(temp.path()) > 0);
    });
}

#[test]
fn a_reader_keeps_the_segments_that_it_needs() {
    with_form(LogForm::Segments, || {
        let temp = tempfile::tempdir().unwrap();
        let log = LogDb::open(temp.path(), without_tail()).unwrap();
        for index in 0..40 {
            append(&log, vec![large(index)]);
        }
        let disk = Arc::clone(&log.shared().disk.read());
        let mut reader = disk.reader(0, 40);
        assert_eq!(reader.next().unwrap(), large(0));
        // Removes the segments below the reader, and writes over those that may be.
        for index in 40..200 {
            append(&log, vec![large(index)]);
            durably(|done| log.purge(id(1, index - 1), done)).unwrap();
        }
        log.close();
        for index in 1..40 {
            assert_eq!(reader.next().unwrap(), large(index));
        }
        assert!(reader.next().is_err(), "no more was asked for");
    });
}

#[test]
fn a_write_longer_than_a_segment_has_one_of_its_own() {
    with_form(LogForm::Segments, || {
        let temp = tempfile::tempdir().unwrap();
        let log = LogDb::open(temp.path(), without_tail()).unwrap();
        append(&log, (0..3).map(large).collect());
        append(&log, (3..100).map(large).collect());
        append(&log, (100..103).map(large).collect());
        let wanted = (0..103).map(large).collect::<Vec<_>>();
        assert_eq!(read(&log, 0..200), wanted);
        drop(log);
        assert_eq!(segments(temp.path()).len(), 3);
        assert_eq!(read(&open(temp.path()), 0..200), wanted);
    });
}

#[test]
fn every_flipped_bit_is_refused_and_everything_else_can_be_read() {
    several(|dir, flipped| {
        for (place, path) in segments(dir).iter().enumerate() {
            for at in (0..written_bytes(path)).step_by(61) {
                copy(dir, flipped);
                let damaged = flipped.join("segments").join(path.file_name().unwrap());
                change(&damaged, |bytes| bytes[at] ^= 0x20);
                let before = data_files(flipped);
                let error = refused(flipped, options());
                assert!(error.contains(DAMAGED), "segment {place}, byte {at}: {error}");
                assert!(data_files(flipped) == before, "segment {place}, byte {at}: a refused log was changed");
                let (found, damage) = inspect(flipped);
                let texts = texts(&damage);
                let name = path.file_name().unwrap().to_str().unwrap();
                assert!(
                    texts.iter().any(|text| text.contains(name) || text.contains("acknowledged")),
                    "byte {at}: {texts:?}"
                );
                // One entry, or those of a segment without a header, or none: of a vote.
                let least = if at < 512 { 60 - 12 } else { 59 };
                assert!(found.len() >= least, "segment {place}, byte {at}: {} of 60 entries: {texts:?}", found.len());
            }
        }
    });
}

#[test]
fn a_damaged_end_is_told_from_a_torn_one_without_the_mark() {
    several(|dir, copied| {
        copy(dir, copied);
        fs::remove_file(copied.join("headwater-mark")).unwrap();
        let last = segments(copied).pop().unwrap();
        // The last frame is gone: as after a loss of power in the middle of its write.
        let end = written_bytes(&last);
        change(&last, |bytes| bytes[end - 100..].fill(0));
        let wanted = open(copied);
        assert_eq!(ids(&wanted).len(), 59);
        drop(wanted);
        // One before it: what follows was written after it was acknowledged.
        copy(dir, copied);
        fs::remove_file(copied.join("headwater-mark")).unwrap();
        change(&last, |bytes| bytes[600] ^= 1);
        let error = refused(copied, options());
        assert!(error.contains("a whole write follows") && error.contains("acknowledged data is lost"), "{error}");
    });
}

#[test]
fn a_segment_that_is_gone_is_named() {
    several(|dir, copied| {
        let files = segments(dir);
        for (place, path) in files.iter().enumerate() {
            copy(dir, copied);
            fs::remove_file(copied.join("segments").join(path.file_name().unwrap())).unwrap();
            let error = refused(copied, options());
            let wanted = match place {
                last if last + 1 == files.len() => "acknowledged data is lost",
                _ => "log/entries/0: missing",
            };
            assert!(error.contains(wanted) && error.contains(DAMAGED), "segment {place}: {error}");
            let (found, damage) = inspect(copied);
            assert!(!damage.is_empty() && found.len() > 40, "segment {place}: {} entries, {damage:?}", found.len());
        }
    });
}

#[test]
fn a_segment_that_was_only_named_is_no_damage() {
    several(|dir, copied| {
        let before = contents(&LogDb::open(dir, options()).unwrap());
        let next = |dir: &Path| {
            let last = segments(dir).pop().unwrap();
            let number = u64::from_str_radix(last.file_stem().unwrap().to_str().unwrap(), 16).unwrap();
            last.with_file_name(format!("{:016x}.segment", number + 1))
        };
        let first = fs::read(&segments(dir)[0]).unwrap();
        for (what, content) in [("empty", vec![]), ("zeros", vec![0; 4096]), ("an earlier life", first)] {
            copy(dir, copied);
            fs::write(next(copied), content).unwrap();
            assert!(inspect(copied).1.is_empty(), "{what}");
            let log = open(copied);
            assert_eq!(contents(&log), before, "{what}");
            for index in 60..90 {
                append(&log, vec![large(index)]);
            }
            drop(log);
            assert_eq!(ids(&open(copied)).len(), 90, "{what}");
        }
        // Not so in the middle.
        copy(dir, copied);
        let middle = segments(copied)[2].clone();
        change(&middle, |bytes| bytes.fill(0));
        assert!(refused(copied, options()).contains("lost what it held"));
    });
}

#[test]
fn what_a_file_held_before_is_never_part_of_the_log() {
    with_form(LogForm::Segments, || {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("log");
        let log = open(&dir);
        append(&log, vec![large(0)]);
        append(&log, vec![large(1)]);
        let image = temp.path().join("image");
        crash_copy(&log, &image);
        drop(log);
        // A client writes the bytes of the frame that could follow.
        let end = written_bytes(&newest_file(&image));
        let log = open(&dir);
        append(&log, vec![large(2)]);
        let frame = fs::read(newest_file(&dir)).unwrap()[end..written_bytes(&newest_file(&dir))].to_vec();
        drop(log);
        let other = temp.path().join("other");
        let log = open(&other);
        append(&log, vec![large(0)]);
        append(&log, vec![large(1)]);
        drop(log);
        change(&newest_file(&other), |bytes| bytes[end..end + frame.len()].copy_from_slice(&frame));
        assert_eq!(ids(&open(&other)).len(), 2, "it has the salt of another log");
    });
}

#[test]
fn entries_that_an_unreadable_write_may_have_replaced_are_not_shown() {
    // In one segment, and with the next write in another one.
    for segment_bytes in [1 << 20, 3000] {
        with_form(LogForm::Segments, || {
            let temp = tempfile::tempdir().unwrap();
            let log = LogDb::open(temp.path(), LogOptions { segment_bytes, ..options() }).unwrap();
            for index in 0..20 {
                append(&log, vec![record(1, index)]);
            }
            log.save_committed(Some(id(1, 7))).unwrap();
            let gate = Gate::close(&log);
            let (done, result) = waiter();
            log.truncate_after(Some(LogIndex(9)), |_| {});
            log.append((10..15).map(|index| LogRecord { term: Term(2), ..large(index) }).collect(), done);
            drop(gate);
            result.recv().unwrap().unwrap();
            for index in 15..20 {
                append(&log, vec![LogRecord { term: Term(2), ..large(index) }]);
            }
            drop(log);
            assert_eq!(inspect(temp.path()).0.len(), 20);
            // In the payload of entry 12, whose frame also has the truncation.
            let path = segments(temp.path())
                .into_iter()
                .find(|path| fs::read(path).unwrap().windows(200).any(|bytes| bytes.iter().all(|byte| *byte == 12)));
            change(&path.unwrap(), |bytes| {
                let at = bytes.windows(200).position(|bytes| bytes.iter().all(|byte| *byte == 12)).unwrap();
                bytes[at] ^= 1;
            });
            let (found, damage) = inspect(temp.path());
            let wanted: Vec<LogId> =
                (0..8).map(|index| id(1, index)).chain((15..20).map(|index| id(2, index))).collect();
            assert_eq!(found, wanted, "{segment_bytes}: {damage:?}");
            assert!(texts(&damage).contains(&"log/entries/8 to 14: missing".to_owned()), "{damage:?}");
        });
    }
}

#[test]
fn damage_found_by_a_read_poisons_the_log() {
    with_form(LogForm::Segments, || {
        let temp = tempfile::tempdir().unwrap();
        let log = LogDb::open(temp.path(), without_tail()).unwrap();
        for index in 0..30 {
            append(&log, vec![large(index)]);
        }
        let path = &segments(temp.path())[0];
        let at = fs::read(path).unwrap().windows(200).position(|bytes| bytes.iter().all(|byte| *byte == 4)).unwrap();
        let file = fs::OpenOptions::new().write(true).open(path).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[0xff], at as u64).unwrap();
        assert_eq!(read(&log, 0..4), (0..4).map(large).collect::<Vec<_>>());
        let error = log.read(LogIndex(0)..LogIndex(9)).unwrap_err().to_string();
        assert!(error.contains("segment, byte") && error.contains("entries 4 to 4: the checksum is wrong"), "{error}");
        let refused = durably(|done| log.append(vec![large(30)], done)).unwrap_err();
        assert!(refused.to_string().contains("poisoned by an earlier failure"), "{refused}");
        assert!(matches!(log.vote(), Err(StorageError::Poisoned(_))), "never votes with a damaged log");
    });
}
