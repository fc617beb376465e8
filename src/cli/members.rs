//! `headwater member` and `headwater move-leader`: list and change the members of the cluster.
//!
//! Ids of members are hexadecimal in arguments, lines and tables, as in etcdctl. A member's name is
//! accepted in place of its id.

use std::io::Write;

use clap::Subcommand;

use super::connect::Cluster;
use super::error::CliError;
use super::invitations::{self, InviteArgs};
use super::output::{self, WriteOut, json};
use super::{ClientArgs, Freshness};
use headwater_client::Repeat;
use headwater_proto::pb::etcdserverpb::{
    Member, MemberAddRequest, MemberListRequest, MemberListResponse, MemberPromoteRequest, MemberRemoveRequest,
    MemberUpdateRequest, MoveLeaderRequest, ResponseHeader, StatusRequest,
};

/// The cluster's members: list, add, promote, remove, update, invite
#[derive(Clone, Debug, clap::Args)]
pub(super) struct MemberArgs {
    #[command(subcommand)]
    command: MemberCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum MemberCommand {
    /// List the members
    List,
    /// Announce a member before it is started: it joins without an invitation
    Add {
        /// Name of the member; for the hint that is printed
        name: String,
        /// URL of the member's peer port, as the other members reach it
        #[arg(long, value_name = "URL")]
        peer_urls: String,
        /// Add it as a learner: it has no vote until it is promoted
        #[arg(long)]
        learner: bool,
    },
    /// Give a learner that has caught up a vote
    Promote {
        /// The learner: its id (hexadecimal) or name
        member: String,
    },
    /// Remove a member for good; its id is never used again
    Remove {
        /// The member: its id (hexadecimal) or name
        member: String,
    },
    /// Change the peer URLs of a member that has moved
    Update {
        /// The member: its id (hexadecimal) or name
        member: String,
        /// New URL of the member's peer port, as the other members reach it
        #[arg(long, value_name = "URL")]
        peer_urls: String,
    },
    /// Make an invitation: its token lets a node join that was not announced
    Invite(InviteArgs),
    /// List the invitations, and the nodes that have used them
    Invitations,
    /// Withdraw an invitation; nodes that have joined by it stay
    Uninvite {
        /// The invitation's id
        id: u64,
    },
}

/// Hand leadership to another member
#[derive(Clone, Debug, clap::Args)]
pub(super) struct MoveLeaderArgs {
    /// The member that is to lead: its id (hexadecimal) or name
    member: String,
}

pub(super) async fn run(args: MemberArgs, cluster: &Cluster, client: &ClientArgs) -> Result<(), CliError> {
    match args.command {
        MemberCommand::Invite(args) => invitations::invite(args, cluster, client).await,
        MemberCommand::Invitations => invitations::list(cluster, client).await,
        MemberCommand::Uninvite { id } => invitations::uninvite(id, cluster, client).await,
        MemberCommand::List => list(cluster, client).await,
        MemberCommand::Add { name, peer_urls, learner } => add(name, peer_urls, learner, cluster, client).await,
        MemberCommand::Promote { member } => {
            let request = MemberPromoteRequest { id: find(&member, cluster).await? };
            let answer =
                cluster.call(Repeat::Harmful, async |a| a.cluster().member_promote(a.request(request)).await).await?;
            print_change(&answer.header, &answer.members, &format!("member {:x} votes", request.id), client)
        }
        MemberCommand::Remove { member } => {
            let request = MemberRemoveRequest { id: find(&member, cluster).await? };
            let answer =
                cluster.call(Repeat::Harmful, async |a| a.cluster().member_remove(a.request(request)).await).await?;
            print_change(&answer.header, &answer.members, &format!("member {:x} removed", request.id), client)
        }
        MemberCommand::Update { member, peer_urls } => {
            let request = MemberUpdateRequest { id: find(&member, cluster).await?, peer_ur_ls: urls(&peer_urls) };
            // Idempotent: a repetition sets the same URL.
            let call = async |a: headwater_client::Attempt| a.cluster().member_update(a.request(request.clone())).await;
            let answer = cluster.call(Repeat::Harmless, call).await?;
            print_change(&answer.header, &answer.members, &format!("member {:x} updated", request.id), client)
        }
    }
}

pub(super) async fn list(cluster: &Cluster, client: &ClientArgs) -> Result<(), CliError> {
    let request = MemberListRequest { linearizable: client.consistency == Freshness::Linearizable };
    let response = cluster.call(Repeat::Harmless, async |a| a.cluster().member_list(a.request(request)).await).await?;
    let mut out = std::io::stdout().lock();
    match client.write_out {
        WriteOut::Json => output::print_json(&mut out, &json::MemberList::from(&response)),
        WriteOut::Simple => {
            for row in response.members.iter().map(row) {
                writeln!(out, "{}", row.join(", "))?;
            }
            Ok(())
        }
        WriteOut::Table => {
            // A server other than Headwater has no versions to tell: the column is empty then.
            let versions = super::version::fetch(cluster, false).await.unwrap_or_default();
            let program =
                |id| versions.members.iter().find(|member| member.id == id).map(|found| found.program.clone());
            let rows = response.members.iter().map(|member| {
                let mut cells = row(member);
                cells.push(program(member.id).unwrap_or_default());
                cells
            });
            output::print_table(&mut out, &[&HEADER[..], &["PROGRAM"]].concat(), rows)
        }
    }
}

const HEADER: [&str; 6] = ["ID", "STATUS", "NAME", "PEER ADDRS", "CLIENT ADDRS", "IS LEARNER"];

fn row(member: &Member) -> Vec<String> {
    let status = if member.name.is_empty() { "unstarted" } else { "started" };
    vec![
        format!("{:x}", member.id),
        status.to_owned(),
        member.name.clone(),
        member.peer_ur_ls.join(","),
        member.client_ur_ls.join(","),
        member.is_learner.to_string(),
    ]
}

fn print_members(out: &mut impl Write, members: &[Member]) -> Result<(), CliError> {
    output::print_table(out, &HEADER, members.iter().map(row))
}

async fn add(
    name: String,
    peer_urls: String,
    learner: bool,
    cluster: &Cluster,
    client: &ClientArgs,
) -> Result<(), CliError> {
    let request = MemberAddRequest { peer_ur_ls: urls(&peer_urls), is_learner: learner };
    let call = async |a: headwater_client::Attempt| a.cluster().member_add(a.request(request.clone())).await;
    let answer = cluster.call(Repeat::Harmful, call).await?;
    let id = answer.member.as_ref().map_or(0, |member| member.id);
    let endpoints = cluster.names().collect::<Vec<_>>().join(",");
    let role = if learner { "learner" } else { "member" };
    let text = format!(
        "{role} {id:x} announced\nstart it with:  headwater serve --join {endpoints} --node-name {name} --advertise-peer \
         {peer_urls} --data-dir DIR --listen-client IP:PORT --listen-peer IP:PORT"
    );
    print_change(&answer.header, &answer.members, &text, client)
}

/// Prints `text`, which describes the change. As a table or JSON, prints the members after the
/// change instead.
fn print_change(
    header: &Option<ResponseHeader>,
    members: &[Member],
    text: &str,
    client: &ClientArgs,
) -> Result<(), CliError> {
    let mut out = std::io::stdout().lock();
    match client.write_out {
        WriteOut::Simple => Ok(writeln!(out, "{text}")?),
        WriteOut::Table => print_members(&mut out, members),
        WriteOut::Json => {
            let list = MemberListResponse { header: *header, members: members.to_vec() };
            output::print_json(&mut out, &json::MemberList::from(&list))
        }
    }
}

fn urls(text: &str) -> Vec<String> {
    text.split(',').map(|url| url.trim().to_owned()).collect()
}

async fn members(cluster: &Cluster) -> Result<Vec<Member>, CliError> {
    let request = MemberListRequest { linearizable: true };
    let list = cluster.call(Repeat::Harmless, async |a| a.cluster().member_list(a.request(request)).await).await?;
    Ok(list.members)
}

/// Reads the member list, and resolves a member's name or hexadecimal id to the id. The id need not
/// be a member's: the server refuses a wrong one.
async fn find(text: &str, cluster: &Cluster) -> Result<u64, CliError> {
    choose(text, &members(cluster).await?)
}

fn choose(text: &str, members: &[Member]) -> Result<u64, CliError> {
    let named: Vec<u64> = members.iter().filter(|member| member.name == text).map(|member| member.id).collect();
    let numbered = u64::from_str_radix(text, 16).ok();
    let is_other = |id: u64| named.iter().any(|named| *named != id) && members.iter().any(|member| member.id == id);
    match (named.first(), numbered) {
        (Some(_), Some(id)) if is_other(id) => {
            Err(CliError::Usage(format!("{text:?} is the name of one member and the id of another: call it otherwise")))
        }
        _ if named.len() > 1 => Err(CliError::Usage(format!("several members are called {text:?}; write the id"))),
        (Some(id), _) => Ok(*id),
        (None, Some(id)) => Ok(id),
        (None, None) => Err(CliError::Usage(format!(
            "{text:?} is neither the name of a member nor an id (hexadecimal); headwater member list shows both"
        ))),
    }
}

/// Hands leadership to the named member. Finds the leader first and sends it the request, because
/// other members refuse it.
pub(super) async fn move_leader(args: MoveLeaderArgs, cluster: &Cluster, client: &ClientArgs) -> Result<(), CliError> {
    let list = members(cluster).await?;
    let target = choose(&args.member, &list)?;
    let status =
        cluster.call(Repeat::Harmless, async |a| a.maintenance().status(a.request(StatusRequest {})).await).await?;
    let leader = status.leader;
    let urls = list.iter().find(|member| member.id == leader).map(|member| member.client_ur_ls.clone());
    let Some(urls) = urls.filter(|urls| !urls.is_empty()) else {
        return Err(CliError::Finding("no leader is known at the moment; try again".to_owned()));
    };
    let at_leader = Cluster::new(&urls, client.timeout, &client.dialer()?)?.as_user(cluster.user());
    let request = MoveLeaderRequest { target_id: target };
    // Idempotent: a move to the current leader changes nothing.
    at_leader.call(Repeat::Harmless, async |a| a.maintenance().move_leader(a.request(request)).await).await?;
    let mut out = std::io::stdout().lock();
    match client.write_out {
        WriteOut::Simple | WriteOut::Table if leader == target => Ok(writeln!(out, "{target:x} leads already")?),
        WriteOut::Json => output::print_json(&mut out, &json::LeaderMoved { from: leader, to: target }),
        WriteOut::Simple | WriteOut::Table => Ok(writeln!(out, "leadership moved from {leader:x} to {target:x}")?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: u64, name: &str) -> Member {
        Member { id, name: name.to_owned(), ..Member::default() }
    }

    #[test]
    fn a_member_is_called_by_name_or_id() {
        let members = [member(1, "node1"), member(0xab, "b"), member(0xb, "x"), member(4, "twin"), member(5, "twin")];
        assert_eq!(choose("node1", &members).ok(), Some(1));
        assert_eq!(choose("ab", &members).ok(), Some(0xab));
        assert_eq!(choose("77", &members).ok(), Some(0x77), "the server knows that there is none");
        assert_eq!(choose("4", &members).ok(), Some(4));
        for (text, why) in [("b", "the id of another"), ("nobody", "neither"), ("twin", "several")] {
            let error = choose(text, &members).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn a_member_that_never_started_is_shown_as_such() {
        let announced = Member { peer_ur_ls: vec!["http://p:1".into()], ..member(4, "") };
        assert_eq!(row(&announced).join(", "), "4, unstarted, , http://p:1, , false");
    }
}
