//! `headwater bench resource-list`: many resources listed as one view, and watched by many
//! connections that all begin at once.
//!
//! Watch events with resources are counted, not decoded: their reader shares the machine with the
//! measured servers. Invariant: a run succeeds only if every list, and the first state of every
//! watch, has as many resources as were written.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Buf;
use clap::Args;
use prost::Message;
use serde::Serialize;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic::transport::Channel;
use tonic_prost::ProstCodec;

use super::super::cpu::{CpuUsage, Sample};
use super::super::drive::{self, Plan, RunLimit, new_histogram};
use super::super::report::{Latency, latency_table};
use super::super::workload::{Keys, Kind, Workload};
use super::super::{CONNS_MAX, FILL_CLIENTS, wire};
use super::{register, type_};
use crate::ClientArgs;
use crate::error::CliError;
use crate::notice;
use crate::output::{self, WriteOut, human_bytes};
use headwater_client::Endpoints;
use headwater_proto::pb::pbresource::resource_service_client::ResourceServiceClient;
use headwater_proto::pb::pbresource::{ListRequest, Tenancy, WatchEvent, WatchListRequest, watch_event};

const WATCH_LIST: &str = "/hashicorp.consul.resource.ResourceService/WatchList";
/// Length of a resource's name, prefix included, bytes.
const NAME_BYTES: usize = 24;
/// An event that is no longer than this may be the end of the list, bytes; resources of the
/// benchmark are longer.
const END_BYTES_MAX: usize = 32;

#[derive(Clone, Debug, Args)]
pub(crate) struct ResourceListArgs {
    /// Resources; all of them are written first
    #[arg(long, default_value_t = 100_000, value_name = "NUMBER")]
    resources: u64,
    /// Resources on a page of the list
    #[arg(long, default_value_t = 10_000, value_name = "NUMBER")]
    page_size: u64,
    /// Lists, one after the other
    #[arg(long, default_value_t = 5, value_name = "NUMBER")]
    lists: usize,
    /// Connections that begin to watch at once; none if 0
    #[arg(long, default_value_t = 0, value_name = "NUMBER")]
    watchers: usize,
    /// Bytes of a value
    #[arg(long, default_value_t = 256, value_name = "BYTES")]
    val_size: usize,
    /// Fail if a list takes longer than this
    #[arg(long, value_parser = crate::parse_duration, value_name = "DURATION")]
    list_max: Option<Duration>,
    /// Servers whose processor time and memory are reported
    #[arg(long, value_delimiter = ',', value_name = "PID,…")]
    pids: Vec<u32>,
    /// Show no progress
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Serialize)]
struct Report {
    resources: u64,
    page_size: u64,
    list_us: Latency,
    watchers: usize,
    /// Time from the common start of all watches until each had its list, microseconds.
    watch_us: Latency,
    /// Bytes of the events with resources that all watchers received.
    watch_bytes: u64,
    #[serde(flatten)]
    spent: CpuUsage,
}

pub(crate) fn run(args: ResourceListArgs, endpoints: Arc<[String]>, client: &ClientArgs) -> Result<(), CliError> {
    if args.resources == 0 || args.page_size == 0 || args.lists == 0 {
        return Err(CliError::Usage("--resources, --page-size and --lists must be above zero".to_owned()));
    }
    if args.val_size <= END_BYTES_MAX {
        return Err(CliError::Usage(format!("--val-size must be above {END_BYTES_MAX}")));
    }
    // A prefix of its own, so that leftovers of an earlier run of another size do not count.
    let prefix = format!("list-{}-", args.resources);
    register(&endpoints)?;
    fill(&args, &prefix, &endpoints, client)?;
    let sample = Sample::take(&args.pids).map_err(CliError::Usage)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CliError::other)?;
    let (mut lists, mut watches, mut watch_bytes) = (new_histogram(), new_histogram(), 0);
    runtime.block_on(async {
        for number in 0..args.lists {
            let took = list(&args, &prefix, &endpoints[number % endpoints.len()]).await?;
            lists.saturating_record(micros(took));
        }
        if args.watchers > 0 && !args.quiet {
            notice!("{} connections begin to watch", args.watchers);
        }
        for seen in watch_all(&args, &prefix, &endpoints).await? {
            watches.saturating_record(micros(seen.took));
            watch_bytes += seen.bytes;
        }
        Ok::<_, CliError>(())
    })?;
    let report = Report {
        resources: args.resources,
        page_size: args.page_size,
        list_us: Latency::of(&lists),
        watchers: args.watchers,
        watch_us: Latency::of(&watches),
        watch_bytes,
        spent: sample.until_now().map_err(CliError::Finding)?,
    };
    report.print(client.write_out)?;
    match args.list_max {
        Some(max) if report.list_us.max() > micros(max) => {
            Err(CliError::Finding(format!("a list took longer than {}", humantime::format_duration(max))))
        }
        Some(_) | None => Ok(()),
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn fill(args: &ResourceListArgs, prefix: &str, endpoints: &Arc<[String]>, client: &ClientArgs) -> Result<(), CliError> {
    let clients = FILL_CLIENTS.min(usize::try_from(args.resources).unwrap_or(usize::MAX));
    let outcome = drive::run(Plan {
        endpoints: Arc::clone(endpoints),
        workload: Workload {
            kind: Kind::Resource { reads_per_write: 0.0 },
            keys: Keys::new(prefix, NAME_BYTES, args.resources).map_err(CliError::Usage)?,
            value: bytes::Bytes::from(vec![b'x'; args.val_size]),
            clock: None,
            serializable: false,
            sequential: true,
            leases: Arc::default(),
        },
        clients,
        conns: CONNS_MAX.min(clients),
        threads: 1,
        stop: RunLimit::After(args.resources),
        rate: 0,
        seed: 1,
        timeout: client.timeout,
        work: Duration::ZERO,
        progress: (!args.quiet).then_some("filling"),
        ledger: None,
    })?;
    if outcome.failed() > 0 {
        return Err(CliError::Finding(format!("filling failed: {}", outcome.reasons())));
    }
    Ok(())
}

async fn connect(endpoint: &str) -> Result<Channel, CliError> {
    let endpoints = Endpoints::by([endpoint], wire::dialer())?;
    Ok(endpoints.connect(0, None).await.map_err(CliError::other)?.http())
}

/// Lists all resources of the run, page by page: the pages of one list are one view. Returns the
/// time that the whole list took. A wrong number of resources is an error, too.
async fn list(args: &ResourceListArgs, prefix: &str, endpoint: &str) -> Result<Duration, CliError> {
    let mut client = ResourceServiceClient::new(connect(endpoint).await?).max_decoding_message_size(usize::MAX);
    let began = Instant::now();
    let (mut found, mut token) = (0, None);
    loop {
        let mut request = wire::request(ListRequest {
            r#type: Some(type_()),
            tenancy: Some(everywhere()),
            name_prefix: prefix.to_owned(),
        });
        let metadata = request.metadata_mut();
        metadata.insert("x-consul-consistency-mode", "consistent".parse().expect("a legal value"));
        metadata.insert("headwater-page-size", args.page_size.into());
        if let Some(token) = token.take() {
            metadata.insert("headwater-page-token", token);
        }
        let answer = client.list(request).await.map_err(failed)?;
        token = answer.metadata().get("headwater-page-token").cloned();
        found += answer.get_ref().resources.len() as u64;
        if token.is_none() {
            break;
        }
    }
    if found != args.resources {
        return Err(CliError::Finding(format!("a list has {found} resources instead of {}", args.resources)));
    }
    Ok(began.elapsed())
}

fn everywhere() -> Tenancy {
    Tenancy { partition: "default".to_owned(), namespace: "default".to_owned() }
}

fn failed(status: Status) -> CliError {
    CliError::Finding(format!("refused: {} ({:?})", status.message(), status.code()))
}

struct Seen {
    took: Duration,
    bytes: u64,
}

/// Opens a connection for each watcher, then starts all watches at once.
async fn watch_all(args: &ResourceListArgs, prefix: &str, endpoints: &[String]) -> Result<Vec<Seen>, CliError> {
    let connecting = (0..args.watchers).map(|number| connect(&endpoints[number % endpoints.len()]));
    let channels = futures::future::try_join_all(connecting).await?;
    let began = Instant::now();
    futures::future::try_join_all(channels.into_iter().map(|channel| watch(args, prefix, channel, began))).await
}

/// Watches until the list is complete. Returns the time since `began`, and the bytes of the events
/// with resources. A wrong number of resources is an error, too.
async fn watch(args: &ResourceListArgs, prefix: &str, channel: Channel, began: Instant) -> Result<Seen, CliError> {
    let mut grpc = tonic::client::Grpc::new(channel).max_decoding_message_size(usize::MAX);
    grpc.ready().await.map_err(CliError::other)?;
    let request = wire::request(WatchListRequest {
        r#type: Some(type_()),
        tenancy: Some(everywhere()),
        name_prefix: prefix.to_owned(),
    });
    let path = http::uri::PathAndQuery::from_static(WATCH_LIST);
    let mut events = grpc.server_streaming(request, path, PartialCodec::default()).await.map_err(failed)?.into_inner();
    let (mut found, mut bytes) = (0, 0);
    loop {
        let Some(event) = events.message().await.map_err(failed)? else {
            return Err(CliError::Finding("a watch ended before its list was complete".to_owned()));
        };
        if event.is_end {
            break;
        }
        found += 1;
        bytes += event.bytes;
    }
    if found != args.resources {
        return Err(CliError::Finding(format!("a watch began with {found} resources instead of {}", args.resources)));
    }
    Ok(Seen { took: began.elapsed(), bytes })
}

/// The facts about an event that are needed here.
struct PartialEvent {
    bytes: u64,
    is_end: bool,
}

/// Codec of a watch of resources. It encodes requests. Of an event it decodes only the length, and
/// whether the event ends the list.
#[derive(Default)]
struct PartialCodec(PhantomData<()>);

impl Codec for PartialCodec {
    type Encode = WatchListRequest;
    type Decode = PartialEvent;
    type Encoder = <ProstCodec<WatchListRequest, WatchEvent> as Codec>::Encoder;
    type Decoder = PartialDecoder;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<WatchListRequest, WatchEvent>::default().encoder()
    }

    fn decoder(&mut self) -> PartialDecoder {
        PartialDecoder
    }
}

struct PartialDecoder;

impl Decoder for PartialDecoder {
    type Item = PartialEvent;
    type Error = Status;

    fn decode(&mut self, source: &mut DecodeBuf<'_>) -> Result<Option<PartialEvent>, Status> {
        let bytes = source.remaining();
        let is_end = if bytes <= END_BYTES_MAX {
            let event = WatchEvent::decode(&mut *source).map_err(|error| Status::internal(error.to_string()))?;
            matches!(event.event, Some(watch_event::Event::EndOfSnapshot(_)))
        } else {
            source.advance(bytes);
            false
        };
        Ok(Some(PartialEvent { bytes: bytes as u64, is_end }))
    }
}

impl Report {
    fn print(&self, write_out: WriteOut) -> Result<(), CliError> {
        use std::io::Write;
        let mut out = std::io::stdout().lock();
        if write_out == WriteOut::Json {
            return output::print_json(&mut out, self);
        }
        writeln!(out, "{} resources, in pages of {}", self.resources, self.page_size)?;
        let mut rows = vec![("list", &self.list_us)];
        if self.watchers > 0 {
            rows.push(("watch, to the end of its list", &self.watch_us));
        }
        latency_table(&mut out, rows.into_iter())?;
        if self.watchers > 0 {
            writeln!(out, "{} watchers got {} altogether", self.watchers, human_bytes(self.watch_bytes))?;
        }
        for server in &self.spent.servers {
            let (now, peak) = (human_bytes(server.rss_bytes), human_bytes(server.rss_peak_bytes));
            writeln!(
                out,
                "process {}: {:.1} s of processor time, {now} resident (at most {peak})",
                server.pid, server.cpu_seconds
            )?;
        }
        Ok(())
    }
}
