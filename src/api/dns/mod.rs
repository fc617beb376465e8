//! DNS over the catalog: a packet in, a packet out.
//!
//! `zone` reads names, `find` asks the node, `records` makes the answer, `packet` reads and writes
//! packets. Must not know sockets; `server` has them. Invariant: an answer is computed from one
//! state of this node, which never goes backwards; every member answers without asking another one,
//! also while there is no leader.

mod find;
mod metrics;
mod packet;
mod records;
mod zone;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hickory_proto::op::ResponseCode;
use prometheus::Registry;

use self::metrics::DnsMetrics;
use self::packet::{Question, Received};
use self::records::Writer;
use self::zone::Zone;
use headwater_node::{ClientKey, Limit, Node, NodeError, RequestContext};

/// Timeout of the look-up for one question. Resolvers ask again, or ask another server, after a
/// second or more.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Options of DNS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsOptions {
    /// The domain below which names are answered, such as `consul`.
    pub domain: String,
    /// Time to live of answers, seconds.
    pub ttl_seconds: u32,
    /// Most address or SRV records in an answer over UDP to a client that accepts no more than 512
    /// bytes, count.
    pub udp_answers_max: usize,
    /// Whether an instance with a warning is left out. One with a critical check always is.
    pub only_passing: bool,
}

impl Default for DnsOptions {
    fn default() -> Self {
        Self { domain: "consul".to_owned(), ttl_seconds: 0, udp_answers_max: 3, only_passing: false }
    }
}

/// Transport of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DnsTransport {
    /// UDP. The answer is truncated to the size that the client accepts.
    Udp,
    /// TCP. The answer has at most 65535 bytes.
    Tcp,
}

/// Answers DNS packets; cheap to clone.
#[derive(Clone)]
pub struct DnsService {
    inner: Arc<Inner>,
}

struct Inner {
    node: Node,
    zone: Zone,
    options: DnsOptions,
    metrics: DnsMetrics,
}

impl fmt::Debug for DnsService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DnsService").field("options", &self.inner.options).finish_non_exhaustive()
    }
}

/// The reason why a domain is invalid, as the end of a sentence about it; `None` if it is valid.
pub fn domain_problem(domain: &str) -> Option<String> {
    Zone::new(domain, "").err()
}

impl DnsService {
    /// Answers from `node`. Metrics go into `registry`.
    ///
    /// # Errors
    ///
    /// If the domain is invalid, or `registry` already holds metrics of these names.
    pub fn new(node: Node, options: DnsOptions, registry: &Registry) -> anyhow::Result<Self> {
        let zone = Zone::new(&options.domain, node.datacenter())
            .map_err(|problem| anyhow::anyhow!("the domain {:?} {problem}", options.domain))?;
        let metrics = DnsMetrics::register(registry)?;
        Ok(Self { inner: Arc::new(Inner { node, zone, options, metrics }) })
    }

    /// The packet that answers `packet`; `None` for a packet to ignore. A question gets `REFUSED`
    /// if its name is not in the domain or the client is over its rate, and `SERVFAIL` if the
    /// look-up or the encoding fails. A malformed packet gets the code for its defect.
    pub async fn answer(&self, packet: &[u8], client: ClientKey, transport: DnsTransport) -> Option<Vec<u8>> {
        if self.inner.node.count_request(client).is_err() {
            return self.refuse(packet, transport, ResponseCode::Refused);
        }
        let began = Instant::now();
        let metrics = &self.inner.metrics;
        let (wanted, packet, code) = match packet::read(packet, transport) {
            Received::Noise => {
                metrics.ignored.inc();
                return None;
            }
            Received::Wrong(reply, code) => (None, reply.refuse(code), code),
            Received::Question(question) => {
                let wanted = question.query.query_type();
                let (packet, code) = self.inner.answer(question, client).await;
                (Some(wanted), packet, code)
            }
        };
        metrics.answered(transport, wanted, code, began.elapsed());
        Some(packet)
    }

    /// The refusal (`SERVFAIL`) of `packet` because too many questions are open; `None` for a
    /// packet to ignore. A malformed packet gets the code for its defect. Counts the refusal.
    pub fn busy(&self, packet: &[u8], transport: DnsTransport) -> Option<Vec<u8>> {
        self.inner.node.limit_counters().count(Limit::DnsQueries);
        self.refuse(packet, transport, ResponseCode::ServFail)
    }

    /// The refusal (`FORMERR`) of `packet`, which is longer than a question can be; `None` for a
    /// packet to ignore. A packet with another defect gets the code for that.
    pub fn too_long(&self, packet: &[u8], transport: DnsTransport) -> Option<Vec<u8>> {
        self.refuse(packet, transport, ResponseCode::FormErr)
    }

    fn refuse(&self, packet: &[u8], transport: DnsTransport, code: ResponseCode) -> Option<Vec<u8>> {
        let metrics = &self.inner.metrics;
        let (wanted, reply, code) = match packet::read(packet, transport) {
            Received::Noise => {
                metrics.ignored.inc();
                return None;
            }
            Received::Wrong(reply, wrong) => (None, reply, wrong),
            Received::Question(question) => (Some(question.query.query_type()), question.into_reply(), code),
        };
        metrics.answered(transport, wanted, code, Duration::ZERO);
        Some(reply.refuse(code))
    }

    /// Counts a connection until the returned guard is dropped.
    pub fn connection(&self) -> impl Drop + Send + use<> {
        self.inner.metrics.connection()
    }

    /// Counts a connection that was refused because there are too many.
    pub fn connection_refused(&self) {
        self.inner.metrics.refused_connections.inc();
    }
}

impl Inner {
    async fn answer(&self, question: Question, client: ClientKey) -> (Vec<u8>, ResponseCode) {
        let name = question.query.name().clone();
        let Some(subject) = self.zone.subject(&name) else {
            return (question.into_reply().refuse(ResponseCode::Refused), ResponseCode::Refused);
        };
        let wanted = question.query.query_type();
        let principal = self.node.acl().of_dns();
        let ctx = RequestContext { client, principal, ..RequestContext::within(ANSWER_TIMEOUT) };
        match find::find(&self.node, &ctx, subject, self.options.only_passing).await {
            Ok(read) => {
                let writer = Writer {
                    zone: &self.zone,
                    ttl_seconds: self.options.ttl_seconds,
                    // Serial numbers wrap around (RFC 1982).
                    serial: read.index.get() as u32,
                    answers_max: question.answers_max(self.options.udp_answers_max),
                };
                question.answer(&writer.answer(&name, wanted, read.value))
            }
            Err(error) => {
                match &error {
                    NodeError::Storage(_) => tracing::warn!(%error, %name, "a DNS question failed"),
                    _ => tracing::debug!(%error, %name, "a DNS question failed"),
                }
                (question.into_reply().refuse(ResponseCode::ServFail), ResponseCode::ServFail)
            }
        }
    }
}
