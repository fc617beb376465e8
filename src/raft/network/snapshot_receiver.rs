//! Receives a snapshot beside the live state, verifies every chunk and every file, makes all of it
//! durable, opens it, and only then hands it to openraft, which installs it by a rename.
//!
//! Files of a broken attempt are kept: those that match the next offer of the same sender are not
//! sent again.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::Stream;
use headwater_files as files;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::admission;
use super::snapshot_sender::size_and_checksum;
use crate::consensus::Consensus;
use crate::metrics::PeerMetrics;
use crate::snapshot::SnapshotFiles;
use crate::types::{Snapshot, SnapshotMeta, log_id};
use crate::{convert, membership};
use headwater_proto::pb::peer as pb;
use headwater_proto::pb::peer::snapshot_answer::Answer;
use headwater_proto::pb::peer::snapshot_message::Message;
use headwater_types::{NodeId, Version};

/// Silence of the sender after which the transfer ends, and can begin anew. Enough for a chunk by a
/// line of 600 kbit/s. If a message is lost on the way, this side waits for the sender, and the
/// sender for this side, so this is how long the loss delays a member.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(15);
/// Most files in one offer: far above what a state directory ever holds.
const FILES_MAX: usize = 1_000_000;

/// Receives a snapshot from `messages` in a task of its own; returns the stream of answers at once.
/// `peer` are the metrics of the sender `from`.
pub(crate) fn receive(
    consensus: Consensus,
    from: NodeId,
    peer: Arc<PeerMetrics>,
    messages: Streaming<pb::SnapshotMessage>,
) -> impl Stream<Item = Result<pb::SnapshotAnswer, Status>> + Send + use<> {
    let (answers, stream) = mpsc::channel(8);
    tokio::spawn(async move {
        let transfer = peer.receiving();
        match run(&consensus, (from, &peer), messages, &answers).await {
            Ok(()) => {
                consensus.metrics().snapshot_saved(transfer.elapsed());
                transfer.arrived();
            }
            Err(status) => {
                if let Some(snapshots) = peer.refusals.note() {
                    tracing::warn!(%from, snapshots, %status, "receiving a snapshot failed");
                }
                drop(transfer);
                // The sender may be gone already.
                drop(answers.send(Err(status)).await);
            }
        }
    });
    ReceiverStream::new(stream)
}

type Answers = mpsc::Sender<Result<pb::SnapshotAnswer, Status>>;

async fn run(
    consensus: &Consensus,
    (from, peer): (NodeId, &PeerMetrics),
    mut messages: Streaming<pb::SnapshotMessage>,
    answers: &Answers,
) -> Result<(), Status> {
    let Ok(_only_one) = consensus.snapshot_slot().try_lock() else {
        return Err(Status::aborted("this member is receiving another snapshot"));
    };
    let Some(Message::Offer(offer)) = next(&mut messages).await? else {
        return Err(Status::invalid_argument("a snapshot stream begins with an offer"));
    };
    let needs = Version::from_byte(u8::try_from(offer.needs).unwrap_or(u8::MAX));
    let store = consensus.store().ok_or_else(|| Status::unavailable("this member is ending"))?;
    store
        .current()
        .supported()
        .check("the snapshot", needs)
        .map_err(|error| Status::failed_precondition(error.to_string()))?;
    let vote = convert::required_vote(offer.vote)?;
    let last = offer.last.map(convert::log_id_from_pb);
    admission::check_leader(from, &vote, consensus.current_term())
        .and_then(|()| admission::check_log_id(&vote, last.as_ref()))?;
    let meta = SnapshotMeta {
        last_log_id: last,
        last_membership: membership::decode_stored(&offer.membership)
            .map_err(|error| Status::invalid_argument(error.to_string()))?,
    };
    check_names(&offer.files)?;

    let (incoming, name) = (consensus.incoming_dir().to_owned(), format!("from-{from}"));
    let dir = incoming.join(&name);
    let files = offer.files;
    let (missing, files) = blocking({
        let dir = dir.clone();
        move || remove_others(&incoming, &name).and_then(|()| prepare(&dir, &files)).map(|missing| (missing, files))
    })
    .await?;
    tracing::info!(%from, last = ?meta.last_log_id, files = files.len(), missing = missing.len(), "receiving snapshot");
    answer(answers, Answer::Missing(pb::SnapshotMissing { files: missing.clone() })).await?;

    let mut received_bytes = 0;
    for index in missing {
        let described = files[index as usize].clone();
        let mut writer = FileWriter::create(&dir, described)?;
        while !writer.is_complete() {
            let Some(Message::Chunk(chunk)) = next(&mut messages).await? else {
                return Err(Status::data_loss("the snapshot stream ended in the middle of a file"));
            };
            received_bytes += chunk.data.len() as u64;
            peer.received_bytes.inc_by(chunk.data.len() as u64);
            writer = blocking(move || writer.write(index, &chunk).map(|()| writer)).await?;
            answer(answers, Answer::ReceivedBytes(received_bytes)).await?;
        }
        let metrics = consensus.metrics().clone();
        blocking(move || {
            let began = Instant::now();
            writer.finish()?;
            metrics.snapshot_flushed(began.elapsed());
            Ok(())
        })
        .await?;
        headwater_fail_points::fail_point!(SnapshotFileReceived);
    }
    blocking({
        let dir = dir.clone();
        move || Ok(files::sync_dir(&dir)?)
    })
    .await?;

    headwater_fail_points::fail_point!(SnapshotReceived);

    // Opened before openraft receives it, so that the installation is a rename. A slow installation
    // during changes of leader ends openraft's task (spec: reliability §3.7, defect A). A snapshot
    // that cannot be opened is refused here, where the refusal does not end this member.
    let prepared = blocking(move || store.prepare(&dir).map_err(std::io::Error::other)).await?;
    let held = prepared.head().applied.map(|(term, index)| log_id(term.get(), index.get()));
    if held != meta.last_log_id {
        return Err(Status::data_loss(format!("the snapshot holds {held:?}, announced was {:?}", meta.last_log_id)));
    }
    headwater_fail_points::fail_point!(InstallOpened);
    let snapshot = Snapshot { meta, snapshot: SnapshotFiles::ready(prepared) };
    let response = consensus
        .raft()
        .install_full_snapshot(vote, snapshot)
        .await
        .map_err(|error| Status::unavailable(format!("installing the snapshot failed: {error}")))?;
    answer(answers, Answer::Installed(convert::vote_to_pb(&response.vote))).await
}

async fn next(messages: &mut Streaming<pb::SnapshotMessage>) -> Result<Option<Message>, Status> {
    match tokio::time::timeout(SILENCE_TIMEOUT, messages.message()).await {
        Ok(message) => Ok(message?.and_then(|message| message.message)),
        Err(_) => Err(Status::deadline_exceeded("the sender of the snapshot went silent")),
    }
}

async fn answer(answers: &Answers, answer: Answer) -> Result<(), Status> {
    answers
        .send(Ok(pb::SnapshotAnswer { answer: Some(answer) }))
        .await
        .map_err(|_| Status::cancelled("the sender of the snapshot is gone"))
}

/// Runs `work` on a thread for blocking calls. Invalid data is the sender's fault: `DATA_LOSS`. All
/// else is a fault of this member's disk: `INTERNAL`.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> std::io::Result<T> + Send + 'static) -> Result<T, Status> {
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) if error.kind() == ErrorKind::InvalidData => {
            Err(Status::data_loss(format!("the snapshot is damaged: {error}")))
        }
        Ok(Err(error)) => Err(Status::internal(format!("writing the snapshot failed: {error}"))),
        Err(error) => Err(Status::internal(format!("writing the snapshot failed: {error}"))),
    }
}

/// Refuses more than [`FILES_MAX`] files, and names that are not plain or occur twice. A snapshot
/// is a flat directory: a name with a separator (or `..`) would reach outside of it.
fn check_names(files: &[pb::SnapshotFile]) -> Result<(), Status> {
    if files.len() > FILES_MAX {
        return Err(Status::invalid_argument(format!("{} files in one snapshot", files.len())));
    }
    let mut seen = BTreeSet::new();
    for file in files {
        let plain = Path::new(&file.name).file_name().is_some_and(|name| name == file.name.as_str());
        if !plain || !seen.insert(&file.name) {
            return Err(Status::invalid_argument(format!("snapshot file name {:?}", file.name)));
        }
    }
    Ok(())
}

/// Removes the incomplete snapshots of other senders: all in `incoming` but the folder `own`.
fn remove_others(incoming: &Path, own: &str) -> std::io::Result<()> {
    for entry in std::fs::read_dir(incoming)? {
        let entry = entry?;
        if entry.file_name() != own {
            files::remove_tree(&entry.path())?;
        }
    }
    Ok(())
}

/// Makes `dir` if it is missing, and removes its files that the offer does not contain. Returns the
/// indexes into `files` of the files that are to be sent.
fn prepare(dir: &Path, files: &[pb::SnapshotFile]) -> std::io::Result<Vec<u32>> {
    files::create_dir(dir)?;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let offered = entry.file_name().to_str().is_some_and(|name| files.iter().any(|file| file.name == name));
        if !offered {
            std::fs::remove_file(entry.path())?;
        }
    }
    let mut missing = Vec::new();
    for (index, file) in files.iter().enumerate() {
        let path = dir.join(&file.name);
        let have = std::fs::symlink_metadata(&path)
            .is_ok_and(|found| found.is_file() && found.len() == file.size_bytes)
            && size_and_checksum(&path)? == (file.size_bytes, file.crc32c);
        if !have {
            missing.push(index as u32);
        }
    }
    Ok(missing)
}

/// A file that is being received.
struct FileWriter {
    file: files::FileWriter,
    described: pb::SnapshotFile,
    written_bytes: u64,
    any: bool,
    crc: u32,
}

impl FileWriter {
    fn create(dir: &Path, described: pb::SnapshotFile) -> Result<Self, Status> {
        let file = files::FileWriter::create(&dir.join(&described.name))
            .map_err(|error| Status::internal(format!("creating {error}")))?;
        Ok(Self { file, described, written_bytes: 0, any: false, crc: 0 })
    }

    fn is_complete(&self) -> bool {
        self.any && self.written_bytes >= self.described.size_bytes
    }

    fn write(&mut self, index: u32, chunk: &pb::SnapshotChunk) -> std::io::Result<()> {
        let bad = |what: String| std::io::Error::new(std::io::ErrorKind::InvalidData, what);
        if chunk.file != index || chunk.offset != self.written_bytes {
            return Err(bad(format!("chunk {}+{} out of order", chunk.file, chunk.offset)));
        }
        if crc32c::crc32c(&chunk.data) != chunk.crc32c {
            return Err(bad(format!("chunk at {} of {} was damaged on the way", chunk.offset, self.described.name)));
        }
        if self.written_bytes + chunk.data.len() as u64 > self.described.size_bytes {
            return Err(bad(format!("{} is longer than offered", self.described.name)));
        }
        self.file.write(&chunk.data)?;
        self.crc = crc32c::crc32c_append(self.crc, &chunk.data);
        self.written_bytes += chunk.data.len() as u64;
        self.any = true;
        headwater_fail_points::fail_point!(SnapshotChunkReceived);
        Ok(())
    }

    fn finish(self) -> std::io::Result<()> {
        if self.crc != self.described.crc32c {
            let what = format!("{} does not have the offered checksum", self.file.path().display());
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, what));
        }
        Ok(self.file.finish()?)
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    fn described(name: &str, content: &[u8]) -> pb::SnapshotFile {
        pb::SnapshotFile { name: name.into(), size_bytes: content.len() as u64, crc32c: crc32c::crc32c(content) }
    }

    fn chunk(file: u32, offset: u64, data: &'static [u8]) -> pb::SnapshotChunk {
        pb::SnapshotChunk { file, offset, crc32c: crc32c::crc32c(data), data: bytes::Bytes::from_static(data) }
    }

    #[test]
    fn what_another_leader_left_goes_and_what_this_one_sent_stays() {
        let incoming = tempfile::tempdir().unwrap();
        for name in ["from-1", "from-2"] {
            std::fs::create_dir(incoming.path().join(name)).unwrap();
            std::fs::write(incoming.path().join(name).join("000012.sst"), "part").unwrap();
        }
        remove_others(incoming.path(), "from-2").unwrap();
        assert!(!incoming.path().join("from-1").exists());
        assert!(incoming.path().join("from-2/000012.sst").exists());
    }

    #[test]
    fn names_that_reach_outside_are_refused() {
        for name in ["../x", "a/b", "", ".", "..", "/etc/passwd"] {
            assert!(check_names(&[described(name, b"")]).is_err(), "{name:?}");
        }
        assert!(check_names(&[described("000012.sst", b""), described("CURRENT", b"")]).is_ok());
        assert!(check_names(&[described("CURRENT", b""), described("CURRENT", b"")]).is_err(), "twice");
    }

    #[test]
    fn a_second_attempt_asks_only_for_what_is_missing_or_damaged() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("whole"), b"abc").unwrap();
        std::fs::write(dir.path().join("cut"), b"ab").unwrap();
        std::fs::write(dir.path().join("flipped"), b"abd").unwrap();
        std::fs::write(dir.path().join("stale"), b"abc").unwrap();
        let offer = [
            described("cut", b"abc"),
            described("flipped", b"abc"),
            described("new", b"x"),
            described("whole", b"abc"),
        ];
        assert_eq!(prepare(dir.path(), &offer).unwrap(), vec![0, 1, 2]);
        assert!(!dir.path().join("stale").exists());
    }

    #[tokio::test]
    async fn damage_is_the_sender_s_fault_and_a_full_disk_is_not() {
        for (kind, code) in [(ErrorKind::InvalidData, Code::DataLoss), (ErrorKind::StorageFull, Code::Internal)] {
            let refusal = blocking(move || Err::<(), _>(kind.into())).await.unwrap_err();
            assert_eq!(refusal.code(), code, "{kind}: {refusal}");
        }
    }

    #[test]
    fn damage_on_the_way_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = FileWriter::create(dir.path(), described("f", b"abcdef")).unwrap();
        let mut damaged = chunk(0, 0, b"abc");
        damaged.data = bytes::Bytes::from_static(b"abd");
        assert!(writer.write(0, &damaged).is_err(), "checksum");
        assert!(writer.write(0, &chunk(0, 1, b"abc")).is_err(), "offset");
        assert!(writer.write(0, &chunk(1, 0, b"abc")).is_err(), "file");
        writer.write(0, &chunk(0, 0, b"abc")).unwrap();
        assert!(writer.write(0, &chunk(0, 3, b"defg")).is_err(), "too long");
        writer.write(0, &chunk(0, 3, b"xyz")).unwrap();
        assert!(writer.is_complete());
        assert!(writer.finish().is_err(), "whole-file checksum");
    }
}
