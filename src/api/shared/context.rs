//! Metadata of requests and answers: request metadata becomes a [`RequestContext`], an answer gets
//! its index.
//!
//! Invariant: unreadable metadata refuses the request; a guess would weaken the guarantee that the
//! client asked for.

use std::time::{Duration, Instant};

use http::{Extensions, HeaderMap, HeaderName, HeaderValue};
use tonic::{Request, Response};

use super::caller::Caller;
use super::errors::InvalidMetadata;
use headwater_node::RequestContext;
use headwater_types::{LogIndex, Revision, StoreEpoch};

/// On a successful answer: the log index of the state that it was computed from, or of the write.
/// On the error for a minimum index that was not reached in time: the applied index.
pub const HEADWATER_INDEX: HeaderName = HeaderName::from_static("headwater-index");
/// On a request: the answer must come from a state at or past this log index.
pub const HEADWATER_MIN_INDEX: HeaderName = HeaderName::from_static("headwater-min-index");
/// On answers to watches of resources and of the catalog, and on those of `headwater.v1.Store`: the
/// lineage of [`HEADWATER_INDEX`], 16 hexadecimal digits. On a request for such a watch: the
/// lineage of the index to resume after, or of the minimum index.
pub const HEADWATER_EPOCH: HeaderName = HeaderName::from_static("headwater-epoch");
/// On the answer to a lock or a campaign: the fencing token, which is the create revision of the
/// owner's key.
pub const HEADWATER_FENCING_TOKEN: HeaderName = HeaderName::from_static("headwater-fencing-token");
/// On an error, with value `true`: the write is indeterminate. It may have taken effect, or may
/// still: read before a retry.
pub const HEADWATER_INDETERMINATE: HeaderName = HeaderName::from_static("headwater-indeterminate");

/// Splits a request into its context and its message. The timeout of the context is `timeout_max`,
/// or less if the client asks for less.
///
/// # Errors
///
/// If the metadata cannot be read.
pub fn open<T>(request: Request<T>, timeout_max: Duration) -> Result<(RequestContext, T), InvalidMetadata> {
    let context = read(request.metadata().as_ref(), request.extensions(), timeout_max)?;
    Ok((context, request.into_inner()))
}

/// Reads a context from metadata, in one pass, because this runs for every request.
/// `api::access` has put the [`Caller`] into the extensions. The timeout of the context is
/// `timeout_max`, or less if the client asks for less.
///
/// # Errors
///
/// If the metadata cannot be read.
pub fn read(
    metadata: &HeaderMap,
    extensions: &Extensions,
    timeout_max: Duration,
) -> Result<RequestContext, InvalidMetadata> {
    let mut timeout = timeout_max;
    let mut min_index = None;
    let mut require_leader = false;
    for (name, value) in metadata {
        match name.as_str() {
            "grpc-timeout" => timeout = grpc_timeout(value).ok_or(InvalidMetadata::Timeout)?.min(timeout_max),
            "hasleader" => require_leader = value == "true",
            "headwater-min-index" => {
                let index = value.to_str().ok().and_then(|text| text.parse().ok()).ok_or(InvalidMetadata::MinIndex)?;
                min_index = Some(LogIndex(index));
            }
            "client-api-version" if std::str::from_utf8(value.as_bytes()).is_err() => {
                return Err(InvalidMetadata::ClientApiVersion);
            }
            _ => {}
        }
    }
    let context = RequestContext { min_index, require_leader, ..RequestContext::within(timeout) };
    Ok(Caller::of(extensions).fill(context))
}

/// The deadline of a stream that has no end of its own, such as a watch: the client's, without an
/// upper bound. `None` if the client gives none, or one beyond the clock's range.
///
/// # Errors
///
/// If `grpc-timeout` is not a timeout.
pub fn client_deadline(metadata: &HeaderMap) -> Result<Option<Instant>, InvalidMetadata> {
    let Some(value) = metadata.get("grpc-timeout") else { return Ok(None) };
    Ok(Instant::now().checked_add(grpc_timeout(value).ok_or(InvalidMetadata::Timeout)?))
}

/// Reads gRPC's timeout: at most eight digits and a unit. `None` for anything else.
pub fn grpc_timeout(value: &HeaderValue) -> Option<Duration> {
    let text = value.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let amount: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(amount * 3600),
        "M" => Duration::from_secs(amount * 60),
        "S" => Duration::from_secs(amount),
        "m" => Duration::from_millis(amount),
        "u" => Duration::from_micros(amount),
        "n" => Duration::from_nanos(amount),
        _ => return None,
    })
}

/// The value of [`HEADWATER_EPOCH`] is not a lineage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidEpoch;

/// The lineage that a request names; `None` if it names none.
///
/// # Errors
///
/// If the value is not a hexadecimal number of 64 bits.
pub fn epoch(metadata: &HeaderMap) -> Result<Option<StoreEpoch>, InvalidEpoch> {
    let Some(value) = metadata.get(HEADWATER_EPOCH) else { return Ok(None) };
    let number = value.to_str().ok().and_then(|text| u64::from_str_radix(text, 16).ok());
    number.map(|number| Some(StoreEpoch(number))).ok_or(InvalidEpoch)
}

/// A lineage as the value of [`HEADWATER_EPOCH`]: 16 hexadecimal digits.
pub fn write_epoch(epoch: StoreEpoch) -> HeaderValue {
    HeaderValue::try_from(write_epoch_text(epoch)).expect("digits are text")
}

/// A lineage as text: 16 hexadecimal digits.
pub fn write_epoch_text(epoch: StoreEpoch) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    // Every read of the store writes one, and formatting takes several times as long.
    let digits = (0..16).rev().map(|place| DIGITS[(epoch.get() >> (4 * place)) as usize % 16]);
    digits.map(char::from).collect()
}

/// Reads [`write_epoch_text`]; `None` for any other text.
pub fn read_epoch_text(text: &str) -> Option<StoreEpoch> {
    let epoch = StoreEpoch(u64::from_str_radix(text, 16).ok()?);
    (write_epoch_text(epoch) == text).then_some(epoch)
}

/// A number that differs from answer to answer, as the value of a header. It is marked as
/// sensitive, so that HTTP/2 writes it as a literal that is never indexed (RFC 7541, section
/// 6.2.3). Indexed, such numbers would fill the table of headers of a connection and never be used
/// again: each further answer would be compared with all of them and displace one.
pub fn unindexed(number: impl Into<HeaderValue>) -> HeaderValue {
    let mut value = number.into();
    value.set_sensitive(true);
    value
}

/// Makes an answer of a message, with the log index of the state that it was computed from, or of
/// the write.
pub fn reply<T>(index: LogIndex, message: T) -> Response<T> {
    let mut response = Response::new(message);
    response.metadata_mut().as_mut().insert(HEADWATER_INDEX, unindexed(index.get()));
    response
}

/// As [`reply`], with the store's epoch, if it is known: a later request can then resume from
/// `index`.
pub fn reply_with_epoch<T>(epoch: Option<StoreEpoch>, index: LogIndex, message: T) -> Response<T> {
    let mut response = reply(index, message);
    if let Some(epoch) = epoch {
        response.metadata_mut().as_mut().insert(HEADWATER_EPOCH, write_epoch(epoch));
    }
    response
}

/// As [`reply`], with the fencing token: the create revision of the key of the lock's or election's
/// owner.
pub fn reply_with_token<T>(index: LogIndex, token: Revision, message: T) -> Response<T> {
    let mut response = reply(index, message);
    response.metadata_mut().as_mut().insert(HEADWATER_FENCING_TOKEN, unindexed(token.get()));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_node::{Principal, Secret};

    fn metadata(pairs: &[(&'static str, &[u8])]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap()))
            .collect()
    }

    const MAX: Duration = Duration::from_secs(7);

    fn read(metadata: &HeaderMap, timeout_max: Duration) -> Result<RequestContext, InvalidMetadata> {
        super::read(metadata, &Extensions::new(), timeout_max)
    }

    #[test]
    fn numbers_of_single_answers_are_not_kept_in_tables_of_headers() {
        let answer = reply_with_token(LogIndex(7), Revision(9), ());
        for (name, number) in [(HEADWATER_INDEX, "7"), (HEADWATER_FENCING_TOKEN, "9")] {
            let value = &answer.metadata().as_ref()[&name];
            assert!(value == number && value.is_sensitive(), "{name}");
        }
        let answer = reply_with_epoch(Some(StoreEpoch(3)), LogIndex(7), ());
        assert!(!answer.metadata().as_ref()[&HEADWATER_EPOCH].is_sensitive(), "all answers have the same one");
    }

    #[test]
    fn nothing_given_means_defaults() {
        let before = Instant::now();
        let context = read(&HeaderMap::new(), MAX).unwrap();
        assert!(!context.require_leader);
        assert_eq!(context.min_index, None);
        assert!(context.deadline >= before + MAX && context.deadline <= Instant::now() + MAX);
    }

    #[test]
    fn the_caller_is_the_one_that_the_access_checks_admitted() {
        let mut extensions = Extensions::new();
        let principal = |extensions: &Extensions| super::read(&HeaderMap::new(), extensions, MAX).unwrap().principal;
        assert!(matches!(principal(&extensions), Principal::Anonymous));
        extensions.insert(Caller { principal: Principal::Bearer(Secret::new("t")), ..Caller::default() });
        assert!(matches!(principal(&extensions), Principal::Bearer(token) if token.reveal() == "t"));
    }

    #[test]
    fn leader_is_required_only_by_the_word_true() {
        for (value, required) in
            [(&b"true"[..], true), (b"false", false), (b"", false), (b"TRUE", false), (b"1", false)]
        {
            assert_eq!(read(&metadata(&[("hasleader", value)]), MAX).unwrap().require_leader, required, "{value:?}");
        }
    }

    #[test]
    fn min_index_is_a_decimal_number() {
        for (value, wanted) in [
            (&b"0"[..], Some(0)),
            (b"42", Some(42)),
            (b"18446744073709551615", Some(u64::MAX)),
            (b"18446744073709551616", None),
            (b"-1", None),
            (b"", None),
            (b"0x10", None),
            (b"\xff", None),
        ] {
            let read = read(&metadata(&[("headwater-min-index", value)]), MAX);
            match wanted {
                Some(index) => assert_eq!(read.unwrap().min_index, Some(LogIndex(index)), "{value:?}"),
                None => assert_eq!(read.unwrap_err(), InvalidMetadata::MinIndex, "{value:?}"),
            }
        }
    }

    #[test]
    fn client_deadline_only_shortens() {
        for (value, wanted) in [
            (&b"1S"[..], Duration::from_secs(1)),
            (b"250m", Duration::from_millis(250)),
            (b"99999999n", Duration::from_nanos(99_999_999)),
            (b"5u", Duration::from_micros(5)),
            (b"0S", Duration::ZERO),
            (b"7S", MAX),
            (b"8S", MAX),
            (b"1M", MAX),
            (b"99999999H", MAX),
        ] {
            let before = Instant::now();
            let deadline = read(&metadata(&[("grpc-timeout", value)]), MAX).unwrap().deadline;
            assert!(deadline >= before + wanted && deadline <= Instant::now() + wanted, "{value:?}");
        }
        for value in [&b"1"[..], b"S", b"", b"123456789S", b"1s", b"-1S", b"+1S", b"1 S", b"1.5S", b"1\xc3\xa4"] {
            assert_eq!(
                read(&metadata(&[("grpc-timeout", value)]), MAX).unwrap_err(),
                InvalidMetadata::Timeout,
                "{value:?}"
            );
        }
    }

    #[test]
    fn deadline_is_the_clients_own() {
        assert_eq!(client_deadline(&HeaderMap::new()), Ok(None));
        let before = Instant::now();
        let until = client_deadline(&metadata(&[("grpc-timeout", b"2H")])).unwrap().unwrap();
        assert!(until >= before + Duration::from_secs(7200) && until <= Instant::now() + Duration::from_secs(7200));
        assert_eq!(client_deadline(&metadata(&[("grpc-timeout", b"soon")])), Err(InvalidMetadata::Timeout));
    }

    #[test]
    fn client_api_version_must_be_text() {
        assert!(read(&metadata(&[("client-api-version", b"3.6")]), MAX).is_ok());
        let refused = read(&metadata(&[("client-api-version", b"\xff\xfe")]), MAX);
        assert_eq!(refused.unwrap_err(), InvalidMetadata::ClientApiVersion);
    }

    #[test]
    fn answer_carries_its_index() {
        let response = reply(LogIndex(u64::MAX), ());
        assert_eq!(response.metadata().get("headwater-index").unwrap(), "18446744073709551615");
    }
}
