//! `headwater get`: reads a key or a range of keys.

use std::io::Write;

use clap::ValueEnum;

use crate::connect::Cluster;
use crate::error::CliError;
use crate::output::{self, WriteOut, json};
use crate::{ClientArgs, Freshness};
use headwater_client::Repeat;
use headwater_proto::pb::etcdserverpb::range_request;
use headwater_proto::pb::etcdserverpb::{RangeRequest, RangeResponse};

/// Read a key or a range of keys
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct GetArgs {
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
    /// At most so many pairs; 0 is no limit
    #[arg(long, default_value_t = 0, value_name = "NUMBER")]
    limit: i64,
    /// As of this revision; 0 is the current one
    #[arg(long, default_value_t = 0, value_name = "REVISION")]
    rev: i64,
    /// Sort by this field
    #[arg(long, value_enum, ignore_case = true, value_name = "FIELD")]
    sort_by: Option<SortBy>,
    /// Sort in this order [default: ascend with --sort-by, otherwise the server's order]
    #[arg(long, value_enum, ignore_case = true)]
    order: Option<Order>,
    /// Leave the values out
    #[arg(long)]
    keys_only: bool,
    /// Print the number of keys alone
    #[arg(long)]
    count_only: bool,
    /// Print values only (simple output)
    #[arg(long)]
    print_value_only: bool,
    /// Leave out pairs last written before this revision
    #[arg(long, default_value_t = 0, value_name = "REVISION")]
    min_mod_rev: i64,
    /// Leave out pairs last written after this revision
    #[arg(long, default_value_t = 0, value_name = "REVISION")]
    max_mod_rev: i64,
    /// Leave out pairs created before this revision
    #[arg(long, default_value_t = 0, value_name = "REVISION")]
    min_create_rev: i64,
    /// Leave out pairs created after this revision
    #[arg(long, default_value_t = 0, value_name = "REVISION")]
    max_create_rev: i64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum SortBy {
    Key,
    Version,
    Create,
    Modify,
    Value,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Order {
    Ascend,
    Descend,
}

impl GetArgs {
    pub(super) fn request(&self, freshness: Freshness) -> Result<RangeRequest, CliError> {
        use range_request::{SortOrder, SortTarget};
        let (key, range_end) = super::interval(&self.key, self.range_end.as_deref(), self.prefix, self.from_key)?;
        let target = match self.sort_by {
            None | Some(SortBy::Key) => SortTarget::Key,
            Some(SortBy::Version) => SortTarget::Version,
            Some(SortBy::Create) => SortTarget::Create,
            Some(SortBy::Modify) => SortTarget::Mod,
            Some(SortBy::Value) => SortTarget::Value,
        };
        let order = match (self.order, self.sort_by) {
            (Some(Order::Descend), _) => SortOrder::Descend,
            (Some(Order::Ascend), _) | (None, Some(_)) => SortOrder::Ascend,
            (None, None) => SortOrder::None,
        };
        Ok(RangeRequest {
            key,
            range_end,
            limit: self.limit,
            revision: self.rev,
            sort_order: order.into(),
            sort_target: target.into(),
            serializable: freshness == Freshness::Serializable,
            keys_only: self.keys_only,
            count_only: self.count_only,
            min_mod_revision: self.min_mod_rev,
            max_mod_revision: self.max_mod_rev,
            min_create_revision: self.min_create_rev,
            max_create_revision: self.max_create_rev,
        })
    }
}

pub(crate) async fn run(args: GetArgs, cluster: &Cluster, client: &ClientArgs) -> Result<(), CliError> {
    let request = args.request(client.consistency)?;
    let response = cluster.call(Repeat::Harmless, async |a| a.kv().range(a.request(request.clone())).await).await?;
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    match client.write_out {
        WriteOut::Json => output::print_json(&mut out, &json::Range::from(&response))?,
        WriteOut::Simple if args.count_only => writeln!(out, "{}", response.count)?,
        WriteOut::Simple if args.print_value_only => {
            for kv in &response.kvs {
                output::print_bytes(&mut out, &kv.value)?;
            }
        }
        WriteOut::Simple => print_simple(&mut out, &response)?,
        WriteOut::Table => {
            output::print_table(&mut out, output::PAIR_HEADER, response.kvs.iter().map(output::pair_row))?;
            let revision = response.header.as_ref().map_or(0, |header| header.revision);
            let more = if response.more { ", more beyond the limit" } else { "" };
            writeln!(out, "{} of {} at revision {revision}{more}", response.kvs.len(), response.count)?;
        }
    }
    Ok(out.flush()?)
}

pub(super) fn print_simple(out: &mut impl Write, response: &RangeResponse) -> Result<(), CliError> {
    response.kvs.iter().try_for_each(|kv| output::print_pair(out, kv))
}
