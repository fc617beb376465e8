//! Response headers: the answering member, and the revision of the state that was read or written
//! (spec: etcd §1.1).

use headwater_node::Node;
use headwater_proto::pb::etcdserverpb::ResponseHeader;
use headwater_types::Revision;

/// The header of a response with the given revision; `node` is the answering member.
pub(super) fn full(node: &Node, revision: Revision) -> ResponseHeader {
    let identity = node.identity();
    ResponseHeader {
        cluster_id: identity.cluster_id.get(),
        member_id: identity.node_id.get(),
        revision: revision.get(),
        raft_term: node.leadership().term.get(),
    }
}

/// The header of a membership response, which has no revision (spec: etcd §4.1).
pub(super) fn without_revision(node: &Node) -> ResponseHeader {
    full(node, Revision(0))
}

/// The header of an operation inside a transaction: only its revision is set (spec: etcd §1.6).
pub(super) fn inner(revision: Revision) -> ResponseHeader {
    ResponseHeader { revision: revision.get(), ..ResponseHeader::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inside_a_transaction_only_the_revision_is_set() {
        let header = inner(Revision(7));
        assert_eq!(header, ResponseHeader { cluster_id: 0, member_id: 0, revision: 7, raft_term: 0 });
    }
}
