//! `headwater subscribe`: follows the service catalog, as a table that redraws itself or as one
//! line an event.
//!
//! Resumes at the next endpoint when a node stops, after the last printed event: no event is lost
//! or printed twice. If the server cannot resume there, or the first state was interrupted, the
//! state is printed again.

mod lines;
mod show;
mod table;

use std::io::IsTerminal;

use clap::ValueEnum;

use super::ClientArgs;
use super::connect::Cluster;
use super::error::CliError;
use super::output::WriteOut;
use headwater_client::{ServiceHealth, ServiceList, ViewTopic};
use headwater_proto::pb::subscribe::SubscribeRequest;

/// Follow instances of services and their health, as they change
///
/// On a terminal, or with -w table, a table that redraws itself. Otherwise, and with --resume, one
/// line an event; with -w json, one JSON object a line. Resumes by itself after the last event
/// seen, at the next endpoint, when a node stops or the connection breaks.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct SubscribeArgs {
    /// Topic to follow
    #[arg(value_enum, ignore_case = true, value_name = "TOPIC")]
    topic: Topic,
    /// Name of the service, upper or lower case; all services if there is none
    key: Option<String>,
    /// Print the state and end
    #[arg(long)]
    once: bool,
    /// Print one line an event although this is a terminal
    #[arg(long)]
    events: bool,
    /// Resume after this log index, which an earlier subscription has printed
    #[arg(long, conflicts_with = "once", default_value_t = 0, value_name = "INDEX")]
    resume: u64,
}

/// Topics that can be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Topic {
    /// Instances of a service and their health
    #[value(name = "ServiceHealth", alias = "health")]
    Health,
    /// Instances through which a service is reached in the mesh
    #[value(name = "ServiceHealthConnect", alias = "connect")]
    Connect,
    /// Names of services
    #[value(name = "ServiceList", alias = "services")]
    Names,
}

/// The topic to follow, with its service if one is named.
enum Wanted {
    Health(ServiceHealth),
    Names,
}

impl SubscribeArgs {
    fn wanted(&self) -> Result<Wanted, CliError> {
        match (self.topic, &self.key) {
            (_, Some(key)) if key.is_empty() => Err(CliError::Usage("the name of the service is empty".to_owned())),
            (Topic::Health, Some(key)) => Ok(Wanted::Health(ServiceHealth::of(key))),
            (Topic::Health, None) => Ok(Wanted::Health(ServiceHealth::of_all())),
            (Topic::Connect, Some(key)) => Ok(Wanted::Health(ServiceHealth::connect(key))),
            (Topic::Connect, None) => Ok(Wanted::Health(ServiceHealth::connect_all())),
            (Topic::Names, None) => Ok(Wanted::Names),
            (Topic::Names, Some(_)) => {
                Err(CliError::Usage("ServiceList is the list of all names; it takes none".to_owned()))
            }
        }
    }
}

impl Wanted {
    fn request(&self) -> SubscribeRequest {
        match self {
            Self::Health(topic) => topic.request(),
            Self::Names => ServiceList.request(),
        }
    }
}

pub(super) async fn run(args: SubscribeArgs, cluster: &Cluster, client: &ClientArgs) -> Result<(), CliError> {
    let wanted = args.wanted()?;
    let endpoints = cluster.endpoints();
    let redraws = match client.write_out {
        WriteOut::Json => false,
        WriteOut::Table => true,
        WriteOut::Simple => std::io::stdout().is_terminal() && !args.events,
    };
    if redraws && args.resume == 0 {
        return match wanted {
            Wanted::Health(topic) => table::run(topic, endpoints.clone(), &args, client).await,
            Wanted::Names => table::run(ServiceList, endpoints.clone(), &args, client).await,
        };
    }
    let request = SubscribeRequest { index: args.resume, ..wanted.request() };
    lines::run(request, endpoints, &args, client).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: SubscribeArgs,
    }

    #[test]
    fn topics_are_named_as_in_the_proto_in_any_case() {
        for (line, is_good) in [
            ("ServiceHealth web", true),
            ("servicehealth", true),
            ("health web --once", true),
            ("connect web", true),
            ("ServiceHealthConnect", true),
            ("services", true),
            ("ServiceList web", false),
            ("MeshConfig", false),
            ("ServiceHealth web --resume 7", true),
            ("ServiceHealth web --resume 7 --once", false),
        ] {
            let words = ["x"].into_iter().chain(line.split(' '));
            let parsed = Line::try_parse_from(words).map(|line| line.args.wanted().is_ok());
            assert_eq!(parsed.unwrap_or(false), is_good, "{line}");
        }
    }
}
