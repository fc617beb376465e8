//! `headwater status`: the state of each endpoint; with `--hash`, whether the replicas agree.

use std::collections::{BTreeSet, HashMap};
use std::io::Write;

use serde::Serialize;
use tonic::Response;

use super::ClientArgs;
use super::connect::Cluster;
use super::error::{CliError, Tried};
use super::output::{self, WriteOut, human_bytes};
use headwater_client::Repeat;
use headwater_proto::pb::etcdserverpb::{
    HashKvRequest, HashKvResponse, MemberListRequest, MemberListResponse, StatusRequest, StatusResponse,
};
use headwater_proto::pb::headwater_v1::GetVersionsRequest;

/// Show the state of each endpoint
#[derive(Clone, Debug, clap::Args)]
pub(super) struct StatusArgs {
    /// Also hash every endpoint's keys up to the newest revision that all have, and compare
    #[arg(long)]
    hash: bool,
    /// Ask the members that the cluster lists, at their client URLs, instead of the named endpoints
    #[arg(long)]
    cluster: bool,
}

/// One endpoint as it is printed: without its state if it did not answer.
#[derive(Serialize)]
struct Row {
    endpoint: String,
    #[serde(flatten)]
    standing: Option<EndpointStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Serialize)]
struct EndpointStatus {
    id: String,
    name: String,
    version: String,
    /// Version, commit and profile of the member's program; empty if the server is not Headwater.
    program: String,
    is_leader: bool,
    is_learner: bool,
    leader: String,
    term: u64,
    index: u64,
    applied: u64,
    revision: i64,
    db_size: i64,
    db_size_in_use: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    hash: Option<Hash>,
    errors: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct Hash {
    revision: i64,
    compact_revision: i64,
    value: u32,
}

pub(super) async fn run(args: StatusArgs, cluster: &Cluster, client: &ClientArgs) -> Result<(), CliError> {
    let found;
    let cluster = if args.cluster {
        found =
            Cluster::new(&member_endpoints(cluster).await?, client.timeout, &client.dialer()?)?.as_user(cluster.user());
        &found
    } else {
        cluster
    };
    // The member list comes along, so that a name can be printed beside every id.
    let answers = cluster
        .call_each(async |a| {
            let status = a.maintenance().status(a.request(StatusRequest {})).await?.into_inner();
            let members = a.cluster().member_list(a.request(MemberListRequest { linearizable: false })).await;
            let versions = a.versions().get_versions(a.request(GetVersionsRequest { linearizable: false })).await;
            let program = versions.map(|versions| versions.into_inner().program).unwrap_or_default();
            Ok(Response::new((status, members.map(Response::into_inner).unwrap_or_default(), program)))
        })
        .await;
    let hashes = if args.hash { hashes(cluster, &answers).await } else { Vec::new() };
    let names: HashMap<u64, String> = answers
        .iter()
        .filter_map(|answer| answer.as_ref().ok())
        .flat_map(|(_, list, _)| list.members.iter().map(|member| (member.id, member.name.clone())))
        .collect();

    let rows: Vec<Row> = cluster
        .names()
        .zip(&answers)
        .enumerate()
        .map(|(i, (endpoint, answer))| {
            let hash = hashes.get(i);
            let (standing, error) = match answer {
                Err(tried) => (None, Some(tried.reason.clone())),
                Ok((status, _, program)) => {
                    let standing =
                        EndpointStatus::new(status, program, &names, hash.and_then(|hash| hash.as_ref().ok()).copied());
                    (Some(standing), hash.and_then(|hash| hash.as_ref().err()).map(|tried| tried.reason.clone()))
                }
            };
            Row { endpoint: endpoint.to_owned(), standing, error }
        })
        .collect();
    print(&rows, args.hash, client.write_out)?;

    let silent: Vec<String> = answers.iter().filter_map(|a| a.as_ref().err()).map(ToString::to_string).collect();
    if !silent.is_empty() {
        let text = format!("{} of {} endpoints did not answer:\n  {}", silent.len(), rows.len(), silent.join("\n  "));
        return Err(CliError::Finding(text));
    }
    if args.hash { agreement(&hashes) } else { Ok(()) }
}

/// The first client URL of each member that the cluster lists. A member without one is left out.
pub(super) async fn member_endpoints(cluster: &Cluster) -> Result<Vec<String>, CliError> {
    let request = MemberListRequest { linearizable: false };
    let list = cluster.call(Repeat::Harmless, async |a| a.cluster().member_list(a.request(request)).await).await?;
    Ok(list.members.into_iter().filter_map(|member| member.client_ur_ls.into_iter().next()).collect())
}

type Answer = Result<(StatusResponse, MemberListResponse, String), Tried>;

/// The hash of each endpoint, in their order, at the newest revision that all endpoints that
/// answered have. So a short replication lag is not reported as a difference.
async fn hashes(cluster: &Cluster, answers: &[Answer]) -> Vec<Result<Hash, Tried>> {
    let revision = answers
        .iter()
        .filter_map(|answer| Some(answer.as_ref().ok()?.0.header.as_ref()?.revision))
        .min()
        .unwrap_or_default();
    let answers: Vec<Result<HashKvResponse, Tried>> =
        cluster.call_each(async |a| a.maintenance().hash_kv(a.request(HashKvRequest { revision })).await).await;
    answers
        .into_iter()
        .map(|answer| {
            answer.map(|hash| Hash {
                // Servers before etcd 3.6 do not repeat the revision.
                revision: if hash.hash_revision == 0 { revision } else { hash.hash_revision },
                compact_revision: hash.compact_revision,
                value: hash.hash,
            })
        })
        .collect()
}

/// Compares the hashes: an error if an endpoint did not hash, if the hashes differ, or if they are
/// not of the same revisions.
fn agreement(hashes: &[Result<Hash, Tried>]) -> Result<(), CliError> {
    let failed: Vec<String> = hashes.iter().filter_map(|h| h.as_ref().err()).map(ToString::to_string).collect();
    if !failed.is_empty() {
        return Err(CliError::Finding(format!("some endpoints did not hash:\n  {}", failed.join("\n  "))));
    }
    let different: BTreeSet<Hash> = hashes.iter().filter_map(|hash| hash.as_ref().ok()).copied().collect();
    let bases: BTreeSet<(i64, i64)> = different.iter().map(|hash| (hash.revision, hash.compact_revision)).collect();
    match (bases.len(), different.len()) {
        (0 | 1, 0 | 1) => Ok(()),
        (1, _) => Err(CliError::Finding(
            "THE REPLICAS DIFFER: hashes at one revision are not equal. Stop writing and keep the data directories."
                .to_owned(),
        )),
        _ => Err(CliError::Finding(
            "the hashes cannot be compared: a compaction or writes came in between; ask again".to_owned(),
        )),
    }
}

impl EndpointStatus {
    fn new(status: &StatusResponse, program: &str, names: &HashMap<u64, String>, hash: Option<Hash>) -> Self {
        let header = status.header.unwrap_or_default();
        Self {
            id: format!("{:x}", header.member_id),
            name: names.get(&header.member_id).cloned().unwrap_or_default(),
            version: status.version.clone(),
            program: program.to_owned(),
            is_leader: status.leader == header.member_id,
            is_learner: status.is_learner,
            leader: format!("{:x}", status.leader),
            term: status.raft_term,
            index: status.raft_index,
            applied: status.raft_applied_index,
            revision: header.revision,
            db_size: status.db_size,
            db_size_in_use: status.db_size_in_use,
            hash,
            errors: status.errors.clone(),
        }
    }
}

const HEADER: &[&str] = &[
    "ENDPOINT", "ID", "NAME", "VERSION", "ROLE", "TERM", "INDEX", "APPLIED", "REVISION", "DB SIZE", "HASH", "ERRORS",
    "PROGRAM",
];

fn print(rows: &[Row], with_hash: bool, write_out: WriteOut) -> Result<(), CliError> {
    let mut out = std::io::stdout().lock();
    let cells = rows.iter().map(|row| {
        let mut cells = match &row.standing {
            Some(s) => {
                let role = match (s.is_leader, s.is_learner) {
                    (true, _) => "leader",
                    (false, true) => "learner",
                    (false, false) => "follower",
                };
                vec![
                    row.endpoint.clone(),
                    s.id.clone(),
                    s.name.clone(),
                    s.version.clone(),
                    role.to_owned(),
                    s.term.to_string(),
                    s.index.to_string(),
                    s.applied.to_string(),
                    s.revision.to_string(),
                    human_bytes(s.db_size.unsigned_abs()),
                    s.hash.map(|hash| format!("{:08x}@{}", hash.value, hash.revision)).unwrap_or_default(),
                    row.error.iter().chain(&s.errors).cloned().collect::<Vec<_>>().join("; "),
                    s.program.clone(),
                ]
            }
            None => {
                let mut cells = vec![String::new(); HEADER.len()];
                cells[0] = row.endpoint.clone();
                cells[HEADER.len() - 2] = row.error.clone().unwrap_or_default();
                cells
            }
        };
        if !with_hash {
            cells.remove(HEADER.len() - 3);
        }
        cells
    });
    let header: Vec<&str> = HEADER.iter().filter(|name| with_hash || **name != "HASH").copied().collect();
    match write_out {
        WriteOut::Json => output::print_json(&mut out, &rows),
        WriteOut::Table | WriteOut::Simple if write_out == WriteOut::Table => {
            output::print_table(&mut out, &header, cells)
        }
        WriteOut::Table | WriteOut::Simple => {
            for cells in cells {
                writeln!(out, "{}", cells.join(", "))?;
            }
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agreement_needs_equal_hashes_on_equal_grounds() {
        let hash = |revision, compact_revision, value| Ok(Hash { revision, compact_revision, value });
        let failed = || Err(Tried { endpoint: "b:1".into(), reason: "gone".into() });
        for (hashes, part) in [
            (vec![hash(5, 1, 7), hash(5, 1, 7)], None),
            (vec![], None),
            (vec![hash(5, 1, 7), hash(5, 1, 8)], Some("DIFFER")),
            (vec![hash(5, 1, 7), hash(6, 1, 8)], Some("cannot be compared")),
            (vec![hash(5, 1, 7), hash(5, 2, 8)], Some("cannot be compared")),
            (vec![hash(5, 1, 7), failed()], Some("b:1: gone")),
        ] {
            let verdict = agreement(&hashes).err().map(|error| error.to_string());
            match (&verdict, part) {
                (None, None) => {}
                (Some(text), Some(part)) => assert!(text.contains(part), "{text}"),
                other => panic!("{hashes:?}: {other:?}"),
            }
        }
    }
}
