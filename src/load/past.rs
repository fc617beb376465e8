//! Reads of keys as they were: by an index, and by a revision, of the same moment's state.

use bytes::Bytes;
use clap::{Args, ValueEnum};

use super::lease::connect;
use super::workload::{Keys, Moment};
use super::{LoadArgs, wire};
use crate::error::CliError;
use headwater_proto::pb::etcdserverpb::kv_client::KvClient;
use headwater_proto::pb::etcdserverpb::{PutRequest, RangeRequest};
use headwater_proto::pb::headwater_v1::ReadRequest;
use headwater_proto::pb::headwater_v1::store_client::StoreClient;
use headwater_types::limits::{STORE_PAGE_BYTES_MAX, STORE_PAGE_MAX};

/// Bytes for which an entity of a page counts beside its key, which counts twice, and its value.
const ENTITY_BYTES: u64 = 128;

#[derive(Clone, Debug, Args)]
pub(super) struct PastArgs {
    /// Keys in a read: 1 for single keys, otherwise the first ones of --prefix
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    pub(super) limit: u64,
    /// The API that reads
    #[arg(long, value_enum, default_value_t = Api::Store)]
    pub(super) api: Api,
    #[command(flatten)]
    pub(super) load: LoadArgs,
}

/// An API that reads keys as they were.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Api {
    /// Read of headwater.v1.Store, at an index
    Store,
    /// Range of etcd's KV, at a revision
    Etcd,
}

impl Api {
    /// The kind of moment that the API takes, not chosen yet.
    pub(super) fn no_moment(self) -> Moment {
        match self {
            Self::Store => Moment::Index(0),
            Self::Etcd => Moment::Revision(0),
        }
    }
}

/// Refuses what the loads cannot ask for. The sizes are those of a key and of a value, bytes.
pub(super) fn check(limit: u64, keys: u64, key_size: usize, val_size: usize, prefix: &str) -> Result<(), CliError> {
    // A page ends at its bound in bytes too.
    let entity_bytes = 2 * key_size as u64 + val_size as u64 + ENTITY_BYTES;
    if limit.saturating_mul(entity_bytes) > STORE_PAGE_BYTES_MAX as u64 {
        return Err(CliError::Usage(format!(
            "--limit {limit} with these sizes is more than a page of headwater.v1.Store has, {STORE_PAGE_BYTES_MAX} bytes"
        )));
    }
    if limit == 0 || limit > keys || limit > STORE_PAGE_MAX as u64 {
        return Err(CliError::Usage(format!(
            "--limit must lie between 1 and --keys ({keys}), at most {STORE_PAGE_MAX}"
        )));
    }
    let is_plain = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let directory = prefix.strip_suffix('/').filter(|directory| directory.split('/').all(is_plain));
    directory.map(drop).ok_or_else(|| {
        CliError::Usage("--prefix of this load must be letters, digits and slashes, with a slash at the end".to_owned())
    })
}

/// The moment that is now, in the terms of `kind`. Then writes a key, so that the moment lies in
/// the past.
pub(super) fn choose(kind: Moment, endpoints: &[String], keys: &Keys) -> Result<Moment, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CliError::other)?;
    runtime.block_on(async {
        let channels = connect(endpoints).await?;
        let channel = channels.into_iter().next().ok_or_else(|| CliError::Usage("no endpoint".to_owned()))?;
        let key = keys.key(0);
        let asked = async {
            let mut kv = KvClient::new(channel.clone());
            let range = RangeRequest { key: key.clone(), ..RangeRequest::default() };
            let range = kv.range(wire::request(range)).await?.into_inner();
            let moment = match kind {
                Moment::Revision(_) => Moment::Revision(range.header.unwrap_or_default().revision),
                Moment::Index(_) => {
                    let targets = vec!["/cluster?children=false".to_owned()];
                    let read = ReadRequest { targets, ..ReadRequest::default() };
                    Moment::Index(StoreClient::new(channel).read(wire::request(read)).await?.into_inner().index)
                }
            };
            let value = range.kvs.into_iter().next().map_or_else(Bytes::new, |pair| pair.value);
            kv.put(wire::request(PutRequest { key, value, ..PutRequest::default() })).await?;
            Ok::<_, tonic::Status>(moment)
        };
        asked.await.map_err(|status| CliError::Finding(format!("there is no moment to read at: {}", status.message())))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_need_escapes_are_refused() {
        for prefix in ["bench/", "a/b/"] {
            assert!(check(1, 10, 20, 80, prefix).is_ok(), "{prefix}");
        }
        for prefix in ["", "/", "bench", "a//b/", "a%/", "a?b/", "~/"] {
            assert!(check(1, 10, 20, 80, prefix).is_err(), "{prefix}");
        }
        for (limit, is_fine) in [(0, false), (10, true), (11, false)] {
            assert_eq!(check(limit, 10, 20, 80, "bench/").is_ok(), is_fine, "{limit}");
        }
        // More than a page has.
        assert!(check(1000, 10_000, 24, 256, "bench/").is_ok());
        assert!(check(5000, 10_000, 24, 256, "bench/").is_err());
    }
}
