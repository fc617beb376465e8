//! Tests of the backup format: round trip, golden bytes, and the refusal of every altered file.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use sha2::Digest;
use tempfile::TempDir;

use super::*;
use headwater_types::{BackupInfo, ClusterId, LogIndex, NodeId, Revision, StoreEpoch, Term, Version};

fn info() -> BackupInfo {
    BackupInfo {
        cluster_id: ClusterId(1),
        node_id: NodeId(2),
        epoch: Some(StoreEpoch(3)),
        term: Term(4),
        index: LogIndex(5),
        revision: Revision(6),
        compact_revision: None,
        live_keys: 7,
        live_bytes: 8,
        leases: 9,
        taken_unix_ms: 10,
        version: "1".into(),
        needs: Version::V0_3,
        files: vec![],
    }
}

struct TestBed {
    dir: TempDir,
    file: PathBuf,
}

impl TestBed {
    /// A backup of these files.
    fn new(files: &[(&str, &[u8])]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let from = dir.path().join("from");
        fs::create_dir(&from).unwrap();
        for (name, content) in files {
            fs::write(from.join(name), content).unwrap();
        }
        let source = BackupSource::new(&from, info()).unwrap();
        let mut bytes = Vec::new();
        let send = |chunk: bytes::Bytes| {
            assert!(!chunk.is_empty() && chunk.len() <= 700);
            bytes.extend_from_slice(&chunk);
            true
        };
        source.send(700, send).unwrap();
        assert_eq!(bytes.len() as u64, source.total_bytes());
        assert_eq!(bytes.len() % 512, 32, "etcd's tools look for it");
        let file = dir.path().join("backup");
        fs::write(&file, bytes).unwrap();
        Self { dir, file }
    }

    fn extract(&self) -> Result<PathBuf, BackupError> {
        let to = tempfile::tempdir_in(self.dir.path()).unwrap().keep();
        extract(&self.file, &to).map(|_| to)
    }
}

const FILES: &[(&str, &[u8])] = &[("000001.sst", &[7; 1500]), ("CURRENT", b"MANIFEST\n"), ("EMPTY", b"")];

fn content(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read(&path).unwrap())
        })
        .collect();
    found.sort();
    found
}

#[test]
fn what_went_in_comes_out() {
    let exact = vec![1; 1024];
    for files in [FILES, &[], &[("one", b"")], &[("exact", exact.as_slice())]] {
        let bed = TestBed::new(files);
        let found = inspect(&bed.file).unwrap();
        assert_eq!(BackupInfo { files: vec![], ..found.info.clone() }, info());
        assert_eq!(found.info.files.len(), files.len());
        assert_eq!(fs::read(&bed.file).unwrap()[found.total_bytes as usize - 32..], found.digest);
        let wanted: Vec<_> = files.iter().map(|(name, content)| ((*name).to_owned(), content.to_vec())).collect();
        assert_eq!(content(&bed.extract().unwrap()), wanted);
    }
}

#[test]
fn golden_bytes() {
    let bed = TestBed::new(&[("a", b"xyz")]);
    let bytes = fs::read(&bed.file).unwrap();
    assert_eq!(bytes.len(), 512 + 512 + 32);
    let start =
        b"HWBACKUP\0\0\0\x1f\x03\x08\x01\x10\x02\x18\x03\x20\x04\x28\x05\x30\x06\x40\x07\x48\x08\x50\x09\x58\x0a";
    assert_eq!(bytes[..start.len()], start[..]);
    assert_eq!(bytes[start.len()..43], *b"\x62\x011\x6a\x05\x0a\x01a\x10\x03");
    assert!(bytes[43..512].iter().all(|byte| *byte == 0));
    assert_eq!(bytes[512..515], *b"xyz");
    assert!(bytes[515..1024].iter().all(|byte| *byte == 0));
}

#[test]
fn what_is_cut_or_longer_is_refused() {
    let bed = TestBed::new(FILES);
    let whole = fs::read(&bed.file).unwrap();
    let longer = |extra: usize| [whole.clone(), vec![0; extra]].concat();
    let cuts = (0..whole.len()).map(|length| whole[..length].to_vec());
    for bytes in cuts.chain([longer(1), longer(32), longer(512)]) {
        fs::write(&bed.file, &bytes).unwrap();
        let error = inspect(&bed.file).unwrap_err();
        match error {
            BackupError::Foreign { .. } => assert_eq!(bytes.len(), 0, "{error}"),
            BackupError::Damaged { .. } => {}
            BackupError::Io { .. } => panic!("{} bytes: {error}", bytes.len()),
            BackupError::TooNew(_) => panic!("{} bytes: {error}", bytes.len()),
        }
    }
}

#[test]
fn files_of_others_are_called_that() {
    let bed = TestBed::new(FILES);
    for other in [&b"PK\x03\x04"[..], &[0; 4096 + 32], b"HWBACKUQ1234"] {
        fs::write(&bed.file, other).unwrap();
        assert!(matches!(inspect(&bed.file), Err(BackupError::Foreign { .. })), "{other:?}");
    }
    fs::remove_file(&bed.file).unwrap();
    assert!(matches!(inspect(&bed.file), Err(BackupError::Io { .. })));
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    for name in ["../x", "a/b", "", ".", "..", "a\0", "ä"] {
        let files = vec![headwater_types::BackupFile { name: name.into(), size: 0 }];
        let encoded = headwater_proto::codec::encode_backup(&BackupInfo { files, ..info() });
        let mut bytes = [&b"HWBACKUP"[..], &(encoded.len() as u32).to_be_bytes(), &encoded].concat();
        bytes.resize(512, 0);
        let digest = sha2::Sha256::digest(&bytes);
        bytes.extend_from_slice(&digest);
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("backup");
        fs::write(&file, bytes).unwrap();
        let error = inspect(&file).unwrap_err().to_string();
        assert!(error.contains("no name of a file"), "{name:?}: {error}");
    }
}

proptest! {
    #[test]
    fn one_bit_anywhere_is_noticed(at: prop::sample::Index, bit in 0..8u8) {
        let bed = TestBed::new(FILES);
        let mut bytes = fs::read(&bed.file).unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        fs::write(&bed.file, bytes).unwrap();
        let error = inspect(&bed.file).unwrap_err();
        prop_assert!(matches!(error, BackupError::Damaged { .. } | BackupError::Foreign { .. }), "byte {at}: {error}");
        prop_assert!(bed.extract().is_err());
    }
}

/// Mutations that are tried, count. Each has its number as seed.
const MUTATIONS: u64 = 2000;

/// Makes one to four changes to `bytes`.
fn mutate(bytes: &mut Vec<u8>, rng: &mut SmallRng) {
    for _ in 0..rng.random_range(1..=4) {
        if bytes.is_empty() {
            return;
        }
        // Half of the changes hit the description, where the structure is.
        let end = if rng.random_bool(0.5) { bytes.len().min(96) } else { bytes.len() };
        let at = rng.random_range(0..end);
        match rng.random_range(0..7) {
            0 => bytes[at] ^= 1 << rng.random_range(0..8),
            1 => bytes[at] = *[0, 1, 0x7f, 0x80, 0xff].get(rng.random_range(0..5usize)).unwrap(),
            2 => bytes.truncate(at),
            3 => bytes.insert(at, rng.random()),
            4 => drop(bytes.remove(at)),
            5 => {
                let part = bytes[at..(at + rng.random_range(0..64usize)).min(bytes.len())].to_vec();
                bytes.splice(at..at, part);
            }
            _ => {
                let last = (at + 10).min(bytes.len());
                rng.fill_bytes(&mut bytes[at..last]);
            }
        }
    }
}

/// Gives changed bytes a valid length and a correct checksum, as an attacker would.
fn reseal(bytes: &mut Vec<u8>) {
    bytes.truncate(bytes.len().saturating_sub(DIGEST_BYTES));
    bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES as usize).max(BLOCK_BYTES as usize), 0);
    let digest = sha2::Sha256::digest(&*bytes);
    bytes.extend_from_slice(&digest);
}

/// No byte of a file can be trusted: every change is refused with a text, or yields plain files in
/// the folder, and nothing beside it.
#[test]
fn hostile_backups_are_refused_or_stay_in_their_folder() {
    let bed = TestBed::new(FILES);
    let good = fs::read(&bed.file).unwrap();
    let around = tempfile::tempdir().unwrap();
    let (mut refused, mut taken) = (0, 0);
    for seed in 0..MUTATIONS {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut bytes = good.clone();
        mutate(&mut bytes, &mut rng);
        let is_resealed = rng.random_bool(0.7);
        if is_resealed {
            reseal(&mut bytes);
        }
        if bytes == good {
            continue;
        }
        fs::write(&bed.file, &bytes).unwrap();
        let inspected = inspect(&bed.file);
        let to = around.path().join("to");
        fs::create_dir(&to).unwrap();
        let extracted = extract(&bed.file, &to);
        match (inspected, extracted) {
            (Err(error), Err(_)) => {
                assert!(
                    !error.to_string().is_empty() && !matches!(error, BackupError::Io { .. }),
                    "seed {seed}: {error}"
                );
                refused += 1;
            }
            (Ok(verified), Ok(_)) => {
                assert!(is_resealed, "seed {seed}: a change without a new checksum was taken");
                let names: Vec<String> = verified.info.files.iter().map(|file| file.name.clone()).collect();
                let found: Vec<String> = content(&to).into_iter().map(|(name, _)| name).collect();
                assert_eq!(found.len(), names.len(), "seed {seed}: {names:?}");
                taken += 1;
            }
            (inspected, extracted) => panic!("seed {seed}: {inspected:?}, {extracted:?}"),
        }
        fs::remove_dir_all(&to).unwrap();
        assert_eq!(fs::read_dir(around.path()).unwrap().count(), 0, "seed {seed}: something lies beside the folder");
    }
    assert!(refused > MUTATIONS / 2 && taken > MUTATIONS / 50, "{refused} refused, {taken} taken");
}

/// A header that claims a huge description is refused before memory is allocated for it.
#[test]
fn a_description_is_no_longer_than_its_bound() {
    let bed = TestBed::new(FILES);
    let good = fs::read(&bed.file).unwrap();
    for length in [INFO_BYTES_MAX as u32 + 1, u32::MAX, good.len() as u32] {
        let mut bytes = good.clone();
        bytes[8..12].copy_from_slice(&length.to_be_bytes());
        reseal(&mut bytes);
        fs::write(&bed.file, &bytes).unwrap();
        let error = inspect(&bed.file).unwrap_err().to_string();
        assert!(error.contains("description does not fit"), "{length}: {error}");
    }
}
