//! Joining: a node without data asks any member of a cluster, and becomes a member with a new id.
//!
//! Invariant: a join may be interrupted at every step. The data directory has a number of its own
//! before the first request, so a node that asks again after a crash is given the same id; once the
//! id is on disk, it asks no more. A directory that was wiped has another number, and so becomes
//! another member.

use std::path::PathBuf;
use std::time::Duration;

use headwater_proto::pb::etcdserverpb as pb;
use headwater_proto::pb::etcdserverpb::cluster_client::ClusterClient;
use headwater_raft::{ChangeError, MemberInfo, ask_to_join};
use headwater_storage::StorageError;
use headwater_storage::data_dir::{DataDir, Owner};
use headwater_tls::Dialer;
use headwater_types::{ClusterId, Joining, MemberRefusal, NodeId, Supported};

/// Longest wait for one endpoint's list of members.
const LIST_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest wait for the answer of one member to the request to join; it may have to forward it to
/// the leader.
const JOIN_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause before all endpoints are asked again.
const ASK_PAUSE: Duration = Duration::from_millis(500);

/// Options of a node that joins.
#[derive(Clone, Debug)]
pub struct JoinOptions {
    /// `http://host:port` of client ports of members.
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
    /// The versions of clusters that the program supports.
    pub supported: Supported,
}

/// A failure to join that a repetition does not change.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The data directory cannot be used.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The cluster refuses the node for good.
    #[error("the cluster refuses this node: {0}")]
    Refused(#[from] MemberRefusal),
}

/// Makes a node a member, unless its data directory has an owner already. Repeats transient
/// failures for ever. The future may be dropped at any time, and `join` called again.
///
/// # Errors
///
/// [`JoinError`] for failures that a repetition does not change.
pub async fn join(options: JoinOptions) -> Result<Owner, JoinError> {
    if let Some(owner) = DataDir::owner(&options.data_dir, options.supported)? {
        return Ok(owner);
    }
    let MemberInfo { name, peer_url, client_url, .. } = options.own;
    let incarnation = DataDir::incarnation(&options.data_dir)?;
    let JoinOptions { learner, supported, client_dialer, peer_dialer, .. } = options;
    let joining = Joining { incarnation, name, peer_url, client_url, learner, supported };
    let mut last_problem = String::new();
    loop {
        for endpoint in &options.endpoints {
            let problem = match attempt(endpoint, &joining, &client_dialer, &peer_dialer).await {
                Ok(owner) => {
                    tracing::info!(member = %owner.node_id, "joined the cluster");
                    return Ok(owner);
                }
                Err(Problem::Final(refusal)) => return Err(refusal.into()),
                Err(Problem::Passing(text)) => format!("{endpoint}: {text}"),
            };
            if problem != last_problem {
                tracing::warn!("not joined yet, asking again; {problem}");
                last_problem = problem;
            }
        }
        tokio::time::sleep(ASK_PAUSE).await;
    }
}

enum Problem {
    /// A repetition does not help.
    Final(MemberRefusal),
    Passing(String),
}

async fn attempt(
    endpoint: &str,
    joining: &Joining,
    client_dialer: &Dialer,
    peer_dialer: &Dialer,
) -> Result<Owner, Problem> {
    let list = tokio::time::timeout(LIST_TIMEOUT, members(endpoint, client_dialer)).await;
    let list = list.map_err(|_| Problem::Passing("no answer in time".to_owned()))?.map_err(Problem::Passing)?;
    let cluster_id = ClusterId(list.header.map_or(0, |header| header.cluster_id));
    let mut last = Problem::Passing("it names no member that can be asked".to_owned());
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
            Err(error) => Problem::Passing(format!("member {} at {url}: {error}", member.id)),
        };
    }
    Err(last)
}

/// Whether a repetition does not help. Limits stay; all other refusals may end when members come
/// back, or when a member that this node replaces is known to be gone.
fn is_final(refusal: MemberRefusal) -> bool {
    match refusal {
        MemberRefusal::TooManyLearners | MemberRefusal::TooManyVoters | MemberRefusal::Version => true,
        MemberRefusal::NotFound
        | MemberRefusal::PeerUrlExists
        | MemberRefusal::NotLearner
        | MemberRefusal::LearnerNotReady
        | MemberRefusal::NotEnoughStarted
        | MemberRefusal::Unhealthy
        | MemberRefusal::StillRuns => false,
    }
}

async fn members(endpoint: &str, dialer: &Dialer) -> Result<pb::MemberListResponse, String> {
    let (endpoint, connector) = dialer.endpoint(endpoint, LIST_TIMEOUT)?;
    let channel = endpoint.connect_with_connector(connector).await.map_err(|error| innermost(&error))?;
    let list = ClusterClient::new(channel).member_list(pb::MemberListRequest { linearizable: false }).await;
    list.map(tonic::Response::into_inner).map_err(|status| status.message().to_owned())
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
