//! `etcdserverpb.Cluster` (spec: etcd §4.1). Any member answers; the leader makes the change.

use tonic::{Request, Response, Status};

use super::errors::{Failure, Invalid};
use super::header;
use headwater_api_shared::ApiOptions;
use headwater_api_shared::context::{open, reply};
use headwater_node::{Consistency, Member, Node, Read};
use headwater_proto::pb::etcdserverpb as pb;
use headwater_proto::pb::etcdserverpb::cluster_server::Cluster;
use headwater_types::{LogIndex, MemberChange, NodeId};

/// Serves `etcdserverpb.Cluster`.
pub(crate) struct ClusterService {
    node: Node,
    options: ApiOptions,
}

impl ClusterService {
    pub(crate) fn new(node: Node, options: ApiOptions) -> Self {
        Self { node, options }
    }

    /// Makes a membership change. Returns the id of the added, removed, updated or promoted member,
    /// and the parts that every answer has.
    async fn change<T>(
        &self,
        request: Request<T>,
        change: impl FnOnce(T) -> Result<MemberChange, Invalid>,
    ) -> Result<Changed, Failure> {
        let (ctx, request) = open(request, self.options.request_timeout)?;
        let (id, Read { index, value, .. }) = self.node.members().change(&ctx, change(request)?).await?;
        let header = Some(header::without_revision(&self.node));
        Ok(Changed { id, index, header, members: value.into_iter().map(member).collect() })
    }
}

struct Changed {
    id: NodeId,
    index: LogIndex,
    header: Option<pb::ResponseHeader>,
    members: Vec<pb::Member>,
}

#[tonic::async_trait]
impl Cluster for ClusterService {
    async fn member_list(
        &self,
        request: Request<pb::MemberListRequest>,
    ) -> Result<Response<pb::MemberListResponse>, Status> {
        let (ctx, request) = open(request, self.options.request_timeout)?;
        let consistency = if request.linearizable { Consistency::Linearizable } else { Consistency::Serializable };
        let read = self.node.members().list(&ctx, consistency).await.map_err(Failure::Node)?;
        let members = read.value.into_iter().map(member).collect();
        let header = Some(header::without_revision(&self.node));
        Ok(reply(read.index, pb::MemberListResponse { header, members }))
    }

    async fn member_add(
        &self,
        request: Request<pb::MemberAddRequest>,
    ) -> Result<Response<pb::MemberAddResponse>, Status> {
        let Changed { id, index, header, members } = self
            .change(request, |request| {
                let peer_url = peer_url(request.peer_ur_ls)?;
                Ok(MemberChange::Add { peer_url, learner: request.is_learner })
            })
            .await?;
        let member = members.iter().find(|member| member.id == id.get()).cloned();
        Ok(reply(index, pb::MemberAddResponse { header, member, members }))
    }

    async fn member_remove(
        &self,
        request: Request<pb::MemberRemoveRequest>,
    ) -> Result<Response<pb::MemberRemoveResponse>, Status> {
        let Changed { index, header, members, .. } =
            self.change(request, |request| Ok(MemberChange::Remove(request.id.into()))).await?;
        Ok(reply(index, pb::MemberRemoveResponse { header, members }))
    }

    async fn member_update(
        &self,
        request: Request<pb::MemberUpdateRequest>,
    ) -> Result<Response<pb::MemberUpdateResponse>, Status> {
        let Changed { index, header, members, .. } = self
            .change(request, |request| {
                let peer_url = peer_url(request.peer_ur_ls)?;
                Ok(MemberChange::Update { id: request.id.into(), peer_url })
            })
            .await?;
        Ok(reply(index, pb::MemberUpdateResponse { header, members }))
    }

    async fn member_promote(
        &self,
        request: Request<pb::MemberPromoteRequest>,
    ) -> Result<Response<pb::MemberPromoteResponse>, Status> {
        let Changed { index, header, members, .. } =
            self.change(request, |request| Ok(MemberChange::Promote(request.id.into()))).await?;
        Ok(reply(index, pb::MemberPromoteResponse { header, members }))
    }
}

/// The only URL of a list, which must be `http://host:port`. A slash at its end is removed. The
/// error tells whether the list has several URLs, or none that is valid.
fn peer_url(urls: Vec<String>) -> Result<String, Invalid> {
    let [url] = <[String; 1]>::try_from(urls)
        .map_err(|urls| if urls.is_empty() { Invalid::MemberUrls } else { Invalid::SeveralMemberUrls })?;
    let uri: http::Uri = url.parse().map_err(|_| Invalid::MemberUrls)?;
    let is_plain = uri.scheme_str() == Some("http") && uri.path() == "/" && uri.query().is_none();
    match (uri.host(), uri.port_u16()) {
        (Some(host), Some(port)) if is_plain && !host.is_empty() && port != 0 => {
            Ok(url.trim_end_matches('/').to_owned())
        }
        _ => Err(Invalid::MemberUrls),
    }
}

fn member(member: Member) -> pb::Member {
    pb::Member {
        id: member.id.get(),
        name: member.name,
        peer_ur_ls: member.peer_urls,
        client_ur_ls: member.client_urls,
        is_learner: member.is_learner,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_of_a_member_arrives() {
        let node = Member {
            id: 3.into(),
            name: "n3".into(),
            peer_urls: vec!["http://p".into()],
            client_urls: vec!["http://c".into()],
            is_learner: true,
        };
        let wire = member(node);
        assert_eq!((wire.id, wire.name.as_str(), wire.is_learner), (3, "n3", true));
        assert_eq!((wire.peer_ur_ls, wire.client_ur_ls), (vec!["http://p".into()], vec!["http://c".into()]));
    }

    #[test]
    fn a_member_has_one_plain_url() {
        let read = |urls: &[&str]| peer_url(urls.iter().map(|url| (*url).to_owned()).collect());
        assert_eq!(read(&["http://127.0.0.1:2380"]), Ok("http://127.0.0.1:2380".to_owned()));
        assert_eq!(read(&["http://host:2380/"]), Ok("http://host:2380".to_owned()));
        assert_eq!(read(&["http://a:1", "http://b:1"]), Err(Invalid::SeveralMemberUrls));
        assert_eq!(read(&[]), Err(Invalid::MemberUrls));
        for url in [
            "",
            "host:2380",
            "host",
            "http://host",
            "https://host:1",
            "http://host:1/x",
            "http://:1",
            "http://h:0",
            "x y",
        ] {
            assert_eq!(read(&[url]), Err(Invalid::MemberUrls), "{url}");
        }
    }
}
