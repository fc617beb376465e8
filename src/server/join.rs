//! Joining: a node without data asks any member of a cluster, and becomes a member with a new id.
//!
//! Invariant: a join may be interrupted at every step. The data directory has a random number of
//! its own (its incarnation) before the first request, so a node that asks again after a crash is
//! given the same id. Once the id is on disk, the node asks no more. A directory that was wiped has
//! another number, and so becomes another member.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tonic::metadata::MetadataValue;
use tonic::{Code, Request, Status};

use headwater_api::HEADWATER_PEER_URL;
use headwater_files::read_secret;
use headwater_proto::pb::etcdserverpb as pb;
use headwater_proto::pb::etcdserverpb::cluster_client::ClusterClient;
use headwater_raft::{ChangeError, MemberInfo, ask_to_join};
use headwater_storage::StorageError;
use headwater_storage::data_dir::{DataDir, Owner};
use headwater_tls::Dialer;
use headwater_types::invitation::is_token;
use headwater_types::{ClusterId, Joining, MemberRefusal, NodeId, Secret, Supported};

/// Longest wait for one endpoint's list of members.
const LIST_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest wait for the answer of one member to the request to join. The member may have to forward
/// the request to the leader.
const JOIN_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause before all endpoints are asked again.
const ASK_PAUSE: Duration = Duration::from_millis(500);

/// Longest file with a token, bytes: there may be space around the token.
const TOKEN_FILE_BYTES_MAX: u64 = 4096;

/// Options of a node that joins.
#[derive(Clone, Debug)]
pub struct JoinOptions {
    /// URLs of client ports of members.
    pub endpoints: Vec<String>,
    /// The data directory of the node.
    pub data_dir: PathBuf,
    /// Connects to the members' client ports.
    pub client_dialer: Dialer,
    /// Connects to the members' peer ports.
    pub peer_dialer: Dialer,
    /// Name and URLs of the node.
    pub own: MemberInfo,
    /// Whether the node stays a learner until a client promotes it.
    pub learner: bool,
    /// A file with the token of an invitation. Without one, a cluster with `cluster.invited-only`
    /// accepts only an announced node.
    pub token_file: Option<PathBuf>,
    /// The versions of clusters that the program supports.
    pub supported: Supported,
}

/// A failure to join that a repetition does not change.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The data directory cannot be used.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The file with the token cannot be used.
    #[error("the token of the invitation, {}: {problem}", path.display())]
    Token {
        /// The file.
        path: PathBuf,
        /// The problem, without the contents of the file.
        problem: String,
    },
    /// The cluster refuses the node for good.
    #[error("the cluster refuses this node: {0}")]
    Refused(#[from] MemberRefusal),
}

/// Makes a node a member, and returns its cluster and its id. If the data directory has an owner
/// already, returns that one and asks nobody. Retries without end after transient failures. The
/// future may be dropped at any time, and `join` called again.
///
/// # Errors
///
/// [`JoinError`] for failures that a repetition does not change.
pub async fn join(options: JoinOptions) -> Result<Owner, JoinError> {
    if let Some(owner) = DataDir::owner(&options.data_dir, options.supported)? {
        return Ok(owner);
    }
    let token = options.token_file.as_deref().map(read_token).transpose()?;
    let MemberInfo { name, peer_url, client_url, .. } = options.own;
    let incarnation = DataDir::incarnation(&options.data_dir)?;
    let JoinOptions { learner, supported, client_dialer, peer_dialer, .. } = options;
    let joining = Joining { incarnation, name, peer_url, client_url, learner, supported, token };
    let mut last_problem = String::new();
    loop {
        for endpoint in &options.endpoints {
            let problem = match attempt(endpoint, &joining, &client_dialer, &peer_dialer).await {
                Ok(owner) => {
                    tracing::info!(member = %owner.node_id, "joined the cluster");
                    return Ok(owner);
                }
                Err(Problem::Final(refusal)) => return Err(refusal.into()),
                Err(Problem::Transient(text)) => format!("{endpoint}: {text}"),
            };
            if problem != last_problem {
                tracing::warn!("not joined yet, asking again; {problem}");
                last_problem = problem;
            }
        }
        tokio::time::sleep(ASK_PAUSE).await;
    }
}

/// The token in a file that no other user may read.
fn read_token(path: &Path) -> Result<Secret, JoinError> {
    let unusable = |problem: String| JoinError::Token { path: path.to_owned(), problem };
    let content = read_secret(path, TOKEN_FILE_BYTES_MAX).map_err(|error| unusable(error.to_string()))?;
    match String::from_utf8_lossy(&content).trim() {
        token if is_token(token) => Ok(Secret(token.to_owned())),
        _ => Err(unusable("there is no token in it: headwater member invite prints one".to_owned())),
    }
}

enum Problem {
    /// An error that a repetition would meet again.
    Final(MemberRefusal),
    Transient(String),
}

async fn attempt(
    endpoint: &str,
    joining: &Joining,
    client_dialer: &Dialer,
    peer_dialer: &Dialer,
) -> Result<Owner, Problem> {
    let list = tokio::time::timeout(LIST_TIMEOUT, members(endpoint, joining, client_dialer)).await;
    let list = list.map_err(|_| Problem::Transient("no answer in time".to_owned()))?.map_err(Problem::Transient)?;
    let cluster_id = ClusterId(list.header.map_or(0, |header| header.cluster_id));
    let mut last = Problem::Transient("it names no member that can be asked".to_owned());
    for member in list.members {
        // Skips announced members, which have no name and do not run, and this node itself.
        let Some(url) = member.peer_ur_ls.first().filter(|url| !member.name.is_empty() && **url != joining.peer_url)
        else {
            continue;
        };
        last = match ask_to_join(cluster_id, NodeId(member.id), url, peer_dialer.clone(), joining.clone(), JOIN_TIMEOUT)
            .await
        {
            Ok(done) => return Ok(Owner { cluster_id, node_id: done.id }),
            Err(ChangeError::Refused(refusal)) if is_final(refusal) => return Err(Problem::Final(refusal)),
            Err(error) => Problem::Transient(format!("member {} at {url}: {error}", member.id)),
        };
    }
    Err(last)
}

/// Whether a retry is useless: true for limits, for a program that does not support the cluster's
/// version, and for a missing or invalid invitation. Other refusals may end when members recover,
/// or when the member that this node replaces is known to be gone.
fn is_final(refusal: MemberRefusal) -> bool {
    match refusal {
        MemberRefusal::TooManyLearners
        | MemberRefusal::TooManyVoters
        | MemberRefusal::Version
        | MemberRefusal::Uninvited
        | MemberRefusal::InvitationUnknown
        | MemberRefusal::InvitationUsedUp => true,
        MemberRefusal::NotFound
        | MemberRefusal::PeerUrlExists
        | MemberRefusal::NotLearner
        | MemberRefusal::LearnerNotReady
        | MemberRefusal::NotEnoughStarted
        | MemberRefusal::Unhealthy
        | MemberRefusal::StillRuns => false,
    }
}

/// The list of members, from the member at `endpoint`. The request shows this node's peer URL. If
/// it is refused for want of rights, a second request shows the token of the invitation. A member
/// that checks rights gives the list to a node that was announced by its peer URL, or has a token.
async fn members(endpoint: &str, joining: &Joining, dialer: &Dialer) -> Result<pb::MemberListResponse, String> {
    let (endpoint, connector) = dialer.endpoint(endpoint, LIST_TIMEOUT)?;
    let channel = endpoint.connect_with_connector(connector).await.map_err(|error| innermost(&error))?;
    let ask = async |name: &'static str, text: &str| {
        let mut request = Request::new(pb::MemberListRequest { linearizable: false });
        let mut shown = MetadataValue::try_from(text).map_err(|_| Status::internal("no text for a header"))?;
        shown.set_sensitive(true);
        request.metadata_mut().insert(name, shown);
        ClusterClient::new(channel.clone()).member_list(request).await
    };
    let mut list = ask(HEADWATER_PEER_URL, &joining.peer_url).await;
    if let (Err(refused), Some(Secret(token))) = (&list, &joining.token)
        && is_of_rights(refused)
    {
        list = ask("token", token).await;
    }
    list.map(tonic::Response::into_inner).map_err(|status| match is_of_rights(&status) {
        true => format!("{}: the node must have been announced, or show an invitation", status.message()),
        false => status.message().to_owned(),
    })
}

/// Whether a member has refused the request for want of rights: no user, an unknown token, or a
/// missing right. Judged by the status code alone.
fn is_of_rights(status: &Status) -> bool {
    matches!(status.code(), Code::InvalidArgument | Code::Unauthenticated | Code::PermissionDenied)
}

/// Text of the innermost error, which is that of the operating system; the outer layers only say
/// "transport error".
fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_token_is_read_from_a_file_that_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let token = format!("hwj-{}", "0123456789abcdef".repeat(4));
        let read = |text: &str, mode: u32| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            read_token(&path).map_err(|error| error.to_string())
        };
        for (text, mode) in [(token.clone(), 0o600), (format!(" {token}\n"), 0o400)] {
            assert_eq!(read(&text, mode), Ok(Secret(token.clone())));
        }
        for (text, mode, why) in [
            (token.clone(), 0o640, "chmod 600"),
            (token.clone(), 0o604, "mode 604"),
            (String::new(), 0o600, "no token in it"),
            (token[1..].to_owned(), 0o600, "no token in it"),
            (" ".repeat(5000) + &token, 0o600, "no token in it"),
        ] {
            let problem = read(&text, mode).unwrap_err();
            assert!(problem.contains(why) && problem.contains("/token:"), "{problem}");
            assert!(!problem.contains(&token[5..]), "{problem}");
        }
        fs::remove_file(&path).unwrap();
        assert!(read_token(&path).unwrap_err().to_string().contains("No such file"));
    }
}
