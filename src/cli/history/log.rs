//! `headwater log`: the commands that changed a part of the store, newest first, or as they happen.

use std::io::Write;

use tonic::Code;

use super::json::WrittenCommand;
use super::point::{When, parse_when};
use super::refusal::{interval_error, read_error, stream_error};
use super::render::{Style, data_of, print_changes, print_command};
use super::{recursive, store};
use crate::ClientArgs;
use crate::connect::Cluster;
use crate::entity::Types;
use crate::error::CliError;
use crate::notice;
use crate::output::{WriteOut, print_json};
use headwater_proto::pb::headwater_v1 as pb;

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct HistoryArgs {
    /// Path whose changes are printed, with everything below it; all of the store without it
    target: Option<String>,
    /// Only changes since then, such as '5m ago'
    #[arg(long, value_name = "WHEN", value_parser = parse_when)]
    since: Option<When>,
    /// Only changes until then
    #[arg(long, value_name = "WHEN", value_parser = parse_when, conflicts_with = "follow")]
    until: Option<When>,
    /// Print new changes as they happen; with --since, first those since then, the oldest first
    #[arg(long, short)]
    follow: bool,
    /// Print changes line by line
    #[arg(long, short)]
    patch: bool,
    /// Only changes through these faces: etcd, etcd-early, resource, consul, store, headwater,
    /// node; repeated, or with commas
    #[arg(long = "face", value_name = "FACE", value_delimiter = ',')]
    faces: Vec<String>,
    /// Most commands to print; 0 prints all
    #[arg(long, short = 'n', default_value_t = 0, value_name = "COUNT")]
    limit: u64,
}

pub(crate) async fn run(args: HistoryArgs, cluster: &Cluster, client: &ClientArgs) -> Result<(), CliError> {
    let since = args.since.and_then(When::point);
    let mut request = pb::HistoryRequest {
        targets: vec![recursive(args.target.as_deref())],
        live: args.follow,
        faces: args.faces,
        limit: args.limit,
        ..Default::default()
    };
    match args.follow {
        // Without a beginning: from now on.
        true if since.is_none() => request.from = now(cluster).await?,
        true => request.from = since,
        false => {
            request.direction = pb::Direction::Backward.into();
            request.from = args.until.and_then(When::point);
            request.to = since;
        }
    }
    let style = Style::of_stdout(args.patch);
    match print(&request, cluster, client.write_out, style).await {
        Ok(Printed { oldest, is_all: true }) if request.to.is_none() && !request.live && oldest > 0 => {
            notice!("older changes are not kept: the history begins after #{oldest}");
            Ok(())
        }
        // What is kept is younger: print all of it, and say so.
        Err(CliError::StreamRefused(status))
            if status.code() == Code::FailedPrecondition && request.to.is_some() && !request.live =>
        {
            notice!("{}; what is kept is printed", status.message());
            let all = pb::HistoryRequest { to: None, ..request };
            print(&all, cluster, client.write_out, style).await.map(drop)
        }
        done => done.map(drop).map_err(|error| interval_error(error, "--since", "--until")),
    }
}

/// The newest point of the history. Only changes after it are new.
async fn now(cluster: &Cluster) -> Result<Option<pb::Point>, CliError> {
    let read = pb::ReadRequest { targets: vec!["/cluster".to_owned()], ..Default::default() };
    let read = store(cluster).read(read).await.map_err(read_error)?;
    Ok(Some(pb::Point { point: Some(pb::point::Point::Index(read.index)), epoch: read.epoch }))
}

/// What was printed of a history.
struct Printed {
    /// The oldest log index whose state is kept.
    oldest: u64,
    /// Whether the history ended, and not the number of commands that were asked for.
    is_all: bool,
}

async fn print(
    request: &pb::HistoryRequest,
    cluster: &Cluster,
    format: WriteOut,
    style: Style,
) -> Result<Printed, CliError> {
    let (mut oldest, mut count) = (0, 0u64);
    let mut history = store(cluster).history(request.clone());
    // The command whose first part was printed.
    let mut begun = None;
    let mut types = Types::new();
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    while let Some(message) = history.next().await.map_err(stream_error)? {
        types.learn(message.commands.iter().flat_map(data_of), cluster).await;
        oldest = message.oldest;
        for command in &message.commands {
            count += u64::from(!command.continued);
            match format {
                WriteOut::Json => {
                    print_json(&mut out, &WrittenCommand::new(command, &message.epoch, &types))?;
                }
                WriteOut::Simple | WriteOut::Table if begun == Some(command.index) => {
                    print_changes(&mut out, command, &types, style)?;
                }
                WriteOut::Simple | WriteOut::Table => print_command(&mut out, command, &types, style)?,
            }
            begun = command.continued.then_some(command.index);
        }
        out.flush()?;
    }
    Ok(Printed { oldest, is_all: request.limit == 0 || count < request.limit })
}
