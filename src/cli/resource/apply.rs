//! `headwater resource apply`: brings resources into the state that files describe.

use std::io::Write;

use serde::Serialize;
use serde_json::{Value, json};
use tonic::Code;

use super::catalogue::Catalogue;
use super::diff;
use super::manifest::{self, Planned};
use super::show::{Data, Output, Shown, print_yaml};
use crate::connect::Cluster;
use crate::error::CliError;
use crate::output::print_json;
use crate::{ClientArgs, Freshness};
use headwater_client::Repeat;
use headwater_client::controller::wire;
use headwater_proto::pb::pbresource;
use headwater_types::resource::{Any, DELETION_TIMESTAMP, FINALIZERS, ResourceId};

/// Most problems of manifests that are shown, count.
const PROBLEMS_SHOWN_MAX: usize = 20;

/// Create and change resources as files say
///
/// Everything is checked before anything is written: if one document is bad, its line is named and
/// nothing is applied. A resource that is already as described is not written.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ApplyArgs {
    /// A file or folder of YAML or JSON, or - for standard input; may be given several times
    #[arg(short, long = "file", required = true, value_name = "FILE|FOLDER|-")]
    file: Vec<String>,
    /// Show what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Print the resources as they are afterwards, instead of the changes
    #[arg(long, short, value_enum)]
    output: Option<Output>,
}

/// Effect on a resource; with `--dry-run`, the effect that applying it would have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Done {
    Created,
    Changed,
    Unchanged,
}

impl Done {
    fn said(self, dry_run: bool) -> &'static str {
        match (self, dry_run) {
            (Self::Created, false) => "created",
            (Self::Changed, false) => "changed",
            (Self::Unchanged, _) => "unchanged",
            (Self::Created, true) => "would be created",
            (Self::Changed, true) => "would be changed",
        }
    }
}

pub(super) async fn run(args: ApplyArgs, cluster: &Cluster, client: &ClientArgs) -> Result<(), CliError> {
    let sources = manifest::read(&args.file)?;
    let mut catalogue = Catalogue::read(cluster, Freshness::Linearizable).await?;
    let planned = manifest::plan(&sources, &mut catalogue).map_err(|problems| {
        let mut text: Vec<_> = problems.iter().take(PROBLEMS_SHOWN_MAX).map(ToString::to_string).collect();
        if problems.len() > PROBLEMS_SHOWN_MAX {
            text.push(format!("and {} more", problems.len() - PROBLEMS_SHOWN_MAX));
        }
        text.push("nothing was applied".to_owned());
        CliError::Finding(text.join("\n"))
    })?;
    if planned.is_empty() {
        return Err(CliError::Usage("the files hold no resource".to_owned()));
    }
    let output = match (args.output, client.write_out) {
        (None, crate::output::WriteOut::Simple) => None,
        (asked, general) => Some(Output::choose(asked, general, Output::Yaml)),
    };
    let mut out = std::io::stdout();
    let mut printer = output.map(|output| super::show::Printer::new(std::io::stdout(), output, &catalogue));
    for (at, wanted) in planned.iter().enumerate() {
        let applied = apply(wanted, cluster, &catalogue, args.dry_run).await;
        let (done, lines, resource) = applied.map_err(|error| explain(error, wanted, at, planned.len()))?;
        match &mut printer {
            Some(printer) => printer.print(&resource)?,
            None => {
                writeln!(out, "{} {}", wire::name(&wanted.resource.id), done.said(args.dry_run))?;
                for line in lines {
                    writeln!(out, "  {line}")?;
                }
                out.flush()?;
            }
        }
    }
    printer.map_or(Ok(()), super::show::Printer::finish)
}

/// Adds to a refusal the file and line of the resource, the number `done` of resources applied
/// before, and advice where there is some. An indeterminate error gets no advice; any other error
/// stays as it is.
fn explain(error: CliError, wanted: &Planned, done: usize, all: usize) -> CliError {
    let head = format!("{}: {}", wanted.at(), wire::name(&wanted.resource.id));
    let progress = match done {
        0 => "nothing was applied".to_owned(),
        done => format!("{done} of {all} were applied before it; apply again when it is mended, they stay as they are"),
    };
    match error {
        CliError::Refused { status, .. } => {
            let advice = match status.code() {
                // The error of a missing resource has its own advice ("leave out").
                Code::Aborted if !wanted.version.is_empty() && !status.message().contains("leave out") => {
                    "\nIt has changed since: read it again, and take over its version"
                }
                Code::FailedPrecondition => "\nIt was deleted and created anew since: leave out the uid",
                _ => "",
            };
            CliError::Finding(format!("{head}: {}{advice}\n{progress}", status.message()))
        }
        CliError::Indeterminate { endpoint, reason } => {
            CliError::Indeterminate { endpoint, reason: format!("{head}: {reason}\n{progress}") }
        }
        other => other,
    }
}

async fn apply(
    wanted: &Planned,
    cluster: &Cluster,
    catalogue: &Catalogue,
    dry_run: bool,
) -> Result<(Done, Vec<String>, pbresource::Resource), CliError> {
    let stored = super::read::find(&wanted.resource.id, cluster, true).await?;
    let mut resource = wire::resource_to_pb(&wanted.resource, &wanted.version);
    let (done, lines) = match &stored {
        None => (Done::Created, Vec::new()),
        Some(stored) => {
            keep_marks(stored, &mut resource);
            let lines = diff::diff(&comparable(stored, catalogue), &comparable(&resource, catalogue));
            (if lines.is_empty() { Done::Unchanged } else { Done::Changed }, lines)
        }
    };
    match (done, stored) {
        (Done::Unchanged, Some(stored)) if wanted.version.is_empty() || wanted.version == stored.version => {
            Ok((done, lines, stored))
        }
        _ if dry_run => Ok((done, lines, resource)),
        _ => {
            let request = pbresource::WriteRequest { resource: Some(resource) };
            let call = async |a: headwater_client::Attempt| a.resources().write(a.request(request.clone())).await;
            let written = cluster.call(Repeat::Harmful, call).await?.resource.unwrap_or_default();
            Ok((done, lines, written))
        }
    }
}

/// Copies the stored marks of deletion and of finalizers to a resource without a version, unless it
/// has them. So does the server (spec: consul §5.6). With a version, the marks are as written.
fn keep_marks(stored: &pbresource::Resource, resource: &mut pbresource::Resource) {
    if !resource.version.is_empty() {
        return;
    }
    for key in [DELETION_TIMESTAMP, FINALIZERS] {
        if let Some(value) = stored.metadata.get(key) {
            resource.metadata.entry(key.to_owned()).or_insert_with(|| value.clone());
        }
    }
}

/// Metadata, owner and data of a resource, for comparing. The owner is without its uid: the server
/// fills it in.
fn comparable(resource: &pbresource::Resource, catalogue: &Catalogue) -> Value {
    let id = wire::id_from_pb(resource.id.as_ref());
    let data = wire::data_from_pb(resource).map(|any: Any| {
        let raw = format!("{:?}", any.value);
        serde_json::to_value(Data::of(&id, any, catalogue)).unwrap_or_else(|_| raw.into())
    });
    let mut value = json!({ "metadata": resource.metadata });
    if let Some(owner) = &resource.owner {
        let owner = ResourceId { uid: String::new(), ..wire::id_from_pb(Some(owner)) };
        value["owner"] = wire::name(&owner).into();
    }
    if let Some(data) = data {
        value["data"] = data;
    }
    value
}

/// Prints one resource in the format `output`.
pub(super) fn print_one(
    resource: &pbresource::Resource,
    output: Output,
    catalogue: &Catalogue,
) -> Result<(), CliError> {
    let mut out = std::io::stdout();
    match output {
        Output::Yaml => print_yaml(&mut out, &Shown::new(resource, catalogue)),
        Output::Json => print_json(&mut out, &Shown::new(resource, catalogue)),
        Output::Table => {
            let mut printer = super::show::Printer::new(out, output, catalogue);
            printer.print(resource)?;
            printer.finish()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(version: &str, metadata: &[(&str, &str)]) -> pbresource::Resource {
        let metadata = metadata.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        pbresource::Resource { version: version.to_owned(), metadata, ..pbresource::Resource::default() }
    }

    #[test]
    fn only_a_manifest_without_a_version_keeps_the_stored_marks() {
        let (deleted, finalizers) = ((DELETION_TIMESTAMP, "2026-01-02T03:04:05Z"), (FINALIZERS, "a b"));
        let stored = resource("7", &[deleted, finalizers, ("other", "x")]);
        for (version, written, wanted) in [
            ("", &[][..], &[deleted, finalizers][..]),
            ("", &[(FINALIZERS, "")], &[deleted, (FINALIZERS, "")]),
            ("7", &[], &[]),
            ("7", &[deleted, (FINALIZERS, "a")], &[deleted, (FINALIZERS, "a")]),
        ] {
            let mut manifest = resource(version, written);
            keep_marks(&stored, &mut manifest);
            assert_eq!(manifest, resource(version, wanted));
        }
    }
}
