//! `/v1/status`: the leader and the members. Many clients use it to probe the cluster.

use super::answer::{Answer, Refusal};
use super::call::Call;
use headwater_node::{Consistency, Member};

/// `host:port` of the leader's client port; an empty text while no leader is known.
pub(super) async fn leader(call: Call) -> Result<Answer, Refusal> {
    let members = call.node().members().named(&call.context()?, Consistency::Serializable).await?.value;
    let leader = call.node().live_leader().and_then(|leader| members.iter().find(|member| member.id == leader));
    Ok(call.answer(&leader.map(address).unwrap_or_default()))
}

/// `host:port` of the client port of every voter, and of every announced voter; empty for one that
/// never started.
pub(super) async fn peers(call: Call) -> Result<Answer, Refusal> {
    let members = call.node().members().named(&call.context()?, Consistency::Serializable).await?.value;
    let peers: Vec<String> = members.iter().filter(|member| !member.is_learner).map(address).collect();
    Ok(call.answer(&peers))
}

/// `host:port` of a member's first client URL; empty until its first start.
pub(super) fn address(member: &Member) -> String {
    let url = member.client_urls.first().map_or("", String::as_str);
    url.split_once("://").map_or(url, |(_, rest)| rest).trim_end_matches('/').to_owned()
}
