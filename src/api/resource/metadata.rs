//! Metadata of this face.
//!
//! Consul's: the consistency of a read. Headwater's: pages of a list, and the start of a watch.
//! Unreadable metadata refuses the request, except that any unknown consistency means this node's
//! state.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::validate::Invalid;
use headwater_api_shared::context;
use headwater_node::{Consistency, PageToken, Position, WatchStart};
use headwater_types::{LogIndex, StoreEpoch};

/// On Read and List, with the value `consistent`: the answer must have every write that was
/// acknowledged before the request.
pub(super) const CONSISTENCY_MODE: &str = "x-consul-consistency-mode";
/// On List: largest number of resources in a page. No limit if it is missing or 0.
pub(super) const PAGE_SIZE: &str = "headwater-page-size";
/// On the answer to List: the start of the next page; none after the last page. On a request: the
/// page to begin with.
pub(super) const PAGE_TOKEN: HeaderName = HeaderName::from_static("headwater-page-token");
/// On WatchList: begin after this log index, without a list.
pub(super) const RESUME_INDEX: &str = "headwater-resume-index";

/// The consistency of a read (spec: consul §5.2): anything but `consistent` reads this node's
/// state.
pub(super) fn consistency(metadata: &HeaderMap) -> Consistency {
    match metadata.get(CONSISTENCY_MODE) {
        Some(mode) if mode == "consistent" => Consistency::Linearizable,
        Some(_) | None => Consistency::Serializable,
    }
}

fn number(metadata: &HeaderMap, name: &'static str) -> Result<Option<u64>, Invalid> {
    let Some(value) = metadata.get(name) else { return Ok(None) };
    let number = value.to_str().ok().and_then(|text| text.parse().ok());
    number.map(Some).ok_or(Invalid::Metadata(name))
}

/// The size of the requested page, zero for no limit, and its start; `None` for the first page.
pub(super) fn page(metadata: &HeaderMap) -> Result<(usize, Option<PageToken>), Invalid> {
    let size = number(metadata, PAGE_SIZE)?.map_or(0, |size| usize::try_from(size).unwrap_or(usize::MAX));
    let token = match metadata.get(PAGE_TOKEN) {
        None => None,
        Some(value) => Some(read_token(value).ok_or(Invalid::Metadata("headwater-page-token"))?),
    };
    Ok((size, token))
}

/// A token as text: lineage and index, then the key.
pub(super) fn write_token(token: &PageToken) -> HeaderValue {
    let mut bytes = Vec::with_capacity(16 + token.after.len());
    bytes.extend_from_slice(&token.epoch.get().to_be_bytes());
    bytes.extend_from_slice(&token.at.get().to_be_bytes());
    bytes.extend_from_slice(&token.after);
    HeaderValue::try_from(URL_SAFE_NO_PAD.encode(bytes)).expect("base64 is text")
}

fn read_token(value: &HeaderValue) -> Option<PageToken> {
    let bytes = URL_SAFE_NO_PAD.decode(value.as_bytes()).ok()?;
    let (epoch, rest) = bytes.split_first_chunk::<8>()?;
    let (at, after) = rest.split_first_chunk::<8>()?;
    Some(PageToken {
        epoch: StoreEpoch(u64::from_be_bytes(*epoch)),
        at: LogIndex(u64::from_be_bytes(*at)),
        after: Bytes::copy_from_slice(after),
    })
}

/// The start of a watch: after the given index, or the whole state if none is given.
pub(super) fn watch_start(metadata: &HeaderMap) -> Result<WatchStart, Invalid> {
    let Some(index) = number(metadata, RESUME_INDEX)? else { return Ok(WatchStart::STATE) };
    let epoch = context::epoch(metadata).map_err(|context::InvalidEpoch| Invalid::Metadata("headwater-epoch"))?;
    Ok(WatchStart::After(Position { index: LogIndex(index), epoch }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn only_the_word_consistent_is_strong() {
        for (pairs, wanted) in [
            (&[][..], Consistency::Serializable),
            (&[(CONSISTENCY_MODE, "consistent")], Consistency::Linearizable),
            (&[(CONSISTENCY_MODE, "Consistent")], Consistency::Serializable),
            (&[(CONSISTENCY_MODE, "")], Consistency::Serializable),
        ] {
            assert_eq!(consistency(&metadata(pairs)), wanted, "{pairs:?}");
        }
    }

    #[test]
    fn a_token_comes_back_as_it_was_given() {
        let token = PageToken { epoch: StoreEpoch(7), at: LogIndex(9), after: Bytes::from_static(b"a\x01b") };
        let mut map = HeaderMap::new();
        map.insert(PAGE_TOKEN, write_token(&token));
        assert_eq!(page(&map), Ok((0, Some(token))));
        for wrong in ["", "!", "AAAA"] {
            let map = metadata(&[("headwater-page-token", wrong)]);
            assert_eq!(page(&map), Err(Invalid::Metadata("headwater-page-token")), "{wrong:?}");
        }
        assert_eq!(page(&metadata(&[(PAGE_SIZE, "5")])), Ok((5, None)));
        for wrong in ["", "-1", "x", "99999999999999999999999"] {
            assert_eq!(page(&metadata(&[(PAGE_SIZE, wrong)])), Err(Invalid::Metadata(PAGE_SIZE)), "{wrong:?}");
        }
    }

    #[test]
    fn a_watch_begins_with_a_list_unless_told_otherwise() {
        for (pairs, wanted) in [
            (&[][..], Ok(WatchStart::STATE)),
            (&[(RESUME_INDEX, "0")], Ok(WatchStart::After(Position { index: LogIndex(0), epoch: None }))),
            (
                &[(RESUME_INDEX, "12"), ("headwater-epoch", "00000000000000ff")],
                Ok(WatchStart::After(Position { index: LogIndex(12), epoch: Some(StoreEpoch(255)) })),
            ),
            (&[(RESUME_INDEX, "x")], Err(Invalid::Metadata(RESUME_INDEX))),
            (&[(RESUME_INDEX, "1"), ("headwater-epoch", "x")], Err(Invalid::Metadata("headwater-epoch"))),
        ] {
            assert_eq!(watch_start(&metadata(pairs)), wanted, "{pairs:?}");
        }
        assert_eq!(context::write_epoch(StoreEpoch(255)), "00000000000000ff");
    }
}
