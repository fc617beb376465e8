//! `headwater put`: writes one key.

use std::io::{IsTerminal, Read, Write};

use bytes::Bytes;

use crate::ClientArgs;
use crate::connect::Cluster;
use crate::error::CliError;
use crate::notice;
use crate::output::{self, WriteOut, json};
use headwater_client::Repeat;
use headwater_proto::pb::etcdserverpb::{PutRequest, PutResponse};

/// Write one key
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PutArgs {
    /// The key
    key: String,
    /// The value; `-` or nothing reads it from standard input
    value: Option<String>,
    /// Print the pair that was there before
    #[arg(long)]
    prev_kv: bool,
    /// Attach the key to this lease (hexadecimal)
    #[arg(long, value_parser = super::parse_lease, value_name = "ID")]
    lease: Option<i64>,
    /// Keep the value that is stored
    #[arg(long, conflicts_with = "value")]
    ignore_value: bool,
    /// Keep the lease that the key is attached to
    #[arg(long, conflicts_with = "lease")]
    ignore_lease: bool,
}

impl PutArgs {
    /// The request, with the value of the command line. An error if that has none and
    /// `--ignore-value` is not given. Does not read standard input: a value `-` is the text itself.
    pub(super) fn request(&self) -> Result<PutRequest, CliError> {
        if self.value.is_none() && !self.ignore_value {
            return Err(CliError::Usage(format!("put {}: the value is missing", self.key)));
        }
        let value = self.value.as_deref().unwrap_or_default();
        Ok(self.with_value(Bytes::copy_from_slice(value.as_bytes())))
    }

    fn with_value(&self, value: Bytes) -> PutRequest {
        PutRequest {
            key: Bytes::copy_from_slice(self.key.as_bytes()),
            value,
            lease: self.lease.unwrap_or_default(),
            prev_kv: self.prev_kv,
            ignore_value: self.ignore_value,
            ignore_lease: self.ignore_lease,
        }
    }
}

pub(crate) async fn run(args: PutArgs, cluster: &Cluster, client: &ClientArgs) -> Result<(), CliError> {
    let request = match args.value.as_deref() {
        None | Some("-") if !args.ignore_value => args.with_value(read_value()?),
        _ => args.request()?,
    };
    let response = cluster.call(Repeat::Harmful, async |a| a.kv().put(a.request(request.clone())).await).await?;
    let mut out = std::io::stdout().lock();
    match client.write_out {
        WriteOut::Simple => print_simple(&mut out, &response),
        WriteOut::Json => output::print_json(&mut out, &json::Put::from(&response)),
        WriteOut::Table => {
            let revision = response.header.as_ref().map_or(0, |header| header.revision);
            writeln!(out, "OK at revision {revision}")?;
            match &response.prev_kv {
                Some(prev) => output::print_table(&mut out, output::PAIR_HEADER, [output::pair_row(prev)]),
                None => Ok(()),
            }
        }
    }
}

pub(super) fn print_simple(out: &mut impl Write, response: &PutResponse) -> Result<(), CliError> {
    writeln!(out, "OK")?;
    match &response.prev_kv {
        Some(prev) => output::print_pair(out, prev),
        None => Ok(()),
    }
}

fn read_value() -> Result<Bytes, CliError> {
    let mut stdin = std::io::stdin().lock();
    if stdin.is_terminal() {
        notice!("reading the value from standard input; end it with Ctrl-D");
    }
    let mut value = Vec::new();
    stdin.read_to_end(&mut value)?;
    Ok(value.into())
}
