//! `headwater log inspect`: the content of a data directory, and its damage.

use std::collections::VecDeque;
use std::io::Write;
use std::path::PathBuf;

use serde::Serialize;

use super::describe::describe;
use crate::error::CliError;
use crate::output::{self, WriteOut};
use headwater_proto::codec::raft::{LogId, NodeInfo, RecordKind, Vote};
use headwater_server::inspect::log::LogRecord;
use headwater_server::inspect::{self, Inspection};
use headwater_types::{LogIndex, NodeId, Supported};

/// The number of last entries that are printed without `--from`, `--to` and `--limit`.
const LAST_ENTRIES: usize = 20;

/// Print the content of a data directory, and name all damage; changes nothing
///
/// Works also on a directory with which a node cannot start any more. All of the log and of the
/// state is checked, whichever entries are printed. Ends with status 1 if anything is damaged.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct InspectArgs {
    /// The data directory of a node that does not run
    dir: PathBuf,
    /// First log index to print; without --from and --to, the last entries are printed
    #[arg(long, value_name = "INDEX")]
    from: Option<u64>,
    /// Last log index to print
    #[arg(long, value_name = "INDEX")]
    to: Option<u64>,
    /// Most entries to print; 0 prints none [default: all with --from or --to, else 20]
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

impl InspectArgs {
    fn wants(&self, index: LogIndex) -> bool {
        self.from.is_none_or(|from| index.get() >= from) && self.to.is_none_or(|to| index.get() <= to)
    }

    fn has_range(&self) -> bool {
        self.from.is_some() || self.to.is_some()
    }
}

/// The entries to print: the first ones of the range of `--from` and `--to`, or without a range the
/// last ones of the log. Their number is bounded by `--limit`.
struct Chosen<'a> {
    args: &'a InspectArgs,
    entries: VecDeque<Entry>,
    /// Number of entries of the range, or without a range of the log, that are not printed.
    left_out: u64,
}

impl Chosen<'_> {
    fn add(&mut self, entry: impl FnOnce() -> Entry) {
        let max = self.args.limit.unwrap_or(if self.args.has_range() { usize::MAX } else { LAST_ENTRIES });
        if self.entries.len() < max {
            self.entries.push_back(entry());
            return;
        }
        self.left_out += 1;
        if max > 0 && !self.args.has_range() {
            self.entries.pop_front();
            self.entries.push_back(entry());
        }
    }
}

#[derive(Debug, Serialize)]
struct Entry {
    index: u64,
    term: u64,
    kind: &'static str,
    bytes: usize,
    text: String,
}

#[derive(Serialize)]
struct Report {
    node: Option<u64>,
    cluster: Option<String>,
    version: Option<String>,
    notes: Vec<&'static str>,
    vote: Option<VoteText>,
    members: Vec<MemberText>,
    members_at: Option<u64>,
    first: Option<u64>,
    last: Option<Position>,
    purged: Option<Position>,
    committed: Option<Position>,
    applied: Option<Position>,
    revision: Option<i64>,
    keys: Option<u64>,
    epoch: Option<String>,
    entries_read: u64,
    records_read: u64,
    entries: VecDeque<Entry>,
    damage: Vec<DamageText>,
    damaged: usize,
}

#[derive(Clone, Copy, Serialize)]
struct Position {
    term: u64,
    index: u64,
}

impl From<LogId> for Position {
    fn from(id: LogId) -> Self {
        Self { term: id.term.get(), index: id.index.get() }
    }
}

#[derive(Serialize)]
struct VoteText {
    term: u64,
    node: u64,
    granted_by_majority: bool,
}

impl From<Vote> for VoteText {
    fn from(vote: Vote) -> Self {
        Self { term: vote.term.get(), node: vote.node_id.get(), granted_by_majority: vote.committed }
    }
}

#[derive(Serialize)]
struct MemberText {
    id: u64,
    name: String,
    peer_url: String,
    client_url: String,
    votes: bool,
}

#[derive(Serialize)]
struct DamageText {
    location: String,
    detail: String,
}

pub(super) fn run(args: &InspectArgs, format: WriteOut, supported: Supported) -> Result<(), CliError> {
    let mut chosen = Chosen { args, entries: VecDeque::new(), left_out: 0 };
    let mut visit = |record: LogRecord| {
        let described = describe(&record, supported);
        if args.wants(record.index) {
            let text = match &described {
                Ok(text) => text.clone(),
                Err(error) => format!("DAMAGED: {error}"),
            };
            chosen.add(|| entry(&record, text));
        }
        described.map(drop)
    };
    let found = inspect::inspect(&args.dir, supported, &mut visit, &mut |_| {})
        .map_err(|error| CliError::Finding(error.to_string()))?;
    let count = found.damage.count();
    let left_out = chosen.left_out;
    let report = report(found, chosen.entries);
    let mut out = std::io::stdout().lock();
    match format {
        WriteOut::Json => output::print_json(&mut out, &report)?,
        WriteOut::Simple | WriteOut::Table => print(&mut out, args, &report, left_out, format == WriteOut::Table)?,
    }
    out.flush()?;
    if count == 0 { Ok(()) } else { Err(CliError::Finding(advice(args, &report))) }
}

fn entry(record: &LogRecord, text: String) -> Entry {
    let kind = match record.kind {
        RecordKind::Blank => "blank",
        RecordKind::Normal => "command",
        RecordKind::Membership => "members",
    };
    Entry { index: record.index.get(), term: record.term.get(), kind, bytes: record.payload.len(), text }
}

fn report(found: Inspection, entries: VecDeque<Entry>) -> Report {
    let head = found.head;
    let members = found.members.as_ref().map(|at| {
        let votes = |id: &NodeId| at.members.configs.iter().any(|voters| voters.contains(id));
        let member = |(id, info): (&NodeId, &NodeInfo)| MemberText {
            id: id.get(),
            name: info.name.clone(),
            peer_url: info.peer_url.clone(),
            client_url: info.client_url.clone(),
            votes: votes(id),
        };
        at.members.nodes.iter().map(member).collect()
    });
    Report {
        node: found.identity.map(|identity| identity.owner.node_id.get()),
        cluster: found.identity.map(|identity| format!("{:016x}", identity.owner.cluster_id.get())),
        version: found.identity.map(|identity| identity.needs.to_string()),
        notes: found.notes,
        vote: found.log.vote.map(VoteText::from),
        members_at: found.members.as_ref().map(|at| at.index.get()),
        members: members.unwrap_or_default(),
        first: found.log.first.map(LogIndex::get),
        last: found.log.last.map(Position::from),
        purged: found.log.purged.map(Position::from),
        committed: found.log.committed.map(Position::from),
        applied: head
            .and_then(|head| head.applied)
            .map(|(term, index)| Position { term: term.get(), index: index.get() }),
        revision: head.map(|head| head.revision.get()),
        keys: head.map(|head| head.live_keys),
        epoch: head.and_then(|head| head.epoch).map(|epoch| format!("{:016x}", epoch.get())),
        entries_read: found.entries,
        records_read: found.records,
        entries,
        damaged: found.damage.count(),
        damage: found
            .damage
            .kept()
            .iter()
            .map(|damage| DamageText { location: damage.location.clone(), detail: damage.detail.clone() })
            .collect(),
    }
}

fn print(
    out: &mut impl Write,
    args: &InspectArgs,
    report: &Report,
    left_out: u64,
    as_table: bool,
) -> Result<(), CliError> {
    let none = || "none".to_owned();
    let position = |at: Option<Position>| at.map_or_else(none, |at| format!("{} of term {}", at.index, at.term));
    let node = match (report.node, &report.cluster, &report.version) {
        (Some(node), Some(cluster), Some(version)) => format!("{node} of cluster {cluster}, version {version}"),
        _ => "unknown".to_owned(),
    };
    let vote = report.vote.as_ref().map_or_else(none, |vote| {
        let granted = if vote.granted_by_majority { ", which leads that term" } else { "" };
        format!("for node {} in term {}{granted}", vote.node, vote.term)
    });
    let state = match (report.revision, report.keys) {
        (Some(revision), Some(keys)) => {
            format!("revision {revision}, {keys} keys, {} records read", report.records_read)
        }
        _ => "unknown".to_owned(),
    };
    for (name, value) in [
        ("node", node),
        ("notes", if report.notes.is_empty() { none() } else { report.notes.join(", ") }),
        ("vote", vote),
        (
            "log",
            format!(
                "{} entries read, the first is {}",
                report.entries_read,
                report.first.map_or_else(none, |first| first.to_string())
            ),
        ),
        ("last", position(report.last)),
        ("purged", position(report.purged)),
        ("committed", format!("{} (known to this member when it was written)", position(report.committed))),
        ("applied", format!("{} (in the state on disk; a start applies the log from there)", position(report.applied))),
        ("state", state),
        ("epoch", report.epoch.clone().unwrap_or_else(none)),
    ] {
        writeln!(out, "{name:<10} {value}")?;
    }
    for member in &report.members {
        let role = if member.votes { "votes" } else { "does not vote" };
        writeln!(out, "{:<10} {} {} {} {role}", "member", member.id, member.name, member.peer_url)?;
    }
    if !report.entries.is_empty() {
        writeln!(out)?;
    }
    if left_out > 0 && !args.has_range() {
        writeln!(out, "{left_out} earlier entries are not shown: --from, --to and --limit choose others")?;
    }
    if as_table {
        let header = ["INDEX", "TERM", "KIND", "BYTES", "CONTENT"];
        let row = |entry: &Entry| {
            let Entry { index, term, kind, bytes, text } = entry;
            vec![index.to_string(), term.to_string(), (*kind).to_owned(), bytes.to_string(), text.clone()]
        };
        output::print_table(out, &header, report.entries.iter().map(row))?;
    } else {
        for Entry { index, term, kind, bytes, text } in &report.entries {
            writeln!(out, "{index:>10} {term:>5} {kind:<8} {bytes:>7} B  {text}")?;
        }
    }
    if left_out > 0 && args.has_range() {
        writeln!(out, "{left_out} more entries of the range are not shown: --limit is reached")?;
    }
    if report.damaged == 0 {
        return Ok(writeln!(out, "\nno damage")?);
    }
    writeln!(out, "\ndamage, {} in all:", report.damaged)?;
    for DamageText { location, detail } in &report.damage {
        writeln!(out, "  {location}: {detail}")?;
    }
    let more = report.damaged - report.damage.len();
    if more > 0 {
        writeln!(out, "  and {more} more")?;
    }
    Ok(())
}

/// The steps that an operator can take after damage was found, as a text.
fn advice(args: &InspectArgs, report: &Report) -> String {
    let dir = args.dir.display();
    let others = report.members.iter().filter(|member| member.votes && Some(member.id) != report.node).count();
    let rejoin = match others {
        0 => String::new(),
        _ => format!(
            "\n  while a majority of the others runs: move {dir} away and start the node as before; it fetches everything from \
             them"
        ),
    };
    format!(
        "{dir} is damaged. Nothing was changed. What can be done:{rejoin}\n  otherwise: `headwater snapshot save --from {dir} \
         FILE` saves the state with all entries before the first damaged one, and `headwater snapshot restore` makes a new \
         cluster of it (docs/disasters.md)"
    )
}
