//! Reads the file of a backup to its end and compares it with its checksum.
//!
//! Invariant: every length and name is checked before it is used.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use bytes::Bytes;
use headwater_files::{self as files, FileWriter};
use sha2::{Digest, Sha256};

use super::{BLOCK_BYTES, BUFFER_BYTES, BackupError, DIGEST_BYTES, INFO_BYTES_MAX, MAGIC, PREFIX_BYTES, padding};
use headwater_proto::codec::{self, CodecError};
use headwater_types::{BackupFile, BackupInfo};

/// The description and the checksum of a backup of which the checksum is correct.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The description of the content of the backup.
    pub info: BackupInfo,
    /// The SHA-256 at the end of the file, of everything before it.
    pub digest: [u8; DIGEST_BYTES],
    /// Length of the file, bytes.
    pub total_bytes: u64,
}

impl Verified {
    /// A number that identifies a restore of this backup with these options: equal for all members
    /// that were restored alike. Never 0.
    pub fn origin(&self, bump_index: u64, bump_revision: i64, mark_compacted: bool, disable_auth: bool) -> u64 {
        let hash = Sha256::new()
            .chain_update(self.digest)
            .chain_update(bump_index.to_be_bytes())
            .chain_update(bump_revision.to_be_bytes())
            .chain_update([u8::from(mark_compacted)]);
        // Without the option the number is that of earlier programs.
        let hash = if disable_auth { hash.chain_update([1]) } else { hash }.finalize();
        hash.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte)).max(1)
    }
}

/// Reads all of the backup in `path` and checks it. Blocks.
///
/// # Errors
///
/// Every [`BackupError`].
pub fn inspect(path: &Path) -> Result<Verified, BackupError> {
    walk(path, |_, _| Ok(()))
}

/// Unpacks the backup in `path` into the empty folder `dir`, durably. After an error the content of
/// `dir` must not be used. Blocks.
///
/// # Errors
///
/// Every [`BackupError`].
pub fn extract(path: &Path, dir: &Path) -> Result<Verified, BackupError> {
    let mut open: Option<FileWriter> = None;
    let verified = walk(path, |file, bytes| {
        let target = dir.join(&file.name);
        let mut out = match open.take() {
            Some(same) if same.path() == target => same,
            other => {
                other.map_or(Ok(()), FileWriter::finish)?;
                FileWriter::create_new(&target)?
            }
        };
        out.write(bytes)?;
        open = Some(out);
        Ok(())
    })?;
    open.map_or(Ok(()), FileWriter::finish)?;
    files::sync_dir(dir)?;
    Ok(verified)
}

/// A file reader that hashes the bytes it reads.
struct Hashed<'a> {
    path: &'a Path,
    file: File,
    hash: Sha256,
}

impl Hashed<'_> {
    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), BackupError> {
        let read = self.file.read_exact(buffer);
        read.map_err(|source| BackupError::Io { path: self.path.into(), source })?;
        self.hash.update(&*buffer);
        Ok(())
    }

    /// Reads the digest at the end of the file, and compares it with the hash of all bytes read
    /// before.
    fn verify(mut self) -> Result<[u8; DIGEST_BYTES], BackupError> {
        let mut digest = [0; DIGEST_BYTES];
        let read = self.file.read_exact(&mut digest);
        read.map_err(|source| BackupError::Io { path: self.path.into(), source })?;
        if digest == *self.hash.finalize() {
            return Ok(digest);
        }
        let detail = "its checksum does not fit its contents".to_owned();
        Err(BackupError::Damaged { path: self.path.into(), detail })
    }
}

/// Reads and checks a backup. Calls `visit` with the files in order, each in chunks (one empty
/// chunk for an empty file), before the checksum is compared.
fn walk(
    path: &Path,
    mut visit: impl FnMut(&BackupFile, &[u8]) -> Result<(), BackupError>,
) -> Result<Verified, BackupError> {
    let failed = |source| BackupError::Io { path: path.into(), source };
    let damaged = |detail: String| BackupError::Damaged { path: path.into(), detail };
    let mut file = File::open(path).map_err(failed)?;
    let total_bytes = file.metadata().map_err(failed)?.len();
    let mut start = Vec::with_capacity(PREFIX_BYTES);
    (&mut file).take(PREFIX_BYTES as u64).read_to_end(&mut start).map_err(failed)?;
    let magic = &start[..start.len().min(MAGIC.len())];
    if start.is_empty() || !MAGIC.starts_with(magic) {
        return Err(BackupError::Foreign { path: path.into() });
    }
    if total_bytes % BLOCK_BYTES != DIGEST_BYTES as u64 {
        return Err(damaged(format!(
            "no backup is {total_bytes} bytes long: it was cut short, or something was added"
        )));
    }
    let mut reader = Hashed { path, file, hash: Sha256::new_with_prefix(&start) };
    let length =
        start[MAGIC.len()..].try_into().map(u32::from_be_bytes).expect("invariant: the file is longer") as usize;
    let header_bytes = (PREFIX_BYTES + length) as u64;
    if length > INFO_BYTES_MAX || header_bytes + DIGEST_BYTES as u64 > total_bytes {
        return Err(damaged("its description does not fit".to_owned()));
    }
    let mut encoded = vec![0; length];
    reader.fill(&mut encoded)?;
    let info = match codec::decode_backup(Bytes::from(encoded)) {
        Ok(info) => info,
        Err(CodecError::TooNew(too_new)) => {
            let mut left = total_bytes - header_bytes - DIGEST_BYTES as u64;
            let mut buffer = vec![0; BUFFER_BYTES];
            while left > 0 {
                let chunk = &mut buffer[..BUFFER_BYTES.min(usize::try_from(left).unwrap_or(usize::MAX))];
                reader.fill(chunk)?;
                left -= chunk.len() as u64;
            }
            return Err(match reader.verify() {
                Ok(_) => too_new.into(),
                Err(error) => error,
            });
        }
        Err(error) => return Err(damaged(error.to_string())),
    };
    let files_bytes = check_files(&info).map_err(damaged)?;
    let body = files_bytes.checked_add(padding(files_bytes));
    let wanted = body.and_then(|body| body.checked_add(header_bytes + padding(header_bytes) + DIGEST_BYTES as u64));
    if wanted != Some(total_bytes) {
        let wanted = wanted.map_or("far more".to_owned(), |wanted| wanted.to_string());
        return Err(damaged(format!("it is {total_bytes} bytes long and should be {wanted}")));
    }

    let mut zeros = [0; BLOCK_BYTES as usize];
    reader.fill(&mut zeros[..padding(header_bytes) as usize])?;
    let mut buffer = vec![0; BUFFER_BYTES];
    for file in &info.files {
        let mut left = file.size;
        loop {
            let chunk = &mut buffer[..BUFFER_BYTES.min(usize::try_from(left).unwrap_or(usize::MAX))];
            reader.fill(chunk)?;
            visit(file, chunk)?;
            left -= chunk.len() as u64;
            if left == 0 {
                break;
            }
        }
    }
    reader.fill(&mut zeros[..padding(files_bytes) as usize])?;
    let digest = reader.verify()?;
    Ok(Verified { info, digest, total_bytes })
}

/// The length of all files together, bytes. An error for a name that occurs twice, consists of dots
/// alone, or has other characters than ASCII letters, digits, `.`, `-` and `_`. Also for a sum that
/// is too large.
fn check_files(info: &BackupInfo) -> Result<u64, String> {
    let mut names = BTreeSet::new();
    let mut total = 0u64;
    for file in &info.files {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        if !file.name.chars().all(is_plain) || file.name.trim_matches('.').is_empty() || !names.insert(&file.name) {
            return Err(format!("{:?} is no name of a file in it", file.name));
        }
        total = total.checked_add(file.size).filter(|total| *total < u64::MAX / 2).ok_or("its files are too long")?;
    }
    Ok(total)
}
