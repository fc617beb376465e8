//! A checkpoint as the stream of bytes of a backup.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::{BackupError, DIGEST_BYTES, INFO_BYTES_MAX, MAGIC, padding};
use headwater_proto::codec;
use headwater_types::{BackupFile, BackupInfo};

/// A backup that can be sent: the description and the files of a checkpoint. The files must not
/// change before [`Self::send`] has returned.
#[derive(Debug)]
pub struct BackupSource {
    dir: PathBuf,
    info: BackupInfo,
    header: Vec<u8>,
    total_bytes: u64,
}

impl BackupSource {
    /// Makes a backup of the checkpoint in `dir`; `info` describes its content. The list of files
    /// in `info` is replaced by the files in `dir`.
    ///
    /// # Errors
    ///
    /// [`BackupError::Io`] if the files cannot be listed, or are too many for a description.
    pub fn new(dir: &Path, mut info: BackupInfo) -> Result<Self, BackupError> {
        info.files = list(dir).map_err(|source| BackupError::Io { path: dir.into(), source })?;
        let encoded = codec::encode_backup(&info);
        if encoded.len() > INFO_BYTES_MAX {
            let source = io::Error::other(format!("{} files are too many for a backup", info.files.len()));
            return Err(BackupError::Io { path: dir.into(), source });
        }
        let mut header = MAGIC.to_vec();
        header.extend_from_slice(&(encoded.len() as u32).to_be_bytes());
        header.extend_from_slice(&encoded);
        header.resize(header.len() + padding(header.len() as u64) as usize, 0);
        let files: u64 = info.files.iter().map(|file| file.size).sum();
        let total_bytes = header.len() as u64 + files + padding(files) + DIGEST_BYTES as u64;
        Ok(Self { dir: dir.into(), info, header, total_bytes })
    }

    /// The description of the content, with the list of files.
    pub fn info(&self) -> &BackupInfo {
        &self.info
    }

    /// Length of the backup, checksum included, bytes.
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// Passes the bytes of the backup to `send` in chunks of at most `chunk_bytes`, which must be
    /// at least 512. The checksum is a chunk of its own. Stops and returns `Ok` once `send` returns
    /// false. Blocks.
    ///
    /// # Errors
    ///
    /// [`BackupError::Io`] if a file cannot be read to its end.
    pub fn send(&self, chunk_bytes: usize, mut send: impl FnMut(Bytes) -> bool) -> Result<(), BackupError> {
        let mut hash = Sha256::new();
        let mut pass = |chunk: Bytes| {
            hash.update(&chunk);
            send(chunk)
        };
        for chunk in self.header.chunks(chunk_bytes) {
            if !pass(Bytes::copy_from_slice(chunk)) {
                return Ok(());
            }
        }
        let mut files = 0;
        for file in &self.info.files {
            let path = self.dir.join(&file.name);
            let failed = |source| BackupError::Io { path: path.clone(), source };
            let mut reader = File::open(&path).map_err(failed)?;
            let mut left = file.size;
            while left > 0 {
                let mut chunk = vec![0; chunk_bytes.min(usize::try_from(left).unwrap_or(usize::MAX))];
                reader.read_exact(&mut chunk).map_err(failed)?;
                left -= chunk.len() as u64;
                if !pass(chunk.into()) {
                    return Ok(());
                }
            }
            files += file.size;
        }
        let zeros = vec![0; padding(files) as usize];
        if zeros.is_empty() || pass(zeros.into()) {
            let digest = hash.finalize();
            send(Bytes::copy_from_slice(&digest));
        }
        Ok(())
    }
}

/// The files in `dir` with their sizes, sorted by name.
fn list(dir: &Path) -> io::Result<Vec<BackupFile>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name().into_string().map_err(|name| io::Error::other(format!("{name:?} is no name")))?;
        files.push(BackupFile { name, size: entry.metadata()?.len() });
    }
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(files)
}
