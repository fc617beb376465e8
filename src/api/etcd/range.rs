//! Range (spec: etcd §1.2).

use super::errors::{Failure, Invalid};
use super::{convert, header, validate};
use headwater_node::{Consistency, Node, RequestContext};
use headwater_proto::pb::etcdserverpb as pb;
use headwater_types::{KeyRange, LogIndex, RangeQuery, ReadAt, Revision, RevisionFilter, SortOrder, SortTarget};

pub(super) async fn run(
    node: &Node,
    ctx: &RequestContext,
    request: pb::RangeRequest,
) -> Result<(LogIndex, pb::RangeResponse), Failure> {
    let consistency = consistency(&request);
    let at = unary_revision(request.revision);
    let read = node.keys().range(ctx, consistency, decode(request, at)?).await?;
    Ok((read.index, convert::ranged(header::full(node, read.revision), read.value)))
}

pub(super) fn consistency(request: &pb::RangeRequest) -> Consistency {
    if request.serializable { Consistency::Serializable } else { Consistency::Linearizable }
}

/// The state that the `revision` of a request outside of transactions names: the current one for 0
/// and below. Inside a transaction, only 0 names the current state (see `txn`).
pub(super) fn unary_revision(revision: i64) -> ReadAt {
    if revision <= 0 { ReadAt::Current } else { ReadAt::Revision(Revision(revision)) }
}

pub(super) fn decode(request: pb::RangeRequest, at: ReadAt) -> Result<RangeQuery, Invalid> {
    validate::key(&request.key)?;
    Ok(RangeQuery {
        at,
        limit: u64::try_from(request.limit).unwrap_or(0),
        order: match pb::range_request::SortOrder::try_from(request.sort_order).map_err(|_| Invalid::SortOption)? {
            pb::range_request::SortOrder::None => SortOrder::None,
            pb::range_request::SortOrder::Ascend => SortOrder::Ascend,
            pb::range_request::SortOrder::Descend => SortOrder::Descend,
        },
        target: match pb::range_request::SortTarget::try_from(request.sort_target).map_err(|_| Invalid::SortOption)? {
            pb::range_request::SortTarget::Key => SortTarget::Key,
            pb::range_request::SortTarget::Version => SortTarget::Version,
            pb::range_request::SortTarget::Create => SortTarget::Create,
            pb::range_request::SortTarget::Mod => SortTarget::Mod,
            pb::range_request::SortTarget::Value => SortTarget::Value,
        },
        filter: RevisionFilter {
            min_mod: request.min_mod_revision,
            max_mod: request.max_mod_revision,
            min_create: request.min_create_revision,
            max_create: request.max_create_revision,
        },
        keys_only: request.keys_only,
        count_only: request.count_only,
        range: KeyRange::from_etcd(request.key, request.range_end),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask() -> pb::RangeRequest {
        pb::RangeRequest { key: "k".into(), ..Default::default() }
    }

    #[test]
    fn fields_reach_the_query() {
        let request = pb::RangeRequest {
            range_end: "z".into(),
            limit: 3,
            sort_order: 2,
            sort_target: 4,
            keys_only: true,
            count_only: true,
            min_mod_revision: 4,
            max_mod_revision: 5,
            min_create_revision: 6,
            max_create_revision: 7,
            ..ask()
        };
        let wanted = RangeQuery {
            range: KeyRange::Span { start: "k".into(), end: Some("z".into()) },
            at: ReadAt::Revision(Revision(9)),
            limit: 3,
            order: SortOrder::Descend,
            target: SortTarget::Value,
            filter: RevisionFilter { min_mod: 4, max_mod: 5, min_create: 6, max_create: 7 },
            keys_only: true,
            count_only: true,
        };
        assert_eq!(decode(request, ReadAt::Revision(Revision(9))), Ok(wanted));
    }

    #[test]
    fn nothing_given_reads_one_key_now() {
        assert_eq!(decode(ask(), ReadAt::Current), Ok(RangeQuery::new(KeyRange::One("k".into()))));
        assert_eq!(consistency(&ask()), Consistency::Linearizable);
        assert_eq!(consistency(&pb::RangeRequest { serializable: true, ..ask() }), Consistency::Serializable);
    }

    #[test]
    fn negative_numbers_mean_nothing_given() {
        for (revision, wanted) in [
            (i64::MIN, ReadAt::Current),
            (-1, ReadAt::Current),
            (0, ReadAt::Current),
            (1, ReadAt::Revision(Revision(1))),
            (i64::MAX, ReadAt::Revision(Revision(i64::MAX))),
        ] {
            assert_eq!(unary_revision(revision), wanted);
        }
        for (limit, wanted) in [(i64::MIN, 0), (-1, 0), (0, 0), (1, 1), (i64::MAX, i64::MAX as u64)] {
            let query = decode(pb::RangeRequest { limit, ..ask() }, ReadAt::Current).unwrap();
            assert_eq!(query.limit, wanted);
        }
    }

    #[test]
    fn malformed_requests_are_refused() {
        let table = [
            (pb::RangeRequest::default(), Invalid::EmptyKey),
            (pb::RangeRequest { range_end: "\0".into(), ..Default::default() }, Invalid::EmptyKey),
            (pb::RangeRequest { sort_order: 3, ..ask() }, Invalid::SortOption),
            (pb::RangeRequest { sort_order: -1, ..ask() }, Invalid::SortOption),
            (pb::RangeRequest { sort_target: 5, ..ask() }, Invalid::SortOption),
            (pb::RangeRequest { sort_target: -1, ..ask() }, Invalid::SortOption),
        ];
        for (request, wanted) in table {
            assert_eq!(decode(request.clone(), ReadAt::Current), Err(wanted), "{request:?}");
        }
        for (sort_order, sort_target) in (0..=2).flat_map(|order| (0..=4).map(move |target| (order, target))) {
            assert!(decode(pb::RangeRequest { sort_order, sort_target, ..ask() }, ReadAt::Current).is_ok());
        }
    }
}
