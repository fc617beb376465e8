//! Reads the Raft log of an ended node from its disk, and translates its commands to requests of
//! `history`.
//!
//! The only module that reads the server's database: all others judge from outside. It judges
//! nothing.

use std::path::Path;

use anyhow::{Context, bail};
use bytes::Bytes;
use headwater_proto::codec::{NEWEST, decode_proposal};
use headwater_storage::data_dir::DataDir;
use headwater_storage::log::{LogDb, LogOptions, RecordKind};
use headwater_types::auth::{AuthCommand, Proposer};
use headwater_types::command::{Command, Compare, CompareOp, CompareTarget, LeaseChoice, Put, TxnOp, ValueChoice};
use headwater_types::commit::{Commit, CommitCondition, CommitKeyId};
use headwater_types::consul::{ConsulCommand, KvVerb};
use headwater_types::{KeyRange, LogIndex, Supported, Version};

use crate::client::prefix_end;
use crate::commit::CONSUL;
use crate::history::{Condition, Request, Step};

/// One entry of a member's Raft log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogEntry {
    pub index: u64,
    pub term: u64,
    /// Payload of the entry as it is in the log: the encoded proposal, or the encoded membership.
    /// Empty for a blank entry.
    pub payload: Bytes,
    /// The principal that proposed the entry: its rights are checked when the entry is applied.
    /// `None` for an anonymous principal, and for an entry of Raft's own.
    pub proposer: Option<Proposer>,
    pub ask: LoggedCommand,
}

/// Command of a log entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LoggedCommand {
    /// A request of a client: a put, a deletion, a transaction.
    Client(Request),
    Grant {
        lease: i64,
    },
    Revoke {
        lease: i64,
    },
    /// Ends an expired lease. Takes effect only if the entry has this term, and the lease
    /// was granted at the log index `granted`.
    Expire {
        lease: i64,
        granted: u64,
        term: u64,
    },
    /// A commit: its keys as a request, and its idempotency key. Of several commits with the same
    /// idempotency key, only the first that is not refused takes effect.
    Commit {
        keys: Request,
        once: Option<CommitKeyId>,
    },
    /// A change of users or roles, or one that enables or disables authentication.
    Auth(AuthCommand),
    /// A command without effect on keys, revisions, leases, users and roles; or a blank entry, or a
    /// membership.
    Other,
}

/// Every log entry in the data directory `data`, in order. The node must have ended and must not
/// start again: the directory is opened with the server's code, which writes to it.
///
/// # Errors
///
/// If the log does not open, or has a command that this harness never requests.
pub(crate) fn read(data: &Path) -> anyhow::Result<Vec<LogEntry>> {
    let owner = DataDir::owner(data, ANY)?.with_context(|| format!("{} has no owner", data.display()))?;
    let dir = DataDir::open(data, owner, ANY)?;
    let options = LogOptions { store_id: dir.store_id(), create: false, ..LogOptions::default() };
    let log = LogDb::open(&dir.log_dir(), options)?;
    let mut entries = Vec::new();
    for record in log.read(LogIndex(0)..LogIndex(u64::MAX))? {
        let (proposer, ask) = match record.kind {
            RecordKind::Normal if record.payload.is_empty() => (None, LoggedCommand::Other),
            RecordKind::Normal => ask(record.payload.clone()).with_context(|| format!("entry {}", record.index))?,
            RecordKind::Blank | RecordKind::Membership => (None, LoggedCommand::Other),
        };
        let (index, term) = (record.index.get(), record.term.get());
        entries.push(LogEntry { index, term, payload: record.payload, proposer, ask });
    }
    Ok(entries)
}

/// All versions: a data directory of any of them is accepted.
const ANY: Supported = Supported { lowest: Version::V0_1, highest: Version::from_byte(u8::MAX) };

fn ask(payload: Bytes) -> anyhow::Result<(Option<Proposer>, LoggedCommand)> {
    let Some(proposal) = decode_proposal(payload, NEWEST)? else { return Ok((None, LoggedCommand::Other)) };
    let asked = match proposal.command {
        Command::Put(asked) => {
            let before = asked.prev_kv;
            let (key, value, lease) = put(asked)?;
            LoggedCommand::Client(match before {
                true => Request::Replace { key, value, lease },
                false => Request::Put { key, value, lease },
            })
        }
        Command::DeleteRange(asked) => LoggedCommand::Client(match deleted_keys(&asked.range)? {
            DeletedKeys::One(key) => Request::Delete { key },
            DeletedKeys::Prefix(prefix) => Request::DeleteRange { prefix },
        }),
        Command::Txn(asked) => LoggedCommand::Client(Request::Txn {
            when: asked.compares.iter().map(condition).collect::<anyhow::Result<_>>()?,
            then: asked.success.into_iter().map(step).collect::<anyhow::Result<_>>()?,
            or_else: asked.failure.into_iter().map(step).collect::<anyhow::Result<_>>()?,
        }),
        Command::LeaseGrant(asked) => LoggedCommand::Grant { lease: asked.id.get() },
        Command::LeaseRevoke(asked) => LoggedCommand::Revoke { lease: asked.id.get() },
        Command::LeaseExpire(asked) => {
            LoggedCommand::Expire { lease: asked.id.get(), granted: asked.granted.get(), term: asked.term.get() }
        }
        Command::LeaseAttach(_) | Command::LeaseTxn(_) => bail!("a command of the early API, which nobody used"),
        Command::Commit(asked) => commit(*asked)?,
        Command::Auth(asked) => LoggedCommand::Auth(asked),
        // The store's own, of other workloads, or of the version that tests of upgrades play.
        _ => LoggedCommand::Other,
    };
    Ok((proposal.proposer, asked))
}

/// Translates a commit to a transaction of its conditions and its puts of keys, Consul's included.
/// Operations of other faces are left out: this harness sends none that is refused.
fn commit(asked: Commit) -> anyhow::Result<LoggedCommand> {
    let (mut when, mut then) = (Vec::new(), Vec::new());
    for asked in asked.conditions {
        match asked {
            CommitCondition::Compare(compare) => when.push(condition(&compare)?),
            CommitCondition::Entity(..) => bail!("a condition that nobody asked for: {asked:?}"),
        }
    }
    for operation in asked.operations {
        match operation.command() {
            Command::Put(asked) => then.push(step(TxnOp::Put(asked.clone()))?),
            Command::DeleteRange(_) | Command::LeaseGrant(_) | Command::LeaseRevoke(_) => {
                bail!("an operation that nobody asked for: {operation:?}")
            }
            Command::Consul(ConsulCommand::Kv(op)) if op.verb == KvVerb::Set => {
                let key = format!("{CONSUL}{}", text(&op.path));
                then.push(Step::Put { key, value: text(&op.value), lease: 0 });
            }
            // Of another face.
            _ => {}
        }
    }
    let keys = Request::Txn { when, then, or_else: Vec::new() };
    Ok(LoggedCommand::Commit { keys, once: asked.key.map(|key| key.id) })
}

fn step(op: TxnOp) -> anyhow::Result<Step> {
    Ok(match op {
        TxnOp::Range(asked) => Step::Get { key: one(&asked.range)? },
        TxnOp::Put(asked) => {
            let (key, value, lease) = put(asked)?;
            Step::Put { key, value, lease }
        }
        TxnOp::DeleteRange(asked) => match deleted_keys(&asked.range)? {
            DeletedKeys::One(key) => Step::Delete { key },
            DeletedKeys::Prefix(prefix) => Step::DeleteRange { prefix },
        },
        TxnOp::Txn(_) => bail!("a transaction in a transaction, which nobody asked for"),
    })
}

fn condition(compare: &Compare) -> anyhow::Result<Condition> {
    let key = one(&compare.range)?;
    Ok(match (compare.op, &compare.target) {
        (CompareOp::Equal, CompareTarget::ModRevision(is)) => Condition::Modified { key, is: *is },
        (CompareOp::Equal, CompareTarget::CreateRevision(is)) => Condition::Created { key, is: *is },
        (CompareOp::Equal, CompareTarget::Value(is)) => Condition::Value { key, is: text(is) },
        (CompareOp::Equal, CompareTarget::Version(is)) => Condition::Version { key, is: *is },
        (CompareOp::Equal, CompareTarget::Lease(is)) => Condition::Lease { key, is: *is },
        other => bail!("a comparison that nobody asked for: {other:?}"),
    })
}

fn put(asked: Put) -> anyhow::Result<(String, String, i64)> {
    match (asked.value, asked.lease) {
        (ValueChoice::Set(value), LeaseChoice::Set(lease)) => Ok((text(&asked.key), text(&value), lease.get())),
        other => bail!("a put that nobody asked for: {other:?}"),
    }
}

/// The keys that a deletion names: one key, or all keys with a prefix.
enum DeletedKeys {
    One(String),
    Prefix(String),
}

fn deleted_keys(range: &KeyRange) -> anyhow::Result<DeletedKeys> {
    match range {
        KeyRange::One(key) => Ok(DeletedKeys::One(text(key))),
        KeyRange::Span { start, end: Some(end) } if prefix_end(&text(start)) == end[..] => {
            Ok(DeletedKeys::Prefix(text(start)))
        }
        KeyRange::Span { .. } => bail!("a range that nobody asked for: {range:?}"),
    }
}

fn one(range: &KeyRange) -> anyhow::Result<String> {
    match deleted_keys(range)? {
        DeletedKeys::One(key) => Ok(key),
        DeletedKeys::Prefix(_) => bail!("a range that nobody asked for: {range:?}"),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
