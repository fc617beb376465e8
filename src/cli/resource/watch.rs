//! `headwater resource watch`: prints the resources of a type and then their changes. Resumes at
//! the next endpoint when a node stops.
//!
//! Invariant: a watch resumes with the commit of the last printed event and skips the events of
//! that commit that were printed, so that none is missed or printed twice. If the server cannot
//! resume there, the list is printed again.

use std::io::Write;

use serde::Serialize;
use tonic::Code;

use super::catalogue::Catalogue;
use super::show::{Output, Shown, print_yaml, row};
use super::{UnitArgs, read};
use crate::ClientArgs;
use crate::connect::Cluster;
use crate::error::CliError;
use crate::open_call::{Contact, ended, keep_open};
use crate::output::print_json;
use headwater_client::Attempt;
use headwater_client::controller::wire;
use headwater_proto::pb::pbresource;
use headwater_proto::pb::pbresource::watch_event::Event;

/// Print the resources of a type, then every change as it happens
///
/// Resumes by itself after the last change seen, at the next endpoint, when a node stops or the
/// connection breaks.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct WatchArgs {
    /// The type: group.version.Kind; or version.Kind, group.Kind or Kind, if it fits one type only
    #[arg(value_name = "TYPE")]
    type_: String,
    /// Only names that begin with this
    #[arg(long, default_value = "", value_name = "PREFIX")]
    prefix: String,
    #[command(flatten)]
    units: UnitArgs,
    /// Resume after this log index, without a list first. With the last index that an earlier watch
    /// printed, changes of that index which it did not print are left out; with one less, all
    /// changes of that index are printed again
    #[arg(long, value_name = "INDEX")]
    resume: Option<u64>,
    /// Format of the output
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
    progress: Progress,
    output: Output,
    catalogue: &'a Catalogue,
}

/// Progress of a watch: the position to resume from, and the events printed since.
#[derive(Default)]
struct Progress {
    /// Position to resume from. At first it is the one of `--resume`; without that option it has no
    /// index until the first list is complete.
    position: wire::Position,
    /// Whether `position` is still the one of the arguments.
    is_given: bool,
    /// Index of the commit of the last printed event, and the number of its events that were
    /// printed.
    printed: (u64, usize),
    /// Number of those events that the resumed stream has still to repeat; they are not printed.
    again: usize,
    /// Whether the stream began with a list, and not after a position. Only then is the end of the
    /// list printed.
    lists: bool,
}

impl Progress {
    fn after(index: Option<u64>) -> Self {
        Self { position: wire::Position::after(index), is_given: index.is_some(), ..Self::default() }
    }

    /// Records that a stream was opened, and `answer`, which names the server's lineage.
    fn opened<T>(&mut self, answer: &tonic::Response<T>) {
        self.position.opened(answer);
        self.lists = self.position.index().is_none();
        self.again = self.printed.1;
    }

    /// Records an event, and returns whether it must be printed. It must not if it was printed
    /// before the stream broke, or is the end of a list in a stream that began after a position.
    fn take(&mut self, event: &pbresource::WatchEvent) -> bool {
        self.is_given = false;
        self.position.saw(event);
        let index = event.headwater_index;
        if matches!(event.event, Some(Event::EndOfSnapshot(_))) {
            return self.lists;
        }
        if index == 0 {
            return true;
        }
        if self.printed.0 != index {
            (self.printed, self.again) = ((index, 0), 0);
        }
        if self.again > 0 {
            self.again -= 1;
            return false;
        }
        self.printed.1 += 1;
        true
    }
}

pub(super) async fn run(args: WatchArgs, cluster: &Cluster, client: &ClientArgs) -> Result<(), CliError> {
    let catalogue = Catalogue::read(cluster, client.consistency).await?;
    let known = read::known(&catalogue, &args.type_)?;
    let units = if args.units.is_given() { args.units } else { UnitArgs::every(known.scope()) };
    let mut watch = Watch {
        request: pbresource::WatchListRequest {
            r#type: Some(wire::type_to_pb(known.type_())),
            tenancy: Some(wire::tenancy_to_pb(&units.tenancy(known.scope()))),
            name_prefix: args.prefix,
        },
        progress: Progress::after(args.resume),
        output: Output::choose(args.output, client.write_out, Output::Table),
        catalogue: &catalogue,
    };
    keep_open(cluster, async |attempt, contact| watch.follow(attempt, contact).await).await
}

impl Watch<'_> {
    /// Watches at one endpoint until the stream ends. Returns the reason to try the next one; an
    /// error if no endpoint can continue the watch.
    async fn follow(&mut self, attempt: &Attempt, contact: &mut Contact) -> Result<String, CliError> {
        let mut request = tonic::Request::new(self.request.clone());
        attempt.authorize(&mut request);
        self.progress.position.resume(&mut request);
        let mut events = match attempt.resources().watch_list(request).await {
            Ok(opened) => {
                self.progress.opened(&opened);
                opened.into_inner()
            }
            Err(status) => return self.judge(&status),
        };
        let mut out = std::io::stdout();
        loop {
            match events.message().await {
                Ok(Some(event)) => {
                    contact.made();
                    if self.progress.take(&event) {
                        self.print(&mut out, &event)?;
                    }
                }
                Ok(None) => return Ok("the stream ended".to_owned()),
                Err(status) => return self.judge(&status),
            }
        }
    }

    fn judge(&mut self, status: &tonic::Status) -> Result<String, CliError> {
        let text = status.message().to_owned();
        match status.code() {
            // The position is of another lineage, or too old. If it is the argument's, that is an
            // error; else everything is printed again.
            Code::OutOfRange if self.progress.is_given => Err(CliError::Finding(format!(
                "{text}\nWhat happened after index {} is no longer kept: watch without --resume, which begins with a list",
                self.progress.position.index().unwrap_or_default()
            ))),
            Code::Aborted | Code::OutOfRange => {
                self.progress = Progress::default();
                Ok(text)
            }
            _ => ended(status),
        }
    }

    fn print(&mut self, out: &mut impl Write, event: &pbresource::WatchEvent) -> Result<(), CliError> {
        let index = event.headwater_index;
        let (name, resource) = match &event.event {
            Some(Event::Upsert(it)) => ("upsert", it.resource.as_ref()),
            Some(Event::Delete(it)) => ("delete", it.resource.as_ref()),
            Some(Event::EndOfSnapshot(_)) => ("end of list", None),
            None => return Ok(()),
        };
        match self.output {
            Output::Table => {
                let columns = resource.map_or_else(|| vec![index.to_string()], row);
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

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_proto::pb::pbresource::watch_event::{Delete, EndOfSnapshot};

    #[test]
    fn a_stream_that_breaks_inside_a_commit_neither_loses_nor_repeats() {
        let change =
            |headwater_index| pbresource::WatchEvent { event: Some(Event::Delete(Delete::default())), headwater_index };
        let end = |headwater_index| pbresource::WatchEvent {
            event: Some(Event::EndOfSnapshot(EndOfSnapshot {})),
            headwater_index,
        };
        let take = |progress: &mut Progress, events: &[pbresource::WatchEvent]| {
            events.iter().filter(|event| progress.take(event)).map(|event| event.headwater_index).collect::<Vec<_>>()
        };
        let opened = tonic::Response::new(());
        let mut progress = Progress::after(Some(3));
        assert!(progress.is_given);
        progress.opened(&opened);
        assert_eq!(take(&mut progress, &[end(3), change(5), change(7), change(7)]), [5, 7, 7]);
        assert!(!progress.is_given, "from here on it is this watch's own");
        // The commit 7 had four changes. The next stream breaks before it comes to the third.
        assert_eq!(progress.position.index(), Some(6));
        progress.opened(&opened);
        assert_eq!(take(&mut progress, &[end(6), change(7)]), [0; 0]);
        assert_eq!(progress.position.index(), Some(6));
        progress.opened(&opened);
        let rest = [end(6), change(7), change(7), change(7), change(7), change(8), change(9)];
        assert_eq!(take(&mut progress, &rest), [7, 7, 8, 9]);
        progress.opened(&opened);
        assert_eq!(take(&mut progress, &[end(8), change(9), change(10)]), [10]);

        // A stream that breaks within the list begins with the list again.
        let mut progress = Progress::default();
        progress.opened(&opened);
        assert_eq!(take(&mut progress, &[change(0)]), [0]);
        progress.opened(&opened);
        assert_eq!(take(&mut progress, &[change(0), end(4), change(5)]), [0, 4, 5]);
        progress.opened(&opened);
        assert_eq!(take(&mut progress, &[end(5), change(6)]), [6]);
    }
}
