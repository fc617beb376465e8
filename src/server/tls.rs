//! Certificates of the ports, and their renewal.

use std::sync::Arc;
use std::time::Duration;

use prometheus::{IntCounterVec, IntGaugeVec, Opts, Registry};
use tokio::sync::Notify;

use super::config::{Config, TlsConfig};
use headwater_tls::{ClientCertificates, ClientTls, Dialer, Protocols, ServerTls, TlsError};

/// Interval at which the certificate files are checked for changes.
const RENEW_INTERVAL: Duration = Duration::from_secs(5);

/// TLS of the ports of a node.
#[derive(Clone, Debug, Default)]
pub struct InstanceTls {
    /// The client port; `None` for plain text.
    pub clients: Option<ServerTls>,
    /// The peer port; `None` for plain text.
    pub peers: Option<PeerTls>,
    /// The metrics port; `None` for plain text, and without such a port.
    pub metrics: Option<ServerTls>,
    /// DNS over TLS, with the certificate of the client port; `None` if it is not served.
    pub dns: Option<ServerTls>,
    /// Connects to client ports of other nodes; by TLS only if `tls.trusted-ca` is set.
    pub client_dialer: Dialer,
    /// A notification makes the node read all certificate files again, as SIGHUP does.
    pub renew_now: Arc<Notify>,
}

/// TLS between members. Both ends always show certificates.
#[derive(Clone, Debug)]
pub struct PeerTls {
    /// Accepts connections of other members.
    pub server: ServerTls,
    /// Connects to other members.
    pub client: ClientTls,
}

impl InstanceTls {
    /// Reads the certificate files that the configuration names.
    ///
    /// # Errors
    ///
    /// [`TlsError`] if a file cannot be read or is malformed: the error names the file. Also if a
    /// required file is not configured, or the files do not fit each other: the error then names no
    /// file.
    pub fn load(config: &Config) -> Result<Self, TlsError> {
        let TlsConfig { clients, client_certificates, peers, metrics, metrics_client_certificates, min_version } =
            &config.tls;
        let of_clients = |protocols| match clients.is_empty() {
            true => Ok(None),
            false => ServerTls::load(clients.clone(), protocols, *client_certificates, *min_version).map(Some),
        };
        let dns = match config.dns.tls_listen {
            None => None,
            Some(_) => of_clients(Protocols::Dns)?,
        };
        let metrics = match config.metrics.listen.filter(|_| !metrics.is_empty()) {
            None => None,
            Some(_) => {
                Some(ServerTls::load(metrics.clone(), Protocols::Http, *metrics_client_certificates, *min_version)?)
            }
        };
        let peers = match peers.is_empty() {
            true => None,
            false => Some(PeerTls {
                server: ServerTls::load(peers.clone(), Protocols::Http, ClientCertificates::Require, *min_version)?,
                client: ClientTls::load(peers.clone(), *min_version)?,
            }),
        };
        let of_this_node = &config.tls.clients;
        let client_dialer = match &of_this_node.trusted_ca {
            None => Dialer::default(),
            Some(_) => Dialer::new(Some(ClientTls::load(of_this_node.clone(), *min_version)?)),
        };
        let clients = of_clients(Protocols::Http)?;
        Ok(Self { clients, peers, metrics, dns, client_dialer, renew_now: Arc::default() })
    }

    /// A dialer for the peer ports of other members.
    #[must_use]
    pub fn peer_dialer(&self) -> Dialer {
        Dialer::new(self.peers.as_ref().map(|peers| peers.client.clone()))
    }

    /// Reads the files of certificates again at intervals and on `renew_now`, until dropped.
    /// Returns at once if nothing uses TLS.
    pub(super) async fn keep_renewing(self, metrics: TlsMetrics) {
        let has_servers = self.clients.is_some() || self.peers.is_some() || self.metrics.is_some();
        if !has_servers && !self.client_dialer.has_tls() {
            return;
        }
        loop {
            metrics.show(&self);
            tokio::select! {
                () = tokio::time::sleep(RENEW_INTERVAL) => {}
                () = self.renew_now.notified() => {}
            }
            if let Some(tls) = &self.clients {
                metrics.count("client", tls.renew());
            }
            if let Some(tls) = &self.dns {
                metrics.count("dns", tls.renew());
            }
            if let Some(tls) = &self.metrics {
                metrics.count("metrics", tls.renew());
            }
            metrics.count("client", self.client_dialer.renew());
            if let Some(tls) = &self.peers {
                metrics.count("peer", tls.server.renew());
                metrics.count("peer", tls.client.renew());
            }
        }
    }
}

/// Metrics of certificates and handshakes.
#[derive(Clone, Debug)]
pub(super) struct TlsMetrics {
    expiry: IntGaugeVec,
    renewals: IntCounterVec,
    /// Handshakes that failed, by port.
    pub(super) failures: IntCounterVec,
}

impl TlsMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let expiry = Opts::new(
            "headwater_tls_certificate_expiry_seconds",
            "End of the validity of the certificate of a port, seconds since 1970.",
        );
        let renewals = Opts::new("headwater_tls_renewals_total", "New files of certificates, by port and result.");
        let failures = Opts::new("headwater_tls_handshake_failures_total", "Handshakes that failed, by port.");
        let this = Self {
            expiry: IntGaugeVec::new(expiry, &["port"])?,
            renewals: IntCounterVec::new(renewals, &["port", "result"])?,
            failures: IntCounterVec::new(failures, &["port"])?,
        };
        registry.register(Box::new(this.expiry.clone()))?;
        registry.register(Box::new(this.renewals.clone()))?;
        registry.register(Box::new(this.failures.clone()))?;
        Ok(this)
    }

    fn show(&self, tls: &InstanceTls) {
        let ports = [
            ("client", tls.clients.as_ref()),
            ("peer", tls.peers.as_ref().map(|peers| &peers.server)),
            ("metrics", tls.metrics.as_ref()),
        ];
        for (port, tls) in ports {
            if let Some(tls) = tls {
                self.expiry.with_label_values(&[port]).set(tls.not_after());
            }
        }
    }

    fn count(&self, port: &str, renewed: Result<bool, TlsError>) {
        match renewed {
            Ok(false) => {}
            Ok(true) => {
                tracing::info!(port, "new certificates are in use");
                self.renewals.with_label_values(&[port, "taken"]).inc();
            }
            Err(error) => {
                tracing::warn!(port, %error, "new certificates cannot be used: the former ones stay in use");
                self.renewals.with_label_values(&[port, "refused"]).inc();
            }
        }
    }
}
