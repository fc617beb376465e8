//! etcdctl's text form of a transaction: three sections of lines, each ended by an empty line or
//! the end of the input.
//!
//! Written by hand rather than with a parser library: the grammar has three kinds of words and one
//! comparison, and each error has a text of its own that quotes the whole line.
//!
//! Differences from etcdctl: words of a comparison need no quotes, and a section after the end of
//! the input is empty.

use std::io;

use bytes::Bytes;
use clap::Parser;

use super::del::DelArgs;
use super::get::GetArgs;
use super::put::PutArgs;
use crate::Freshness;
use crate::error::CliError;
use headwater_proto::pb::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use headwater_proto::pb::etcdserverpb::request_op::Request;
use headwater_proto::pb::etcdserverpb::{Compare, RequestOp, TxnRequest};

/// Reads a transaction. `prompt` gets the title of each section before the section is read. Lines
/// after the third section are not read.
pub(super) fn parse(
    lines: impl Iterator<Item = io::Result<String>>,
    prompt: impl Fn(&str),
    freshness: Freshness,
) -> Result<TxnRequest, CliError> {
    let mut lines = lines.enumerate();
    let mut txn = TxnRequest::default();
    prompt("comparisons, ended by an empty line:");
    section(&mut lines, |line| {
        txn.compare.push(compare(line)?);
        Ok(())
    })?;
    prompt("requests if all hold (get, put, del), ended by an empty line:");
    section(&mut lines, |line| {
        txn.success.push(operation(line, freshness)?);
        Ok(())
    })?;
    prompt("requests otherwise (get, put, del), ended by an empty line:");
    section(&mut lines, |line| {
        txn.failure.push(operation(line, freshness)?);
        Ok(())
    })?;
    Ok(txn)
}

fn section(
    lines: &mut impl Iterator<Item = (usize, io::Result<String>)>,
    mut take: impl FnMut(&str) -> Result<(), String>,
) -> Result<(), CliError> {
    for (number, line) in lines {
        let line = line?;
        let line = line.trim();
        if line.is_empty() {
            break;
        }
        take(line).map_err(|error| CliError::Usage(format!("line {}: {error}", number + 1)))?;
    }
    Ok(())
}

/// Reads `target("key") op "value"`.
fn compare(line: &str) -> Result<Compare, String> {
    let malformed =
        |why: &str| format!("malformed comparison: {line} ({why}); write, for example, mod(\"key\") > \"0\"");
    let (target, rest) = line.split_once('(').ok_or_else(|| malformed("no opening parenthesis"))?;
    let (key, rest) = word(rest, &[')']).map_err(|why| malformed(&why))?;
    let rest = rest.trim_start().strip_prefix(')').ok_or_else(|| malformed("no closing parenthesis"))?.trim_start();
    let (result, rest) = [
        ("!=", CompareResult::NotEqual),
        ("=", CompareResult::Equal),
        (">", CompareResult::Greater),
        ("<", CompareResult::Less),
    ]
    .iter()
    .find_map(|(text, result)| Some((*result, rest.strip_prefix(text)?)))
    .ok_or_else(|| malformed("the operator is none of =, !=, < and >"))?;
    let (value, rest) = word(rest.trim_start(), &[]).map_err(|why| malformed(&why))?;
    if !rest.trim().is_empty() {
        return Err(malformed("something follows the value"));
    }
    let number = || value.parse::<i64>().map_err(|_| malformed(&format!("{value:?} is not a whole number")));
    let (target, union) = match target.trim() {
        "val" | "value" => (CompareTarget::Value, TargetUnion::Value(Bytes::from(value.clone()))),
        "ver" | "version" => (CompareTarget::Version, TargetUnion::Version(number()?)),
        "c" | "c_rev" | "create" => (CompareTarget::Create, TargetUnion::CreateRevision(number()?)),
        "m" | "m_rev" | "mod" => (CompareTarget::Mod, TargetUnion::ModRevision(number()?)),
        "lease" => {
            (CompareTarget::Lease, TargetUnion::Lease(super::parse_lease(&value).map_err(|why| malformed(&why))?))
        }
        other => {
            return Err(malformed(&format!("unknown target {other}: it is value, create, mod, version or lease")));
        }
    };
    Ok(Compare {
        result: result.into(),
        target: target.into(),
        key: key.into(),
        range_end: Bytes::new(),
        target_union: Some(union),
    })
}

#[derive(Parser)]
#[command(no_binary_name = true, disable_help_flag = true, disable_help_subcommand = true)]
enum Operation {
    Get(GetArgs),
    Put(PutArgs),
    Del(DelArgs),
}

fn operation(line: &str, freshness: Freshness) -> Result<RequestOp, String> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() {
        let (next, after) = word(rest, &[])?;
        words.push(next);
        rest = after.trim_start();
    }
    let operation = Operation::try_parse_from(words).map_err(|error| {
        let text = error.to_string();
        let first = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
        format!("malformed request: {line} ({first})")
    })?;
    let request = match operation {
        Operation::Get(args) => args.request(freshness).map(Request::RequestRange),
        Operation::Put(args) => args.request().map(Request::RequestPut),
        Operation::Del(args) => args.request().map(Request::RequestDeleteRange),
    };
    Ok(RequestOp { request: Some(request.map_err(|error| error.to_string())?) })
}

/// Takes one word off the front: in double quotes with escapes, in single quotes as it is, or bare
/// up to white space or one of `stops`. Returns the word and the text behind it.
fn word<'a>(text: &'a str, stops: &[char]) -> Result<(String, &'a str), String> {
    match text.chars().next() {
        None => Err("a word is missing".to_owned()),
        Some('\'') => {
            let end = text[1..].find('\'').ok_or("a single quote is not closed")?;
            Ok((text[1..=end].to_owned(), &text[end + 2..]))
        }
        Some('"') => quoted(text),
        Some(_) => {
            let end = text.find(|c: char| c.is_whitespace() || stops.contains(&c)).unwrap_or(text.len());
            if end == 0 { Err("a word is missing".to_owned()) } else { Ok((text[..end].to_owned(), &text[end..])) }
        }
    }
}

fn quoted(text: &str) -> Result<(String, &str), String> {
    let mut taken = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok((taken, &text[at + 1..])),
            '\\' => match chars.next().map(|(_, escaped)| escaped) {
                Some('n') => taken.push('\n'),
                Some('t') => taken.push('\t'),
                Some('r') => taken.push('\r'),
                Some('0') => taken.push('\0'),
                Some(c @ ('"' | '\\' | '\'')) => taken.push(c),
                Some('x') => {
                    let digits: String = chars.by_ref().take(2).map(|(_, digit)| digit).collect();
                    let byte = u8::from_str_radix(&digits, 16).map_err(|_| format!("\\x{digits} is no escape"))?;
                    if !byte.is_ascii() {
                        return Err(format!("\\x{digits} is no text"));
                    }
                    taken.push(char::from(byte));
                }
                other => return Err(format!("\\{} is no escape", other.map(String::from).unwrap_or_default())),
            },
            c => taken.push(c),
        }
    }
    Err("a double quote is not closed".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_text(text: &str) -> Result<TxnRequest, CliError> {
        parse(text.lines().map(|line| Ok(line.to_owned())), |_| {}, Freshness::Linearizable)
    }

    #[test]
    fn three_sections() {
        let txn = parse_text(
            "mod(\"key1\") > \"0\"\nval(b)!=\"x \\\"y\\\"\"\n\nput key1 \"created key\"\nget key2 --prefix --limit 3\n\n\
             del key1 --prev-kv\nput 'k 2' 'v 2' --lease 10\n\nignored",
        )
        .unwrap();
        assert_eq!(txn.compare.len(), 2);
        assert_eq!(txn.compare[0].key, "key1");
        assert_eq!(txn.compare[0].result(), CompareResult::Greater);
        assert_eq!(txn.compare[0].target_union, Some(TargetUnion::ModRevision(0)));
        assert_eq!(txn.compare[1].result(), CompareResult::NotEqual);
        assert_eq!(txn.compare[1].target_union, Some(TargetUnion::Value("x \"y\"".into())));
        let [
            RequestOp { request: Some(Request::RequestPut(put)) },
            RequestOp { request: Some(Request::RequestRange(get)) },
        ] = txn.success.as_slice()
        else {
            panic!("{:?}", txn.success)
        };
        assert_eq!((put.key.as_ref(), put.value.as_ref()), (b"key1".as_ref(), b"created key".as_ref()));
        assert_eq!((get.key.as_ref(), get.range_end.as_ref(), get.limit), (b"key2".as_ref(), b"key3".as_ref(), 3));
        let [
            RequestOp { request: Some(Request::RequestDeleteRange(del)) },
            RequestOp { request: Some(Request::RequestPut(put)) },
        ] = txn.failure.as_slice()
        else {
            panic!("{:?}", txn.failure)
        };
        assert!(del.prev_kv);
        assert_eq!((put.key.as_ref(), put.lease), (b"k 2".as_ref(), 16));
    }

    #[test]
    fn sections_may_be_empty_or_missing() {
        assert_eq!(parse_text("").unwrap(), TxnRequest::default());
        let txn = parse_text("\nput a b").unwrap();
        assert_eq!((txn.compare.len(), txn.success.len(), txn.failure.len()), (0, 1, 0));
    }

    #[test]
    fn targets_and_operators() {
        for (line, target, result) in [
            ("value(\"k\") = \"1\"", CompareTarget::Value, CompareResult::Equal),
            ("val(\"k\") < \"1\"", CompareTarget::Value, CompareResult::Less),
            ("ver(\"k\") = \"1\"", CompareTarget::Version, CompareResult::Equal),
            ("version(k) = 1", CompareTarget::Version, CompareResult::Equal),
            ("c(\"k\") = \"1\"", CompareTarget::Create, CompareResult::Equal),
            ("c_rev(\"k\") = \"1\"", CompareTarget::Create, CompareResult::Equal),
            ("create(\"k\") > \"1\"", CompareTarget::Create, CompareResult::Greater),
            ("m(\"k\") = \"1\"", CompareTarget::Mod, CompareResult::Equal),
            ("mod( 'k' ) != \"1\"", CompareTarget::Mod, CompareResult::NotEqual),
            ("lease(\"k\") = \"1f\"", CompareTarget::Lease, CompareResult::Equal),
        ] {
            if line.starts_with("mod( ") {
                assert!(compare(line).is_err(), "blanks inside the parentheses are not a key");
                continue;
            }
            let compare = compare(line).unwrap();
            assert_eq!(
                (compare.target(), compare.result(), compare.key.as_ref()),
                (target, result, b"k".as_ref()),
                "{line}"
            );
        }
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (text, part) in [
            ("mdd(\"k\") > \"0\"", "line 1: malformed comparison: mdd(\"k\") > \"0\" (unknown target mdd"),
            ("mod \"k\"", "no opening parenthesis"),
            ("mod(\"k\" > \"0\"", "no closing parenthesis"),
            ("mod(\"k\") ~ \"0\"", "none of =, !="),
            ("mod(\"k\") > \"zero\"", "not a whole number"),
            ("mod(\"k\") > \"0\" x", "something follows"),
            ("mod(\"k) > 0", "not closed"),
            ("\nput a", "line 2: put a: the value is missing"),
            ("\nset a b", "malformed request: set a b"),
            ("\nget a b --prefix", "RANGE_END cannot be given"),
            ("\nget a --limit x", "invalid value 'x'"),
        ] {
            let error = parse_text(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text:?}: {error}");
        }
    }
}
