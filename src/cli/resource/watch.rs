//! `headwater resource watch`: prints the resources of a type and then their changes, going on elsewhere when a node stops.
//!
//! Invariant: `resume` is the index of the last thing that was printed, so that nothing is missed or printed twice. When the
//! server says that this cannot be kept up, the list is printed anew.

use std::io::Write;
use std::time::Duration;

use serde::Serialize;
use tonic::Code;

use super::catalogue::Catalogue;
use super::show::{Output, Shown, print_yaml, row};
use super::{UnitArgs, read};
use crate::cli::ClientArgs;
use crate::cli::connect::{Attempt, Cluster};
use crate::cli::error::{CliError, Tried};
use crate::cli::output::print_json;
use crate::controller::wire;
use crate::pb::pbresource;
use crate::pb::pbresource::watch_event::Event;

/// Pause after every endpoint was tried in vain.
const RETRY_PAUSE: Duration = Duration::from_millis(250);

/// Print the resources of a type, then every change as it happens
///
/// Goes on by itself after the last change seen, at the next endpoint, when a node stops or the connection breaks.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct WatchArgs {
    /// The type: group.version.Kind, or as much of its end as says which
    #[arg(value_name = "TYPE")]
    type_: String,
    /// Only names that begin with this
    #[arg(long, default_value = "", value_name = "PREFIX")]
    prefix: String,
    #[command(flatten)]
    units: UnitArgs,
    /// Go on after this log index, which an earlier watch has printed, without a list first
    #[arg(long, value_name = "INDEX")]
    resume: Option<u64>,
    /// How changes are printed
    #[arg(long, short, value_enum)]
    output: Option<Output>,
}

#[derive(Serialize)]
struct Line<'a> {
    event: &'a str,
    #[serde(skip_serializing_if = "is_zero")]
    index: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource: Option<Shown>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

struct Watch<'a> {
    request: pbresource::WatchListRequest,
    /// Behind which index to go on; none before the first list is complete.
    resume: Option<u64>,
    was_connected: bool,
    output: Output,
    catalogue: &'a Catalogue,
}

pub(super) async fn run(args: WatchArgs, cluster: &Cluster, client: &ClientArgs) -> Result<(), CliError> {
    let catalogue = Catalogue::read(cluster).await?;
    let known = read::known(&catalogue, &args.type_)?;
    let units = if args.units.is_given() { args.units } else { UnitArgs::every(known.scope()) };
    let mut watch = Watch {
        request: pbresource::WatchListRequest {
            r#type: Some(wire::type_to_pb(known.type_())),
            tenancy: Some(wire::tenancy_to_pb(&units.tenancy(known.scope()))),
            name_prefix: args.prefix,
        },
        resume: args.resume,
        was_connected: false,
        output: Output::choose(args.output, client.write_out, Output::Table),
        catalogue: &catalogue,
    };
    loop {
        let mut tried = Vec::new();
        for (number, name) in cluster.names().enumerate() {
            let reason = match cluster.attempt(number).await {
                Err(reason) => reason,
                Ok(attempt) => watch.follow(&attempt).await?,
            };
            tried.push(Tried { endpoint: name.to_owned(), reason });
        }
        if !watch.was_connected {
            return Err(CliError::Unreachable(tried));
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

impl Watch<'_> {
    /// Watches at one endpoint; why it ended, if another one may do better.
    async fn follow(&mut self, attempt: &Attempt) -> Result<String, CliError> {
        let mut request = tonic::Request::new(self.request.clone());
        if let Some(index) = self.resume {
            request.metadata_mut().insert("headwater-resume-index", index.into());
        }
        let mut events = match attempt.resources().watch_list(request).await {
            Ok(events) => events.into_inner(),
            Err(status) => return self.judge(&status),
        };
        let mut out = std::io::stdout();
        loop {
            match events.message().await {
                Ok(Some(event)) => {
                    self.was_connected = true;
                    self.print(&mut out, &event)?;
                }
                Ok(None) => return Ok("the stream ended".to_owned()),
                Err(status) => return self.judge(&status),
            }
        }
    }

    fn judge(&mut self, status: &tonic::Status) -> Result<String, CliError> {
        let text = status.message().to_owned();
        match status.code() {
            Code::InvalidArgument | Code::Unimplemented | Code::PermissionDenied | Code::Unauthenticated => {
                Err(CliError::Finding(text))
            }
            // What was printed last is of another lineage, or too long ago: everything is printed again.
            Code::Aborted => {
                self.resume = None;
                Ok(text)
            }
            Code::OutOfRange => Err(CliError::Finding(format!(
                "{text}\nWhat happened after index {} is no longer kept: watch without --resume, which begins with a list",
                self.resume.unwrap_or_default()
            ))),
            _ => Ok(text),
        }
    }

    fn print(&mut self, out: &mut impl Write, event: &pbresource::WatchEvent) -> Result<(), CliError> {
        let index = event.headwater_index;
        if index > 0 {
            self.resume = Some(index);
        }
        let (name, resource) = match &event.event {
            Some(Event::Upsert(it)) => ("upsert", it.resource.as_ref()),
            Some(Event::Delete(it)) => ("delete", it.resource.as_ref()),
            Some(Event::EndOfSnapshot(_)) => ("end of list", None),
            None => return Ok(()),
        };
        match self.output {
            Output::Table => {
                let columns = resource.map(row).unwrap_or_default();
                let shown: Vec<_> = columns.iter().map(String::as_str).filter(|column| !column.is_empty()).collect();
                writeln!(out, "{name:<11} {}", shown.join("  "))?;
            }
            output => {
                let resource = resource.map(|resource| Shown::new(resource, self.catalogue));
                let line = Line { event: name, index, resource };
                if output == Output::Json {
                    print_json(out, &line)?;
                } else {
                    writeln!(out, "---")?;
                    print_yaml(out, &line)?;
                }
            }
        }
        Ok(out.flush()?)
    }
}
