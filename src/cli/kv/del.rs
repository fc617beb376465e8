//! `headwater del`: removes a key or a range of keys.

use std::io::Write;

use crate::ClientArgs;
use crate::connect::Cluster;
use crate::error::CliError;
use crate::output::{self, WriteOut, json};
use headwater_client::Repeat;
use headwater_proto::pb::etcdserverpb::{DeleteRangeRequest, DeleteRangeResponse};

/// Remove a key or a range of keys
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DelArgs {
    /// The key, or the first one
    key: String,
    /// The first key after the range
    range_end: Option<String>,
    /// Every key that begins with KEY
    #[arg(long)]
    prefix: bool,
    /// Every key from KEY on
    #[arg(long)]
    from_key: bool,
    /// Print the pairs that were removed
    #[arg(long)]
    prev_kv: bool,
}

impl DelArgs {
    pub(super) fn request(&self) -> Result<DeleteRangeRequest, CliError> {
        let (key, range_end) = super::interval(&self.key, self.range_end.as_deref(), self.prefix, self.from_key)?;
        Ok(DeleteRangeRequest { key, range_end, prev_kv: self.prev_kv })
    }
}

pub(crate) async fn run(args: DelArgs, cluster: &Cluster, client: &ClientArgs) -> Result<(), CliError> {
    let request = args.request()?;
    let response =
        cluster.call(Repeat::Harmful, async |a| a.kv().delete_range(a.request(request.clone())).await).await?;
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    match client.write_out {
        WriteOut::Simple => print_simple(&mut out, &response)?,
        WriteOut::Json => output::print_json(&mut out, &json::DeleteRange::from(&response))?,
        WriteOut::Table => {
            let revision = response.header.as_ref().map_or(0, |header| header.revision);
            writeln!(out, "{} removed at revision {revision}", response.deleted)?;
            if args.prev_kv {
                let rows = response.prev_kvs.iter().map(output::pair_row);
                output::print_table(&mut out, output::PAIR_HEADER, rows)?;
            }
        }
    }
    Ok(out.flush()?)
}

pub(super) fn print_simple(out: &mut impl Write, response: &DeleteRangeResponse) -> Result<(), CliError> {
    writeln!(out, "{}", response.deleted)?;
    response.prev_kvs.iter().try_for_each(|kv| output::print_pair(out, kv))
}
