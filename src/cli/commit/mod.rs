//! `headwater commit`: changes entities of any face at one index, all or nothing.

mod answer;
mod condition;
mod document;

use std::io::Write;
use std::pin::pin;
use std::time::Duration;

pub(super) use answer::as_json;
use answer::as_text;
pub(super) use condition::Failed;

use crate::ClientArgs;
use crate::Freshness;
use crate::connect::Cluster;
use crate::error::CliError;
use crate::notice;
use crate::output::{WriteOut, print_json};
use crate::resource::Catalogue;
use crate::resource::manifest::{self, Location, Problem, documents};
use headwater_client::{CallError, CommitError, CommitTimeouts};
use headwater_proto::pb::headwater_v1 as pb;

/// Time after which an unanswered commit is not sent again, unless `--timeout` is longer.
const TOTAL_MAX: Duration = Duration::from_secs(30);
/// Time without an answer after which the person is told that the commit is repeated.
const SILENCE_MAX: Duration = Duration::from_secs(3);

/// Change keys, resources, services, sessions and leases at one index, all or nothing
///
/// The file has conditions and operations, as YAML or JSON; docs/commits.md has the grammar. The
/// commit is repeated until its outcome is known, for up to 30 s, and takes effect at most once.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct CommitArgs {
    /// A file of YAML or JSON, or - for standard input
    #[arg(short, long = "file", value_name = "FILE|-")]
    file: String,
    /// A key that makes repeating the commit harmless for ten minutes [default: a random one]
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

pub(super) async fn run(args: CommitArgs, cluster: &Cluster, client: &ClientArgs) -> Result<(), CliError> {
    let source = manifest::read_one(&args.file)?;
    let located = |problem: Problem| source.located(problem);
    let mut found = documents(&source.text).map_err(|problem| CliError::Finding(located(problem)))?;
    if found.len() != 1 {
        let text = format!("{} has {} documents: a commit is one", source.name, found.len());
        return Err(CliError::Usage(text));
    }
    let document = found.remove(0);
    let parts = ["conditions", "operations"].map(|list| document::places(&document, list));
    let mut catalogue = match document::has_resources(&document) {
        true => Catalogue::read(cluster, Freshness::Linearizable).await?,
        false => Catalogue::builtin(),
    };
    let request = document::read(document, source.folder.as_deref(), &mut catalogue);
    let mut request = request.map_err(|problems| {
        let mut lines: Vec<String> = problems.into_iter().map(located).collect();
        lines.push("nothing was changed".to_owned());
        CliError::Finding(lines.join("\n"))
    })?;
    if let Some(key) = args.idempotency_key {
        request.idempotency_key = key.into();
    }
    let wanted = request.conditions.clone();
    let done = send(request, cluster, client).await;
    let done = done.map_err(|error| explain(error, &source.name, &parts, &wanted))?;
    print(&mut std::io::stdout().lock(), &done, client)
}

/// Prints the answer of a commit.
pub(super) fn print(out: &mut impl Write, done: &pb::CommitResponse, client: &ClientArgs) -> Result<(), CliError> {
    match client.write_out {
        WriteOut::Json => print_json(out, &as_json(done)),
        WriteOut::Simple | WriteOut::Table => Ok(out.write_all(as_text(done).as_bytes())?),
    }
}

/// Sends a commit. Repeats it until its outcome is known, for up to 30 s, or for `--timeout` if
/// that is longer.
pub(super) async fn send(
    request: pb::CommitRequest,
    cluster: &Cluster,
    client: &ClientArgs,
) -> Result<pb::CommitResponse, CommitError> {
    let timeouts = CommitTimeouts { attempt: client.timeout, total: TOTAL_MAX.max(client.timeout) };
    let mut sent = pin!(cluster.endpoints().commit(request, timeouts));
    if let Ok(outcome) = tokio::time::timeout(SILENCE_MAX, &mut sent).await {
        return outcome;
    }
    notice!("no outcome yet; trying for up to {} s", timeouts.total.as_secs());
    sent.await
}

/// The error of a commit that was read from `file` and has the conditions `wanted`. A refusal that
/// names a condition or operation gets its line and column.
fn explain(
    error: CommitError,
    file: &str,
    [conditions, operations]: &[Vec<Location>; 2],
    wanted: &[pb::Condition],
) -> CliError {
    match error {
        CommitError::Refused { endpoint, status } => {
            let number = |name: &str| status.metadata().get(name)?.to_str().ok()?.parse::<usize>().ok();
            let place = number("headwater-condition")
                .and_then(|number| conditions.get(number))
                .or_else(|| number("headwater-operation").and_then(|number| operations.get(number)));
            let text = match Failed::of(&status, wanted) {
                Some(failed) => format!("conditions[{}]: {}", failed.number, failed.text()),
                None => status.message().to_owned(),
            };
            match place {
                Some(Location { line, column }) => {
                    CliError::Finding(format!("{file}:{line}:{column}: {text}\nnothing was changed"))
                }
                None => refused(CommitError::Refused { endpoint, status }),
            }
        }
        other @ (CommitError::Unreachable(_) | CommitError::Indeterminate { .. }) => refused(other),
    }
}

/// The error of a commit, without a position in a file.
pub(super) fn refused(error: CommitError) -> CliError {
    match error {
        CommitError::Refused { endpoint, status } => CallError::Refused { endpoint, status }.into(),
        CommitError::Unreachable(attempts) => CallError::Unreachable(attempts).into(),
        CommitError::Indeterminate { idempotency_key, status } => CliError::Finding(format!(
            "it is not known whether the commit took effect ({}); send it again with --idempotency-key {}",
            status.message(),
            shown_key(&idempotency_key)
        )),
    }
}

/// An idempotency key as `--idempotency-key` takes it; `of your own` if it is not UTF-8.
fn shown_key(key: &[u8]) -> String {
    std::str::from_utf8(key).map_or_else(|_| "of your own".to_owned(), ToOwned::to_owned)
}
