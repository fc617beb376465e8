//! Metrics of DNS.

use std::time::Duration;

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;
use prometheus::{Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Opts, Registry};

use super::DnsTransport;

/// Metrics of questions and connections.
pub(super) struct DnsMetrics {
    queries: IntCounterVec,
    seconds: Histogram,
    connections: IntGauge,
    /// Connections that were refused because too many were open.
    pub(super) refused_connections: IntCounter,
    /// Packets that were ignored, because they were no DNS questions.
    pub(super) ignored: IntCounter,
}

impl DnsMetrics {
    /// Makes the metrics of DNS and registers them.
    pub(super) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let queries = Opts::new("headwater_dns_queries_total", "DNS questions by transport, record type and code.");
        let seconds = HistogramOpts::new("headwater_dns_query_seconds", "How long DNS answers took.")
            .buckets(prometheus::exponential_buckets(0.000_05, 4.0, 9)?);
        let metrics = Self {
            queries: IntCounterVec::new(queries, &["transport", "type", "code"])?,
            seconds: Histogram::with_opts(seconds)?,
            connections: IntGauge::new("headwater_dns_connections", "Open DNS connections.")?,
            refused_connections: IntCounter::new(
                "headwater_dns_connections_refused_total",
                "DNS connections refused because there were too many.",
            )?,
            ignored: IntCounter::new("headwater_dns_ignored_total", "Packets that were no DNS question.")?,
        };
        registry.register(Box::new(metrics.queries.clone()))?;
        registry.register(Box::new(metrics.seconds.clone()))?;
        registry.register(Box::new(metrics.connections.clone()))?;
        registry.register(Box::new(metrics.refused_connections.clone()))?;
        registry.register(Box::new(metrics.ignored.clone()))?;
        Ok(metrics)
    }

    /// Counts a question that was answered with `code`, and the time that the answer `took`.
    /// `wanted` is `None` for a packet without a readable question.
    pub(super) fn answered(
        &self,
        transport: DnsTransport,
        wanted: Option<RecordType>,
        code: ResponseCode,
        took: Duration,
    ) {
        let transport = match transport {
            DnsTransport::Udp => "udp",
            DnsTransport::Tcp => "tcp",
        };
        self.queries.with_label_values(&[transport, type_label(wanted), code_label(code)]).inc();
        self.seconds.observe(took.as_secs_f64());
    }

    /// Counts a connection until the guard is dropped.
    pub(super) fn connection(&self) -> ConnectionGuard {
        self.connections.inc();
        ConnectionGuard(self.connections.clone())
    }
}

/// Counts one open connection until it is dropped.
pub(super) struct ConnectionGuard(IntGauge);

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// The label of a record type, from a fixed set: a client must not be able to add labels.
fn type_label(wanted: Option<RecordType>) -> &'static str {
    match wanted {
        Some(RecordType::A) => "A",
        Some(RecordType::AAAA) => "AAAA",
        Some(RecordType::SRV) => "SRV",
        Some(RecordType::ANY) => "ANY",
        Some(RecordType::TXT) => "TXT",
        Some(RecordType::SOA) => "SOA",
        Some(RecordType::NS) => "NS",
        Some(RecordType::PTR) => "PTR",
        Some(_) => "other",
        None => "none",
    }
}

fn code_label(code: ResponseCode) -> &'static str {
    match code {
        ResponseCode::NoError => "NOERROR",
        ResponseCode::NXDomain => "NXDOMAIN",
        ResponseCode::FormErr => "FORMERR",
        ResponseCode::ServFail => "SERVFAIL",
        ResponseCode::NotImp => "NOTIMP",
        ResponseCode::Refused => "REFUSED",
        ResponseCode::BADVERS => "BADVERS",
        _ => "other",
    }
}
