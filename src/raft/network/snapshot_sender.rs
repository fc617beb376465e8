//! Sends a snapshot file by file, in checksummed chunks, leaving out the files that the receiver
//! has from an earlier attempt.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use openraft::RPCTypes;
use openraft::errors::{NetworkError, StreamingError, Timeout, Unreachable};
use openraft::raft::SnapshotResponse;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Channel;

use super::Route;
use crate::convert;
use crate::membership;
use crate::metrics::PeerMetrics;
use crate::types::{Snapshot, TypeConfig, Vote};
use headwater_proto::pb::peer as pb;
use headwater_proto::pb::peer::peer_client::PeerClient as Grpc;
use headwater_proto::pb::peer::snapshot_answer::Answer;
use headwater_types::limits::SNAPSHOT_CHUNK_BYTES;

/// Time without an answer of the receiver after which the transfer fails (openraft passes a limit
/// but enforces none).
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(30);
/// Most chunks that wait in memory for the connection, count.
const CHUNKS_QUEUED: usize = 4;

type SendError = StreamingError<TypeConfig>;

pub(super) async fn send(
    route: &Route,
    mut grpc: Grpc<Channel>,
    vote: Vote,
    snapshot: Snapshot,
    metrics: Option<&Arc<PeerMetrics>>,
) -> Result<SnapshotResponse<TypeConfig>, SendError> {
    // The list is cached in the snapshot, which is offered again and again to an absent member.
    let offered = snapshot.snapshot.clone();
    let files = blocking(move || offered.files(list_files).map(<[_]>::to_vec)).await?;
    let bytes_total: u64 = files.iter().map(|file| file.size_bytes).sum();
    let offer = pb::SnapshotOffer {
        vote: Some(convert::vote_to_pb(&vote)),
        last: snapshot.meta.last_log_id.as_ref().map(convert::log_id_to_pb),
        membership_log_id: None,
        membership: membership::encode_stored(&snapshot.meta.last_membership),
        files: files.clone(),
        needs: snapshot.snapshot.needs().byte().into(),
    };

    let (outgoing, messages) = mpsc::channel(CHUNKS_QUEUED);
    outgoing.send(message(pb::snapshot_message::Message::Offer(offer))).await.map_err(|_| closed())?;
    let call = grpc.snapshot(route.request(ReceiverStream::new(messages)));
    let mut answers = call.await.map_err(|status| StreamingError::Unreachable(Unreachable::new(&status)))?.into_inner();

    let missing = match next_answer(route, &mut answers).await? {
        Answer::Missing(missing) => missing.files,
        Answer::Installed(answered) => return installed(&vote, answered),
        Answer::ReceivedBytes(_) => return Err(protocol("progress before the list of missing files")),
    };
    headwater_fail_points::fail_point!(SnapshotOffered);
    tracing::info!(to = %route.to, files = files.len(), missing = missing.len(), bytes_total, "sending snapshot");

    let dir = snapshot.snapshot.path().to_owned();
    let metrics = metrics.cloned();
    let count_sent = move |bytes: usize| {
        if let Some(metrics) = &metrics {
            metrics.sent_bytes.inc_by(bytes as u64);
        }
    };
    let reader = tokio::task::spawn_blocking(move || read_chunks(&dir, &files, &missing, &outgoing, &count_sent));
    let verdict = loop {
        match next_answer(route, &mut answers).await {
            Ok(Answer::ReceivedBytes(_)) => {}
            Ok(Answer::Installed(answered)) => break installed(&vote, answered),
            Ok(Answer::Missing(_)) => break Err(protocol("a second list of missing files")),
            Err(error) => break Err(error),
        }
    };
    // The reader ends by itself once the stream is gone. If it failed, its error is the reason for
    // the missing verdict.
    drop(answers);
    match (verdict, reader.await) {
        (Err(_), Ok(Err(error))) => Err(local(&error)),
        (verdict, _) => verdict,
    }
}

/// The result of a transfer by the leader with `vote`, to which the receiver has answered with its
/// own vote. An error if the term of the answer is too high.
fn installed(vote: &Vote, answered: pb::Vote) -> Result<SnapshotResponse<TypeConfig>, SendError> {
    let answered =
        convert::answered_vote(answered, vote.leader_id.term).map_err(|error| protocol(&error.to_string()))?;
    Ok(SnapshotResponse::new(answered))
}

fn message(message: pb::snapshot_message::Message) -> pb::SnapshotMessage {
    pb::SnapshotMessage { message: Some(message) }
}

async fn next_answer(route: &Route, answers: &mut Streaming<pb::SnapshotAnswer>) -> Result<Answer, SendError> {
    match tokio::time::timeout(PROGRESS_TIMEOUT, answers.message()).await {
        Ok(Ok(Some(answer))) => answer.answer.ok_or_else(|| protocol("an empty answer")),
        Ok(Ok(None)) => Err(closed()),
        Ok(Err(status)) => Err(StreamingError::Unreachable(Unreachable::new(&status))),
        Err(_) => Err(StreamingError::Timeout(Timeout {
            action: RPCTypes::InstallSnapshot,
            id: route.from.get(),
            target: route.to.get(),
            timeout: PROGRESS_TIMEOUT,
        })),
    }
}

fn closed() -> SendError {
    StreamingError::Network(NetworkError::from_string("the receiver closed the snapshot stream without a verdict"))
}

fn protocol(what: &str) -> SendError {
    StreamingError::Network(NetworkError::from_string(format!("snapshot receiver sent {what}")))
}

fn local(error: &std::io::Error) -> SendError {
    StreamingError::Network(NetworkError::from_string(format!("reading the snapshot failed: {error}")))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T, SendError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(local(&error)),
        Err(error) => Err(local(&std::io::Error::other(error))),
    }
}

/// The files of a snapshot directory with size and checksum, in the order of their names. Reads all
/// of them.
pub(super) fn list_files(dir: &Path) -> std::io::Result<Vec<pb::SnapshotFile>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name().into_string().map_err(|name| {
            std::io::Error::new(std::io::ErrorKind::InvalidData, format!("snapshot file name {name:?} is not UTF-8"))
        })?;
        let (size_bytes, crc32c) = size_and_checksum(&entry.path())?;
        files.push(pb::SnapshotFile { name, size_bytes, crc32c });
    }
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(files)
}

/// Size and CRC32C of a whole file.
pub(super) fn size_and_checksum(path: &PathBuf) -> std::io::Result<(u64, u32)> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0; SNAPSHOT_CHUNK_BYTES];
    let (mut size_bytes, mut crc) = (0, 0);
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok((size_bytes, crc));
        }
        size_bytes += read as u64;
        crc = crc32c::crc32c_append(crc, &buffer[..read]);
    }
}

fn read_chunks(
    dir: &Path,
    files: &[pb::SnapshotFile],
    missing: &[u32],
    outgoing: &mpsc::Sender<pb::SnapshotMessage>,
    count_sent: &dyn Fn(usize),
) -> std::io::Result<()> {
    for &index in missing {
        let Some(described) = files.get(index as usize) else {
            return Err(std::io::Error::other(format!("the receiver asked for file {index} of {}", files.len())));
        };
        let mut file = File::open(dir.join(&described.name))?;
        let mut offset = 0;
        loop {
            let mut buffer = vec![0; SNAPSHOT_CHUNK_BYTES];
            let read = read_full(&mut file, &mut buffer)?;
            // An empty file still needs one (empty) chunk to exist at the other end.
            if read == 0 && offset > 0 {
                break;
            }
            buffer.truncate(read);
            let chunk = pb::SnapshotChunk { file: index, offset, crc32c: crc32c::crc32c(&buffer), data: buffer.into() };
            if outgoing.blocking_send(message(pb::snapshot_message::Message::Chunk(chunk))).is_err() {
                return Ok(());
            }
            count_sent(read);
            headwater_fail_points::fail_point!(SnapshotChunkSent);
            offset += read as u64;
            if offset >= described.size_bytes {
                break;
            }
        }
    }
    Ok(())
}

fn read_full(file: &mut File, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..])? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(filled)
}
