//! The identity and version of this agent, and the members of the cluster as Serf shows them.

use http::StatusCode;
use serde::Serialize;
use serde_json::json;

use super::super::access::Right;
use super::super::answer::{Answer, Refusal};
use super::super::call::Call;
use super::super::status::address;
use super::node_id;
use headwater_node::{Consistency, Member};
use headwater_types::{Access, Space};

/// The release of Consul that this API is compatible with. Some clients choose their requests by
/// it.
const CONSUL_COMPATIBLE_VERSION: &str = "1.21.0";
const HEADWATER_VERSION: &str = env!("CARGO_PKG_VERSION");

/// Serf's number for a member that is alive. Only this member and the leader get it: this member
/// does not know the state of the others.
const ALIVE: u8 = 1;
/// Serf's number for a member of unknown state.
const UNKNOWN: u8 = 0;

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct MemberJson {
    name: String,
    addr: String,
    port: u16,
    tags: serde_json::Value,
    status: u8,
    protocol_min: u8,
    protocol_max: u8,
    protocol_cur: u8,
    delegate_min: u8,
    delegate_max: u8,
    delegate_cur: u8,
}

async fn members(call: &Call) -> Result<Vec<Member>, Refusal> {
    Ok(call.node().members().named(&call.context()?, Consistency::Serializable).await?.value)
}

/// The host of this member's client URL. Refused with 503 until the cluster knows the URL, shortly
/// after the member's first start.
pub(super) async fn own_address(call: &Call) -> Result<String, Refusal> {
    let own = call.node().identity().node_id;
    let members = members(call).await?;
    let host = members.iter().find(|member| member.id == own).map(|member| host_and_port(member).0);
    host.filter(|host| !host.is_empty()).ok_or_else(|| {
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the cluster does not know this member's address yet, try again")
    })
}

fn host_and_port(member: &Member) -> (String, u16) {
    let address = address(member);
    match address.rsplit_once(':') {
        Some((host, port)) => (host.trim_matches(['[', ']']).to_owned(), port.parse().unwrap_or(0)),
        None => (address, 0),
    }
}

fn show(call: &Call, member: &Member) -> MemberJson {
    let node = call.node();
    let (addr, port) = host_and_port(member);
    let is_known = member.id == node.identity().node_id || node.live_leader() == Some(member.id);
    MemberJson {
        name: member.name.clone(),
        addr,
        port,
        tags: json!({
            "role": "consul",
            "dc": node.datacenter(),
            "port": port.to_string(),
            "id": member.id.to_string(),
            "build": CONSUL_COMPATIBLE_VERSION,
            "read_replica": if member.is_learner { "true" } else { "" },
        }),
        status: if is_known { ALIVE } else { UNKNOWN },
        protocol_min: 1,
        protocol_max: 5,
        protocol_cur: 2,
        delegate_min: 2,
        delegate_max: 5,
        delegate_cur: 4,
    }
}

fn agent_right(node: &str) -> Right<'_> {
    Right::name(Space::Agent, node, Access::READ)
}

/// This agent: datacenter, name, version and Raft state. Some clients read it before other
/// requests.
pub(crate) async fn own(call: Call) -> Result<Answer, Refusal> {
    let node = call.node();
    call.require(&agent_right(node.name()))?;
    let identity = node.identity();
    let members = members(&call).await?;
    let own = members.iter().find(|member| member.id == identity.node_id).map(|member| show(&call, member));
    let leader = node.live_leader().and_then(|leader| members.iter().find(|member| member.id == leader));
    let status = node.status()?;
    Ok(call.answer(&json!({
        "Config": {
            "Datacenter": node.datacenter(),
            "PrimaryDatacenter": node.datacenter(),
            "NodeName": node.name(),
            "NodeID": node_id(node),
            "Revision": "",
            "Server": true,
            "Version": CONSUL_COMPATIBLE_VERSION,
            "BuildDate": "",
        },
        "DebugConfig": {},
        "Coord": null,
        "Member": own,
        "Meta": {"headwater-version": HEADWATER_VERSION},
        "Stats": {
            "build": {"version": CONSUL_COMPATIBLE_VERSION, "headwater": HEADWATER_VERSION},
            "consul": {
                "server": "true",
                "leader": (node.live_leader() == Some(identity.node_id)).to_string(),
                "leader_addr": leader.map(address).unwrap_or_default(),
                "known_datacenters": "1",
            },
            "raft": {
                "term": status.leadership.term.get().to_string(),
                "commit_index": status.committed.get().to_string(),
                "applied_index": status.applied.get().to_string(),
                "num_peers": members.len().saturating_sub(1).to_string(),
            },
        },
    })))
}

/// The members of the cluster that the request may see.
pub(crate) async fn list_members(call: Call) -> Result<Answer, Refusal> {
    let mut members = members(&call).await?;
    let visibility = call.visibility()?;
    visibility.keep(&mut members, |member| visibility.sees_node(&member.name));
    let shown: Vec<MemberJson> = members.iter().map(|member| show(&call, member)).collect();
    Ok(call.answer(&shown))
}

/// The release of Consul that this API is compatible with, and the version of Headwater.
pub(crate) async fn version(call: Call) -> Result<Answer, Refusal> {
    call.require(&agent_right(call.node().name()))?;
    Ok(call.answer(&json!({
        "SHA": "",
        "BuildDate": "",
        "HumanVersion": format!("{CONSUL_COMPATIBLE_VERSION} (headwater {HEADWATER_VERSION})"),
        "FIPS": "",
    })))
}
