//! `headwater snapshot save`: a backup of a running member, or of the data directory of a dead one.
//! The backup is in a file that is whole or not there.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use headwater_files::{self as files, FileError, FileWriter};
use serde::Serialize;
use sha2::{Digest, Sha256};
use tonic::{Request, Streaming};

use super::Summary;
use super::salvage::{EntryArgs, ReportText, beside, salvage, write};
use crate::ClientArgs;
use crate::connect::Cluster;
use crate::error::{CliError, Tried};
use crate::notice;
use crate::output::{self, WriteOut, human_bytes};
use crate::progress::Progress;
use headwater_client::Attempt;
use headwater_proto::pb::etcdserverpb::{SnapshotRequest, SnapshotResponse};
use headwater_server::backup::{self, BackupError};
use headwater_types::Supported;

/// Longest wait for the next chunk; before the first one, the member flushes its memory to disk.
const STALL_MAX: Duration = Duration::from_secs(60);
/// Bytes of the checksum at the end.
const DIGEST_BYTES: usize = 32;

/// Save a backup of a running member; it goes on serving meanwhile
///
/// The first endpoint that answers is asked. The backup has the state of that member: a follower's
/// may be a moment old. With --from, the data directory of a node that does not run is read
/// instead, and left as it is: its state, and its log up to the first entry that no member can
/// apply.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct SaveArgs {
    /// Destination; replaced only once the new backup is complete and checked
    file: PathBuf,
    /// Show progress even if standard error is no terminal (lines instead of a bar)
    #[arg(long)]
    progress: bool,
    /// Read the data directory of a node that does not run
    #[arg(long, value_name = "DIR")]
    pub(super) from: Option<PathBuf>,
    #[command(flatten, next_help_heading = "With --from")]
    entries: EntryArgs,
}

/// Saves a backup out of the data directory `dir`.
pub(super) fn run_offline(
    args: &SaveArgs,
    dir: &Path,
    client: &ClientArgs,
    supported: Supported,
) -> Result<(), CliError> {
    let part = part_of(&args.file)?;
    let salvaged = salvage(dir, beside(&args.file, ".work"), &args.entries, supported, args.progress)?;
    let written = write(&salvaged, &part, args.progress).and_then(|()| check(&part, salvaged.backup.total_bytes()));
    let summary = match written {
        Ok(summary) => summary,
        Err(error) => {
            remove_part(&part);
            return Err(error);
        }
    };
    let summary =
        summary.ok_or_else(|| CliError::Finding(format!("{} changed while it was written", part.display())))?;
    move_into_place(&part, &args.file)?;
    let report = ReportText::from(&salvaged.report);
    let mut out = std::io::stdout().lock();
    if client.write_out == WriteOut::Json {
        return output::print_json(&mut out, &Offline { backup: summary, salvage: report });
    }
    writeln!(out, "Snapshot saved at {}", args.file.display())?;
    writeln!(out, "{} from {}, sha-256 {}", summary.line(), dir.display(), summary.sha256)?;
    for line in report.lines() {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// A backup out of a data directory, with the report of its making.
#[derive(Serialize)]
struct Offline {
    #[serde(flatten)]
    backup: Summary,
    salvage: ReportText,
}

/// Removes an incomplete file, so that it is not mistaken for a backup.
fn remove_part(part: &Path) {
    if let Err(error) = fs::remove_file(part) {
        notice!("could not remove {}: {error}", part.display());
    }
}

pub(super) async fn run(args: SaveArgs, cluster: &Cluster, client: &ClientArgs) -> Result<(), CliError> {
    let part = part_of(&args.file)?;
    let (endpoint, stream) = open(cluster).await?;
    let fetched = fetch(stream, &part, args.progress).await.map_err(|error| match error {
        Broken::File(error) => {
            CliError::other(anyhow::Error::new(error.source).context(error.path.display().to_string()))
        }
        Broken::Stream(reason) => CliError::Finding(format!("{endpoint}: {reason}; nothing was saved")),
    });
    let saved = match fetched {
        Ok(bytes) => check(&part, bytes),
        Err(error) => Err(error),
    };
    let summary = match saved {
        Ok(summary) => summary,
        Err(error) => {
            remove_part(&part);
            return Err(error);
        }
    };
    move_into_place(&part, &args.file)?;

    let mut out = std::io::stdout().lock();
    match (client.write_out, &summary) {
        (WriteOut::Json, Some(summary)) => output::print_json(&mut out, summary),
        (WriteOut::Simple | WriteOut::Table, Some(summary)) => {
            writeln!(out, "Snapshot saved at {}", args.file.display())?;
            writeln!(out, "{} from {endpoint}, sha-256 {}", summary.line(), summary.sha256)?;
            Ok(())
        }
        // The backup of another server: only its checksum could be verified.
        (_, None) => Ok(writeln!(out, "Snapshot saved at {}", args.file.display())?),
    }
}

fn part_of(file: &Path) -> Result<PathBuf, CliError> {
    let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty());
    if let Some(dir) = dir.filter(|dir| !dir.is_dir()) {
        return Err(CliError::Usage(format!("there is no directory {}: make it first", dir.display())));
    }
    let mut name =
        file.file_name().ok_or_else(|| CliError::Usage(format!("{} names no file", file.display())))?.to_owned();
    name.push(".part");
    Ok(file.with_file_name(name))
}

/// The request, without a deadline: a large backup takes long.
fn asked(attempt: &Attempt) -> Request<SnapshotRequest> {
    let mut request = Request::new(SnapshotRequest {});
    attempt.authorize(&mut request);
    request
}

/// Opens a stream at the first endpoint that accepts the call. Returns the name of the endpoint,
/// and the stream.
async fn open(cluster: &Cluster) -> Result<(String, Streaming<SnapshotResponse>), CliError> {
    let endpoints = cluster.endpoints();
    let mut tried = Vec::new();
    for number in endpoints.order() {
        let asked = async {
            let attempt = cluster.attempt(number).await?;
            let call = async { attempt.maintenance().snapshot(asked(&attempt)).await };
            match tokio::time::timeout(STALL_MAX, call).await {
                Ok(Ok(response)) => Ok(response.into_inner()),
                Ok(Err(status)) => Err(status.message().to_owned()),
                Err(_) => Err("no answer in time".to_owned()),
            }
        };
        match asked.await {
            Ok(stream) => return Ok((endpoints.name(number).to_owned(), stream)),
            Err(reason) => tried.push(Tried { endpoint: endpoints.name(number).to_owned(), reason }),
        }
        endpoints.fail_over(number);
    }
    Err(CliError::Unreachable(tried))
}

enum Broken {
    File(FileError),
    Stream(String),
}

/// Writes the stream to `part`, durably, and compares it with the checksum that ends it. Returns
/// the length in bytes, the checksum included.
async fn fetch(mut stream: Streaming<SnapshotResponse>, part: &Path, with_lines: bool) -> Result<u64, Broken> {
    let mut file = FileWriter::create(part).map_err(Broken::File)?;
    let mut checksum = Trailing::default();
    let mut progress = Progress::Off;
    let mut bytes = 0;
    loop {
        let next = tokio::time::timeout(STALL_MAX, stream.message()).await;
        let chunk = match next {
            Ok(Ok(Some(chunk))) => chunk,
            Ok(Ok(None)) => break,
            Ok(Err(status)) => return Err(Broken::Stream(status.message().to_owned())),
            Err(_) => return Err(Broken::Stream("no more data came".to_owned())),
        };
        if bytes == 0 {
            let total = chunk.blob.len() as u64 + chunk.remaining_bytes;
            progress = Progress::of_bytes("saving", total, with_lines);
        }
        file.write(&chunk.blob).map_err(Broken::File)?;
        checksum.update(&chunk.blob);
        bytes += chunk.blob.len() as u64;
        progress.set(bytes);
    }
    progress.finish();
    file.finish().map_err(Broken::File)?;
    if !checksum.matches() {
        let text = format!("the stream ended after {} without the checksum that belongs to it", human_bytes(bytes));
        return Err(Broken::Stream(text));
    }
    Ok(bytes)
}

/// Hashes all bytes but the last [`DIGEST_BYTES`], which must be that hash.
#[derive(Default)]
struct Trailing {
    hash: Sha256,
    last: Vec<u8>,
}

impl Trailing {
    fn update(&mut self, bytes: &[u8]) {
        self.last.extend_from_slice(bytes);
        let done = self.last.len().saturating_sub(DIGEST_BYTES);
        self.hash.update(&self.last[..done]);
        self.last.drain(..done);
    }

    fn matches(self) -> bool {
        self.last.as_slice() == self.hash.finalize().as_slice()
    }
}

/// Reads and verifies the written file, which must have `bytes` bytes. `None`, for any length, if
/// it is not a backup of Headwater, such as one of etcd.
fn check(part: &Path, bytes: u64) -> Result<Option<Summary>, CliError> {
    match backup::inspect(part) {
        Ok(verified) if verified.total_bytes == bytes => Ok(Some(Summary::from(&verified))),
        Ok(_) => Err(CliError::Finding(format!("{} changed while it was written", part.display()))),
        Err(BackupError::Foreign { .. }) => Ok(None),
        Err(error) => Err(CliError::Finding(error.to_string())),
    }
}

fn move_into_place(part: &Path, file: &Path) -> Result<(), CliError> {
    files::rename(part, file).map_err(|error| {
        let error = anyhow::Error::new(error.source);
        CliError::other(error.context(format!("{} was written but not renamed", part.display())))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_found_however_the_stream_is_cut() {
        let content = b"some content".to_vec();
        let digest = Sha256::digest(&content);
        let whole = [content, digest.to_vec()].concat();
        let matches = |bytes: &[u8], chunk: usize| {
            let mut checksum = Trailing::default();
            bytes.chunks(chunk).for_each(|chunk| checksum.update(chunk));
            checksum.matches()
        };
        for chunk in [1, 5, 12, 32, 33, 100] {
            assert!(matches(&whole, chunk), "pieces of {chunk}");
            for length in 0..whole.len() {
                assert!(!matches(&whole[..length], chunk), "{length} bytes in pieces of {chunk}");
            }
        }
    }

    #[test]
    fn the_part_lies_beside_the_file() {
        assert_eq!(part_of(Path::new("snapshot/b.db")).unwrap(), Path::new("snapshot/b.db.part"));
        assert_eq!(part_of(Path::new("b.db")).unwrap(), Path::new("b.db.part"));
        assert!(part_of(Path::new("snapshot/no/b.db")).unwrap_err().to_string().contains("no directory snapshot/no"));
        assert!(part_of(Path::new("..")).is_err());
    }
}
