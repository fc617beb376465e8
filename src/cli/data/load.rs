//! `headwater load`: writes a data set, many puts in flight, through any endpoint that answers.

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use futures::StreamExt;
use serde::Serialize;

use super::DataSet;
use crate::ClientArgs;
use crate::connect::Cluster;
use crate::error::CliError;
use crate::output::{self, WriteOut};
use headwater_client::Repeat;
use headwater_proto::pb::etcdserverpb::PutRequest;

/// Time after which a put that no endpoint answers is no longer repeated. An election takes less.
const RETRY_TIMEOUT: Duration = Duration::from_secs(30);
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(200);

/// Write every line of a file as a key
///
/// The value is the number of the line, or the text after the first tab. A put that no endpoint
/// acknowledges is repeated for up to 30 s, which is harmless here: it writes the same again.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct LoadArgs {
    /// The file, or - for standard input
    file: PathBuf,
    /// Put this before every key
    #[arg(long, default_value = "", value_name = "TEXT")]
    prefix: String,
    /// Puts in flight at once
    #[arg(long, default_value_t = 256, value_name = "NUMBER")]
    in_flight: usize,
    /// Show progress even if standard error is no terminal (lines instead of a bar)
    #[arg(long)]
    progress: bool,
}

#[derive(Serialize)]
struct Summary {
    keys: usize,
    skipped_lines: usize,
    seconds: f64,
    keys_per_second: f64,
    repeated_puts: usize,
    revision: i64,
}

pub(crate) async fn run(args: LoadArgs, cluster: &Cluster, client: &ClientArgs) -> Result<(), CliError> {
    let data = DataSet::read(&args.file, &args.prefix)?;
    let keys = data.pairs.len();
    let mut progress = super::progress("loading", keys, args.progress);
    let began = Instant::now();
    let mut puts = futures::stream::iter(data.pairs)
        .map(|(key, value)| put(cluster, PutRequest { key, value, ..Default::default() }))
        .buffer_unordered(args.in_flight.max(1));
    let (mut done, mut repeated_puts, mut revision) = (0, 0, 0);
    while let Some(outcome) = puts.next().await {
        let acknowledged = outcome?;
        done += 1;
        repeated_puts += acknowledged.repeats;
        revision = revision.max(acknowledged.revision);
        progress.set(done);
    }
    progress.finish();
    let seconds = began.elapsed().as_secs_f64();
    let summary = Summary {
        keys,
        skipped_lines: data.skipped,
        seconds,
        keys_per_second: keys as f64 / seconds.max(1e-9),
        repeated_puts,
        revision,
    };
    match client.write_out {
        WriteOut::Json => output::print_json(&mut std::io::stdout().lock(), &summary),
        WriteOut::Simple | WriteOut::Table => {
            writeln!(
                std::io::stdout(),
                "loaded {keys} keys in {seconds:.1} s ({:.0}/s), now at revision {revision}; {} lines left out, \
                 {repeated_puts} puts repeated",
                summary.keys_per_second,
                data.skipped
            )?;
            Ok(())
        }
    }
}

struct Acknowledged {
    revision: i64,
    repeats: usize,
}

async fn put(cluster: &Cluster, request: PutRequest) -> Result<Acknowledged, CliError> {
    let began = Instant::now();
    let mut repeats = 0;
    loop {
        let outcome = cluster.call(Repeat::Harmless, async |a| a.kv().put(a.request(request.clone())).await).await;
        match outcome {
            Ok(response) => {
                return Ok(Acknowledged { revision: response.header.map_or(0, |header| header.revision), repeats });
            }
            Err(CliError::Unreachable(_)) if began.elapsed() < RETRY_TIMEOUT => {
                repeats += 1;
                tokio::time::sleep(BETWEEN_ATTEMPTS).await;
            }
            Err(error) => return Err(error),
        }
    }
}
