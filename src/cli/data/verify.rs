//! `headwater verify`: reads a data set back, page by page at one revision, and compares every
//! pair.

use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use bytes::Bytes;
use serde::Serialize;

use super::DataSet;
use crate::connect::Cluster;
use crate::error::CliError;
use crate::output::{self, WriteOut};
use crate::{ClientArgs, Freshness};
use headwater_client::Repeat;
use headwater_proto::pb::etcdserverpb::{RangeRequest, RangeResponse};
use headwater_types::KeyRange;

/// Pairs per page.
const PAGE: i64 = 2000;
/// Most differences that are shown one by one.
const SHOWN_MAX: usize = 10;

/// Read the keys that `load` wrote and compare them with the file
///
/// Keys under --prefix that are not in the file are reported too; without --prefix the whole store
/// is compared.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct VerifyArgs {
    /// The file that was loaded, or - for standard input
    file: PathBuf,
    /// The prefix that was given to load
    #[arg(long, default_value = "", value_name = "TEXT")]
    prefix: String,
    /// Show progress even if standard error is no terminal (lines instead of a bar)
    #[arg(long)]
    progress: bool,
}

/// Numbers of keys by the result of their comparison, and the first differences as texts.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct Findings {
    equal: u64,
    missing: u64,
    different: u64,
    extra: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    examples: Vec<String>,
}

#[derive(Serialize)]
struct Summary {
    revision: i64,
    seconds: f64,
    #[serde(flatten)]
    findings: Findings,
}

pub(crate) async fn run(args: VerifyArgs, cluster: &Cluster, client: &ClientArgs) -> Result<(), CliError> {
    let mut wanted = DataSet::read(&args.file, &args.prefix)?.pairs;
    wanted.sort_unstable();
    let mut progress = super::progress("reading", wanted.len(), args.progress);
    let began = Instant::now();

    let (mut key, range_end) = match KeyRange::prefix(Bytes::from(args.prefix.clone())) {
        KeyRange::Span { start, end } if start.is_empty() => (Bytes::from_static(b"\0"), end),
        KeyRange::Span { start, end } => (start, end),
        KeyRange::One(key) => (key, None),
    };
    let range_end = range_end.unwrap_or(Bytes::from_static(b"\0"));
    let mut comparison = Comparison::new(&wanted);
    let mut revision = 0;
    loop {
        let request = RangeRequest {
            key: key.clone(),
            range_end: range_end.clone(),
            limit: PAGE,
            revision,
            serializable: client.consistency == Freshness::Serializable,
            ..Default::default()
        };
        let page: RangeResponse =
            cluster.call(Repeat::Harmless, async |a| a.kv().range(a.request(request.clone())).await).await?;
        if revision == 0 {
            revision = page.header.as_ref().map_or(0, |header| header.revision);
        }
        for kv in &page.kvs {
            comparison.see(&kv.key, &kv.value);
        }
        progress.set(comparison.seen);
        match page.kvs.last() {
            Some(last) if page.more => key = [last.key.as_ref(), b"\0"].concat().into(),
            _ => break,
        }
    }
    let findings = comparison.finish();
    progress.finish();

    let bad = findings.missing + findings.different + findings.extra;
    let summary = Summary { revision, seconds: began.elapsed().as_secs_f64(), findings };
    let mut out = std::io::stdout().lock();
    let printed = match client.write_out {
        WriteOut::Json => output::print_json(&mut out, &summary),
        WriteOut::Simple | WriteOut::Table => {
            let Findings { equal, missing, different, extra, .. } = &summary.findings;
            writeln!(
                out,
                "read {equal} equal pairs at revision {revision} in {:.1} s; {missing} missing, {different} different, \
                 {extra} not in the file",
                summary.seconds
            )
            .map_err(CliError::from)
        }
    };
    // Differences count, also if nobody reads the summary.
    if bad == 0 {
        return printed;
    }
    Err(CliError::Finding(format!(
        "the store does not hold what the file says, {bad} differences{}:\n  {}",
        if bad > SHOWN_MAX as u64 { format!(", the first {SHOWN_MAX} in key order") } else { String::new() },
        summary.findings.examples.join("\n  ")
    )))
}

/// Compares the wanted pairs with those of the store. Both must come in the order of their keys.
struct Comparison<'a> {
    wanted: std::iter::Peekable<std::slice::Iter<'a, (Bytes, Bytes)>>,
    findings: Findings,
    seen: u64,
}

impl<'a> Comparison<'a> {
    fn new(wanted: &'a [(Bytes, Bytes)]) -> Self {
        Self { wanted: wanted.iter().peekable(), findings: Findings::default(), seen: 0 }
    }

    fn see(&mut self, key: &[u8], value: &[u8]) {
        self.seen += 1;
        while let Some((missing, _)) = self.wanted.next_if(|(wanted, _)| wanted.as_ref() < key) {
            self.missing(missing);
        }
        match self.wanted.next_if(|(wanted, _)| wanted.as_ref() == key) {
            Some((_, wanted)) if wanted.as_ref() == value => self.findings.equal += 1,
            Some((_, wanted)) => {
                self.findings.different += 1;
                let text = format!("{}: expected {wanted:?}, found {:?}", name(key), Bytes::copy_from_slice(value));
                self.example(text);
            }
            None => {
                self.findings.extra += 1;
                self.example(format!("{}: not in the file", name(key)));
            }
        }
    }

    fn finish(mut self) -> Findings {
        while let Some((missing, _)) = self.wanted.next() {
            self.missing(missing);
        }
        self.findings
    }

    fn missing(&mut self, key: &[u8]) {
        self.findings.missing += 1;
        self.example(format!("{}: missing", name(key)));
    }

    fn example(&mut self, text: String) {
        if self.findings.examples.len() < SHOWN_MAX {
            self.findings.examples.push(text);
        }
    }
}

fn name(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_difference_is_found() {
        let wanted: Vec<(Bytes, Bytes)> =
            ["a", "b", "c", "e"].iter().map(|key| (Bytes::from(*key), Bytes::from("1"))).collect();
        let mut comparison = Comparison::new(&wanted);
        for (key, value) in [("b", "1"), ("c", "2"), ("d", "1")] {
            comparison.see(key.as_bytes(), value.as_bytes());
        }
        let findings = comparison.finish();
        assert_eq!(
            findings,
            Findings {
                equal: 1,
                missing: 2,
                different: 1,
                extra: 1,
                examples: vec![
                    "a: missing".into(),
                    "c: expected b\"1\", found b\"2\"".into(),
                    "d: not in the file".into(),
                    "e: missing".into(),
                ],
            }
        );
    }
}
