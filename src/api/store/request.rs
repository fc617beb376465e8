//! The shape of requests: messages in, queries of the node out.
//!
//! Owns the checks that need no state. Invariant: nothing is guessed; a field that contradicts
//! another one refuses the request.

use std::num::NonZeroU64;

use sha2::{Digest, Sha256};
use thiserror::Error;

use super::page_token;
use headwater_api_shared::context::read_epoch_text;
use headwater_api_shared::target::{self, store_targets};
use headwater_node::{Consistency, HistoryQuery, Point, Position, StoreQuery, StoreTarget};
use headwater_proto::pb::headwater_v1 as pb;
use headwater_proto::pb::headwater_v1::Direction;
use headwater_types::limits::{STORE_PAGE_MAX, STORE_TARGETS_MAX};
use headwater_types::{Face, LogIndex};

/// The mistake in a request.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum Invalid {
    #[error("targets is empty; \"/?recursive=true\" is everything")]
    NoTargets,
    #[error("more than {STORE_TARGETS_MAX} targets")]
    TooManyTargets,
    #[error("targets[{number}]: {error}")]
    Target { number: usize, error: target::Invalid },
    #[error("{field}.epoch must be 16 hexadecimal digits, as answers have it")]
    Epoch { field: &'static str },
    #[error("{field}.unix_ms must not be negative")]
    Time { field: &'static str },
    #[error("{field} must have an index or a time; leave it out for now")]
    NoPoint { field: &'static str },
    #[error("page_size must be at most {STORE_PAGE_MAX}")]
    PageSize,
    #[error(transparent)]
    Token(#[from] page_token::Invalid),
    #[error("direction {0} is not known")]
    Direction(i32),
    #[error("live goes FORWARD and without \"to\"")]
    Live,
    #[error("there is no face {found:?}; the faces are {}", faces())]
    Face { found: String },
}

fn faces() -> String {
    Face::ALL.map(Face::name).join(", ")
}

/// The freshness that a request asks for.
pub(super) fn consistency(serializable: bool) -> Consistency {
    if serializable { Consistency::Serializable } else { Consistency::Linearizable }
}

fn targets(texts: &[String]) -> Result<Vec<StoreTarget>, Invalid> {
    if texts.len() > STORE_TARGETS_MAX {
        return Err(Invalid::TooManyTargets);
    }
    let mut targets = Vec::with_capacity(texts.len());
    for (number, text) in texts.iter().enumerate() {
        targets.extend(store_targets(text).map_err(|error| Invalid::Target { number, error })?);
    }
    Ok(targets)
}

fn point(field: &'static str, point: Option<&pb::Point>) -> Result<Option<Point>, Invalid> {
    let Some(point) = point else { return Ok(None) };
    let epoch = match point.epoch.as_str() {
        "" => None,
        text => Some(read_epoch_text(text).ok_or(Invalid::Epoch { field })?),
    };
    match point.point {
        Some(pb::point::Point::Index(index)) => Ok(Some(Point::Index(Position { index: LogIndex(index), epoch }))),
        Some(pb::point::Point::UnixMs(unix_ms)) => {
            let unix_ms = u64::try_from(unix_ms).map_err(|_| Invalid::Time { field })?;
            Ok(Some(Point::UnixMs(unix_ms)))
        }
        None => Err(Invalid::NoPoint { field }),
    }
}

/// Identifies targets in page tokens: the same for targets that mean the same.
pub(super) fn hash(targets: &[StoreTarget]) -> u64 {
    let mut hash = Sha256::new();
    for target in targets {
        hash.update(target::path_of(target.space, &target.name));
        hash.update([0, target.depth as u8]);
    }
    let digest = hash.finalize();
    let (first, _) = digest.split_first_chunk().expect("a digest has 32 bytes");
    u64::from_be_bytes(*first)
}

/// The query of a read.
pub(super) fn read(request: &pb::ReadRequest) -> Result<StoreQuery, Invalid> {
    let targets = targets(&request.targets)?;
    if targets.is_empty() {
        return Err(Invalid::NoTargets);
    }
    let page_size = request.page_size as usize;
    if page_size > STORE_PAGE_MAX {
        return Err(Invalid::PageSize);
    }
    let at = point("at", request.at.as_ref())?;
    let page = match &request.page_token[..] {
        [] => None,
        token => Some(page_token::read(hash(&targets), token)?),
    };
    Ok(StoreQuery { targets: targets.into(), at, page_size, page })
}

/// The query of a stream of changes. Without targets it is about everything.
pub(super) fn history(request: &pb::HistoryRequest) -> Result<HistoryQuery, Invalid> {
    let targets = match &request.targets[..] {
        [] => StoreTarget::everything(),
        texts => targets(texts)?,
    };
    let direction = Direction::try_from(request.direction).map_err(|_| Invalid::Direction(request.direction))?;
    let is_backward = direction == Direction::Backward;
    let (from, to) = (point("from", request.from.as_ref())?, point("to", request.to.as_ref())?);
    if request.live && (is_backward || to.is_some()) {
        return Err(Invalid::Live);
    }
    let face = |name: &String| Face::named(name).ok_or_else(|| Invalid::Face { found: name.clone() });
    let (after, through) = if is_backward { (to, from) } else { (from, to) };
    Ok(HistoryQuery {
        targets,
        after,
        through,
        is_backward,
        is_live: request.live,
        faces: request.faces.iter().map(face).collect::<Result<_, _>>()?,
        limit: NonZeroU64::new(request.limit),
        names_only: request.paths_only,
        consistency: consistency(request.serializable),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_node::{Depth, EntitySpace, StorePage};
    use headwater_types::StoreEpoch;

    fn index(index: u64) -> pb::Point {
        pb::Point { point: Some(pb::point::Point::Index(index)), epoch: String::new() }
    }

    fn asked(target: &str) -> pb::ReadRequest {
        pb::ReadRequest { targets: vec![target.to_owned()], ..Default::default() }
    }

    #[test]
    fn reads_are_decoded() {
        let query = read(&pb::ReadRequest { at: Some(index(7)), page_size: 5, ..asked("/kv/app") }).unwrap();
        let target = StoreTarget { space: EntitySpace::Kv, name: "app".to_owned(), depth: Depth::Children };
        let at = Some(Point::Index(Position { index: LogIndex(7), epoch: None }));
        assert_eq!(query, StoreQuery { targets: [target].into(), at, page_size: 5, page: None });
        let page = StorePage { epoch: StoreEpoch(1), at: LogIndex(7), target: 0, after: b"a".to_vec() };
        let token = page_token::write(hash(&query.targets), &page);
        let query = read(&pb::ReadRequest { page_token: token.clone().into(), ..asked("/kv/app?x=y") }).unwrap();
        assert_eq!(query.page, Some(page));
        let other = pb::ReadRequest { page_token: token.into(), ..asked("/kv/app?recursive=true") };
        assert_eq!(read(&other), Err(Invalid::Token(page_token::Invalid::OtherTargets)));
        let everything = read(&asked("/?recursive=true")).unwrap();
        assert_eq!(everything.targets[..], StoreTarget::everything());
    }

    #[test]
    fn what_is_wrong_with_a_read_is_told() {
        let at = |point| pb::ReadRequest { at: Some(point), ..asked("/kv") };
        let time = pb::Point { point: Some(pb::point::Point::UnixMs(-1)), epoch: String::new() };
        for (request, wanted) in [
            (pb::ReadRequest::default(), Invalid::NoTargets),
            (pb::ReadRequest { targets: vec!["/kv".to_owned(); 65], ..Default::default() }, Invalid::TooManyTargets),
            (asked("/"), Invalid::Target { number: 0, error: target::Invalid::Root }),
            (at(pb::Point::default()), Invalid::NoPoint { field: "at" }),
            (at(pb::Point { epoch: "x".to_owned(), ..index(1) }), Invalid::Epoch { field: "at" }),
            (at(time), Invalid::Time { field: "at" }),
            (pb::ReadRequest { page_size: 10_001, ..asked("/kv") }, Invalid::PageSize),
            (pb::ReadRequest { page_token: "x".into(), ..asked("/kv") }, Invalid::Token(page_token::Invalid::Garbage)),
        ] {
            assert_eq!(read(&request), Err(wanted.clone()), "{request:?}");
            assert!(!wanted.to_string().is_empty());
        }
    }

    #[test]
    fn the_direction_decides_which_point_is_the_older_one() {
        let request = pb::HistoryRequest { from: Some(index(5)), to: Some(index(9)), ..Default::default() };
        let at = |index| Some(Point::Index(Position { index: LogIndex(index), epoch: None }));
        let forward = history(&request).unwrap();
        assert_eq!((forward.after, forward.through, forward.is_backward), (at(5), at(9), false));
        assert_eq!(forward.targets, StoreTarget::everything());
        let backward = history(&pb::HistoryRequest { direction: 1, ..request.clone() }).unwrap();
        assert_eq!((backward.after, backward.through, backward.is_backward), (at(9), at(5), true));
        let faces = vec!["etcd".to_owned(), "node".to_owned()];
        let few = history(&pb::HistoryRequest { faces, limit: 3, paths_only: true, ..Default::default() }).unwrap();
        assert_eq!((few.faces, few.limit, few.names_only), (vec![Face::Etcd, Face::Node], NonZeroU64::new(3), true));
        for (request, wanted) in [
            (pb::HistoryRequest { live: true, ..request.clone() }, Invalid::Live),
            (pb::HistoryRequest { live: true, direction: 1, ..Default::default() }, Invalid::Live),
            (pb::HistoryRequest { direction: 2, ..request.clone() }, Invalid::Direction(2)),
            (
                pb::HistoryRequest { faces: vec!["tcp".to_owned()], ..request.clone() },
                Invalid::Face { found: "tcp".to_owned() },
            ),
        ] {
            assert_eq!(history(&request), Err(wanted), "{request:?}");
        }
    }
}
