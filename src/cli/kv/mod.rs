//! The commands that read and write keys, one file a command. Flags are etcdctl's.

pub(super) mod compact;
pub(super) mod del;
pub(super) mod get;
mod grammar;
pub(super) mod put;
pub(super) mod txn;
pub(super) mod watch;

use bytes::Bytes;

use super::error::CliError;
use headwater_types::KeyRange;

/// etcd's pair of `key` and `range_end` for the arguments of a command; an error if they exclude
/// each other.
fn interval(key: &str, range_end: Option<&str>, prefix: bool, from_key: bool) -> Result<(Bytes, Bytes), CliError> {
    let everything = Bytes::from_static(b"\0");
    let key_bytes = Bytes::copy_from_slice(key.as_bytes());
    match (range_end, prefix, from_key) {
        (None, true, true) => Err(CliError::Usage("--prefix and --from-key exclude each other".to_owned())),
        (Some(_), true, _) | (Some(_), _, true) => {
            Err(CliError::Usage("RANGE_END cannot be given together with --prefix or --from-key".to_owned()))
        }
        // An empty prefix or start means every key, which etcd writes as `\0` and `\0`.
        (None, true, _) | (None, _, true) if key.is_empty() => Ok((everything.clone(), everything)),
        (None, true, false) => match KeyRange::prefix(key_bytes) {
            KeyRange::Span { start, end } => Ok((start, end.unwrap_or(everything))),
            KeyRange::One(key) => Ok((key, Bytes::new())),
        },
        (None, false, true) => Ok((key_bytes, everything)),
        (Some(end), false, false) => Ok((key_bytes, Bytes::copy_from_slice(end.as_bytes()))),
        (None, false, false) => Ok((key_bytes, Bytes::new())),
    }
}

/// Reads a lease id as etcdctl writes it: hexadecimal, with or without `0x`.
pub(super) fn parse_lease(text: &str) -> Result<i64, String> {
    let digits = text.trim_start_matches("0x");
    u64::from_str_radix(digits, 16)
        .map(u64::cast_signed)
        .map_err(|_| "a lease id is a hexadecimal number, as `lease grant` printed it".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals() {
        type Pair<'a> = (&'a [u8], &'a [u8]);
        type Case<'a> = (&'a str, Option<&'a str>, bool, bool, Option<Pair<'a>>);
        let cases: [Case<'_>; 10] = [
            ("a", None, false, false, Some((b"a", b""))),
            ("a", Some("c"), false, false, Some((b"a", b"c"))),
            ("a", None, true, false, Some((b"a", b"b"))),
            ("a", None, false, true, Some((b"a", b"\0"))),
            ("", None, true, false, Some((b"\0", b"\0"))),
            ("", None, false, true, Some((b"\0", b"\0"))),
            ("", None, false, false, Some((b"", b""))),
            ("a", None, true, true, None),
            ("a", Some("b"), true, false, None),
            ("a", Some("b"), false, true, None),
        ];
        for (key, end, prefix, from_key, wanted) in cases {
            let got = interval(key, end, prefix, from_key).ok();
            let got = got.as_ref().map(|(key, end)| (key.as_ref(), end.as_ref()));
            assert_eq!(got, wanted, "{key:?} {end:?} {prefix} {from_key}");
        }
    }

    #[test]
    fn leases_are_hexadecimal() {
        assert_eq!(parse_lease("32695410dcc0ca06"), Ok(0x3269_5410_dcc0_ca06));
        assert_eq!(parse_lease("0x10"), Ok(16));
        assert!(parse_lease("lease").is_err());
    }
}
