//! `headwater show`: entities as they are, or were, at one point.

use std::io::Write;

use serde_json::json;

use super::json::WrittenEntity;
use super::point::{When, parse_when, time_text};
use super::refusal::read_error;
use super::render::{Style, is_directory, line, lines};
use super::{WHEN_HELP, no_history_before, store};
use crate::ClientArgs;
use crate::connect::Cluster;
use crate::entity::Types;
use crate::error::CliError;
use crate::notice;
use crate::output::{WriteOut, print_json, print_table};
use headwater_proto::pb::headwater_v1 as pb;

/// Print any part of the store as it is, or was at some time
///
/// TARGET is a path, as for `follow`: /kv/app is the key and its children. `/kv/app?children=false`
/// is the key alone. A single entity is printed in full, by lines; of several, each is one line,
/// which is cut on a terminal.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = WHEN_HELP)]
pub(crate) struct ShowArgs {
    /// Path to print
    target: String,
    /// Print everything below the path, not its children alone
    #[arg(long, short)]
    recursive: bool,
    /// When, such as '5m ago'
    #[arg(long, value_name = "WHEN", default_value = "now", value_parser = parse_when)]
    at: When,
}

fn target(args: &ShowArgs) -> String {
    match (args.recursive, args.target.contains('?')) {
        (false, _) => args.target.clone(),
        (true, false) => format!("{}?recursive=true", args.target),
        (true, true) => format!("{}&recursive=true", args.target),
    }
}

pub(crate) async fn run(args: ShowArgs, cluster: &Cluster, client: &ClientArgs) -> Result<(), CliError> {
    let request = pb::ReadRequest { targets: vec![target(&args)], at: args.at.point(), ..Default::default() };
    let read = store(cluster).read_all(request).await.map_err(read_error)?;
    let mut types = Types::new();
    types.learn(read.entities.iter().filter_map(|entity| entity.data.as_ref()), cluster).await;
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    match client.write_out {
        WriteOut::Json => {
            let entities: Vec<_> = read.entities.iter().map(|entity| WrittenEntity::new(entity, &types)).collect();
            let object = json!({
                "index": read.index,
                "epoch": read.epoch,
                "revision": read.revision,
                "unix_ms": read.unix_ms,
                "entities": entities,
            });
            print_json(&mut out, &object)?;
        }
        WriteOut::Table => {
            let row = |entity: &pb::Entity| vec![entity.path.clone(), line(entity, &types), entity.index.to_string()];
            print_table(&mut out, &["PATH", "DATA", "INDEX"], read.entities.iter().map(row))?;
        }
        WriteOut::Simple => print(&mut out, &read, args.at, &types)?,
    }
    out.flush()?;
    if read.entities.is_empty() && client.write_out == WriteOut::Simple {
        // At the index 0 there is only the state before the first change.
        return Err(CliError::Finding(match read.index == 0 && args.at.is_time() {
            true => no_history_before(cluster).await,
            false => format!("nothing is there at index {}", read.index),
        }));
    }
    Ok(())
}

fn print(out: &mut impl Write, read: &pb::ReadResponse, at: When, types: &Types) -> Result<(), CliError> {
    if at != When::Now && !read.entities.is_empty() {
        notice!("as of #{}  {}", read.index, time_text(read.unix_ms));
    }
    if let [only] = &read.entities[..]
        && !is_directory(only)
    {
        writeln!(out, "{}", only.path)?;
        for line in lines(only, types) {
            writeln!(out, "  {line}")?;
        }
        return Ok(());
    }
    let style = Style::of_stdout(false);
    for entity in &read.entities {
        writeln!(out, "{}", style.path_and_state(entity, types))?;
    }
    if !read.entities.is_empty() && read.entities.iter().all(is_directory) {
        notice!("these are names of others below them: -r prints everything below");
    }
    Ok(())
}
