//! Prints a configuration as a TOML file: its settings with the values in effect.

use std::path::PathBuf;
use std::time::Duration;

use toml::{Table, Value};

use super::audit;
use super::{Config, ConsulConfig, LogFormat, TokenConfig};
use headwater_node::AuditLevel;
use headwater_tls::{ClientCertificates, MinVersion};

impl Config {
    /// TOML with every setting, except those that do not apply: a joining node has other settings
    /// than one that forms a cluster. Reading the text gives this configuration again.
    pub fn to_toml(&self) -> String {
        let mut file = Table::new();
        for (key, value) in self.values() {
            let (section, name) = key.split_once('.').unwrap_or(("", key));
            let table = match section {
                "" => &mut file,
                section => match file.entry(section).or_insert_with(|| Value::Table(Table::new())) {
                    Value::Table(table) => table,
                    _ => unreachable!("invariant: no setting has the name of a section"),
                },
            };
            table.insert(name.to_owned(), value);
        }
        toml::to_string(&file).expect("invariant: texts, numbers and tables are TOML")
    }

    fn values(&self) -> Vec<(&'static str, Value)> {
        let members = self.cluster.initial.iter().map(|member| {
            let fields = [("name", &member.name), ("peer", &member.peer), ("client", &member.client)];
            let texts = fields.map(|(name, text)| (name.to_owned(), Value::from(text.as_str())));
            Value::Table([("id".to_owned(), number(member.id.get()))].into_iter().chain(texts).collect())
        });
        let format = match self.log.format {
            LogFormat::Text => "text",
            LogFormat::Json => "json",
        };
        let log = self.audit.as_ref();
        let audit_level = match log.map_or(AuditLevel::Changes, |audit| audit.level) {
            AuditLevel::Denied => "denied",
            AuditLevel::Changes => "changes",
            AuditLevel::All => "all",
        };
        let min_version = match self.tls.min_version {
            MinVersion::V1_2 => "1.2",
            MinVersion::V1_3 => "1.3",
        };
        let mut values = vec![
            ("node.id", number(self.node.id.get())),
            ("node.name", self.node.name.as_str().into()),
            ("data-dir", self.data_dir.display().to_string().into()),
            ("listen-client", self.listen_client.to_string().into()),
            (
                "listen-client-unix",
                self.listen_client_unix
                    .as_ref()
                    .map_or("off".into(), |path| format!("unix://{}", path.display()).into()),
            ),
            ("listen-peer", self.listen_peer.to_string().into()),
            ("advertise-client", self.advertise_client.as_str().into()),
            ("advertise-peer", self.advertise_peer.as_str().into()),
            ("cluster.token", self.cluster.token.as_str().into()),
            ("cluster.initial", Value::Array(members.collect())),
            ("join", self.join.iter().flat_map(|join| &join.endpoints).map(String::as_str).collect::<Vec<_>>().into()),
            ("learner", self.join.as_ref().is_some_and(|join| join.learner).into()),
            ("join-token-file", path(self.join.as_ref().and_then(|join| join.token_file.as_ref()))),
            ("cluster.invited-only", self.invited_only.into()),
            ("strict-reconfig-check", self.strict_reconfig_check.into()),
            ("raft.heartbeat", duration(self.raft.heartbeat)),
            ("raft.election-min", duration(self.raft.election_min)),
            ("raft.election-max", duration(self.raft.election_max)),
            ("raft.snapshot-every", number(self.raft.snapshot_every)),
            ("raft.log-keep", number(self.raft.log_keep)),
            ("storage.block-cache", size(self.storage.block_cache_bytes)),
            ("storage.state-memtable", size(self.storage.state_memtable_bytes)),
            ("storage.log-memtable", size(self.storage.log_memtable_bytes)),
            ("runtime.worker-threads", number(self.runtime.worker_threads as u64)),
            ("watch.window-size", size(self.watch.window_bytes)),
            ("watch.window-commits", number(self.watch.window_commits)),
            ("watch.catch-up-size", size(self.watch.catch_up_bytes)),
            ("watch.catch-up-commits", number(self.watch.catch_up_commits)),
            ("watch.progress-interval", duration(self.watch.progress_interval)),
            ("watch.leader-loss-timeout", duration(self.watch.leader_loss_timeout)),
            ("quota.backend-bytes", self.quota.bytes_max.map_or("off".into(), size)),
            ("quota.auto-disarm", self.quota.auto_disarm.into()),
            ("history.retention", self.history.retention.map_or("off".into(), duration)),
            ("consul.datacenter", self.consul.datacenter.as_str().into()),
            ("consul.remote-datacenters", remote_datacenters(&self.consul).into()),
            ("acl.enabled", self.acl.enabled.into()),
            ("acl.default-policy", if self.acl.default_allow { "allow" } else { "deny" }.into()),
            ("acl.key-list-policy", self.acl.key_list_policy.into()),
            ("acl.initial-management-token", path(self.acl.initial_management.as_ref())),
            ("acl.dns-token", path(self.acl.dns_token.as_ref())),
            ("acl.bootstrap-reset", number(self.acl.bootstrap_reset)),
            ("dns.listen", self.dns.listen.map_or("off".into(), |address| address.to_string().into())),
            ("dns.tls-listen", self.dns.tls_listen.map_or("off".into(), |address| address.to_string().into())),
            ("dns.domain", self.dns.domain.as_str().into()),
            ("dns.ttl", duration(self.dns.ttl)),
            ("dns.udp-answers", number(self.dns.udp_answers)),
            ("dns.only-passing", self.dns.only_passing.into()),
            ("metrics.listen", self.metrics.listen.map_or("off".into(), |address| address.to_string().into())),
            ("metrics.on-client-port", self.metrics.on_client_port.into()),
            ("limits.request-timeout", duration(self.limits.request_timeout)),
            ("limits.connections-per-address", number(self.limits.connections_per_address.unwrap_or(0))),
            ("limits.requests-per-second", number(self.limits.requests_per_second.unwrap_or(0).into())),
            ("limits.burst", number(self.limits.burst.unwrap_or(0).into())),
            ("http.allowed-origins", list(&self.http.allowed_origins)),
            ("http.allowed-hosts", list(&self.http.allowed_hosts)),
            ("ui", self.ui.name().into()),
            ("max-request-bytes", size(self.limits.max_request_bytes)),
            ("max-txn-ops", number(self.limits.max_txn_ops)),
            ("tls.cert", path(self.tls.clients.cert.as_ref())),
            ("tls.key", path(self.tls.clients.key.as_ref())),
            ("tls.trusted-ca", path(self.tls.clients.trusted_ca.as_ref())),
            ("tls.crl", path(self.tls.clients.crl.as_ref())),
            ("tls.client-certs", client_certificates(self.tls.client_certificates)),
            ("tls.min-version", min_version.into()),
            ("peer-tls.cert", path(self.tls.peers.cert.as_ref())),
            ("peer-tls.key", path(self.tls.peers.key.as_ref())),
            ("peer-tls.trusted-ca", path(self.tls.peers.trusted_ca.as_ref())),
            ("peer-tls.crl", path(self.tls.peers.crl.as_ref())),
            ("metrics-tls.cert", path(self.tls.metrics.cert.as_ref())),
            ("metrics-tls.key", path(self.tls.metrics.key.as_ref())),
            ("metrics-tls.trusted-ca", path(self.tls.metrics.trusted_ca.as_ref())),
            ("metrics-tls.crl", path(self.tls.metrics.crl.as_ref())),
            ("metrics-tls.client-certs", client_certificates(self.tls.metrics_client_certificates)),
            ("insecure", self.insecure.into()),
            ("auth.token", token(&self.auth.token).into()),
            ("auth.token-ttl", duration(self.auth.token_ttl)),
            ("audit.file", log.map_or("off".into(), |audit| audit.file.display().to_string().into())),
            ("audit.rotate-size", size(log.map_or(audit::ROTATE_BYTES_DEFAULT, |audit| audit.rotate_bytes))),
            ("audit.keep", number(log.map_or(audit::KEEP_DEFAULT, |audit| u64::from(audit.keep)))),
            ("audit.level", audit_level.into()),
            ("log.level", self.log.level.as_str().into()),
            ("log.format", format.into()),
        ];
        let absent: &[&str] = if self.join.is_some() { &GIVEN_BY_THE_CLUSTER } else { &ONLY_TO_JOIN };
        values.retain(|(key, _)| !absent.contains(key));
        values
    }
}

/// Settings that a node that joins does not have.
const GIVEN_BY_THE_CLUSTER: [&str; 3] = ["node.id", "cluster.token", "cluster.initial"];
/// Settings that only a node that joins has.
const ONLY_TO_JOIN: [&str; 3] = ["join", "learner", "join-token-file"];

/// The value of `auth.token`, in the form in which the setting is written.
fn token(token: &TokenConfig) -> String {
    let TokenConfig::Signed(signed) = token else { return "simple".to_owned() };
    let private = signed.private_key.as_ref().map(|file| format!(",priv-key={}", file.display()));
    format!(
        "jwt,pub-key={}{},sign-method={},ttl={}",
        signed.public_key.display(),
        private.unwrap_or_default(),
        signed.method,
        humantime::format_duration(signed.ttl).to_string().replace(' ', "")
    )
}

/// The value of `consul.remote-datacenters`: `NAME=HOST:PORT+HOST:PORT,NAME=…`, or `none`.
fn remote_datacenters(consul: &ConsulConfig) -> String {
    if consul.remote_datacenters.is_empty() {
        return "none".to_owned();
    }
    let entries = consul.remote_datacenters.iter().map(|(name, endpoints)| format!("{name}={}", endpoints.join("+")));
    entries.collect::<Vec<_>>().join(",")
}

fn client_certificates(asked: ClientCertificates) -> Value {
    match asked {
        ClientCertificates::Off => "off".into(),
        ClientCertificates::Request => "request".into(),
        ClientCertificates::Require => "require".into(),
    }
}

fn path(path: Option<&PathBuf>) -> Value {
    path.map_or("off".into(), |path| path.display().to_string().into())
}

/// The texts as one value, `TEXT,TEXT`; `none` if the list is empty.
fn list(texts: &[String]) -> Value {
    if texts.is_empty() { "none".into() } else { texts.join(",").into() }
}

fn number(value: u64) -> Value {
    // TOML has no larger numbers, so none was ever read.
    Value::Integer(i64::try_from(value).unwrap_or(i64::MAX))
}

fn duration(value: Duration) -> Value {
    humantime::format_duration(value).to_string().into()
}

/// A size in the largest unit that leaves a whole number.
fn size(bytes: u64) -> Value {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let unit = units.into_iter().find(|(_, shift)| bytes > 0 && bytes.trailing_zeros() >= *shift);
    let (unit, shift) = unit.unwrap_or(("B", 0));
    format!("{}{unit}", bytes >> shift).into()
}

#[cfg(test)]
mod tests {
    use super::super::{SETTINGS, Sources};
    use super::*;

    #[test]
    fn what_is_shown_reads_back() {
        let list = r#"[{ id = 2, name = "b", peer = "http://h:1", client = "http://h:2" },
                       { id = 1, name = "a", peer = "http://g:1", client = "http://g:2" }]"#;
        let flags: &[&[(&'static str, &str)]] = &[
            &[],
            &[("quota.backend-bytes", "off"), ("quota.auto-disarm", "true"), ("storage.block-cache", "1000B")],
            &[("node.id", "2"), ("cluster.initial", list), ("raft.heartbeat", "55ms"), ("log.format", "json")],
            &[("dns.listen", "127.0.0.1:8600"), ("dns.ttl", "90s"), ("dns.domain", "svc.example.com")],
            &[("listen-client-unix", "unix:///run/headwater.sock"), ("strict-reconfig-check", "false")],
            &[("max-request-bytes", "1572864"), ("max-txn-ops", "10000")],
            &[("limits.requests-per-second", "10000000"), ("limits.burst", "10000000")],
            &[("history.retention", "90m"), ("ui", "write")],
            &[
                ("tls.cert", "c.pem"),
                ("tls.key", "k.pem"),
                ("tls.trusted-ca", "ca.pem"),
                ("tls.client-certs", "require"),
            ],
            &[("tls.cert", "c.pem"), ("tls.key", "k.pem"), ("tls.trusted-ca", "ca.pem"), ("tls.crl", "l.pem")],
            &[("peer-tls.cert", "c.pem"), ("peer-tls.key", "k.pem"), ("peer-tls.trusted-ca", "ca.pem")],
            &[("metrics.listen", "127.0.0.1:2381"), ("metrics.on-client-port", "false")],
            &[
                ("metrics.listen", "10.0.0.1:2381"),
                ("metrics-tls.cert", "c.pem"),
                ("metrics-tls.key", "k.pem"),
                ("metrics-tls.trusted-ca", "ca.pem"),
                ("metrics-tls.crl", "l.pem"),
                ("metrics-tls.client-certs", "request"),
            ],
            &[("listen-client", "10.0.0.1:2379"), ("insecure", "true"), ("tls.min-version", "1.2")],
            &[("history.retention", "off")],
            &[("auth.token", "jwt,pub-key=p.pem,priv-key=k.pem,sign-method=ES256,ttl=10m"), ("auth.token-ttl", "90s")],
            &[("auth.token", "jwt,pub-key=p.pem,sign-method=EdDSA")],
            &[
                ("dns.listen", "127.0.0.1:8600"),
                ("dns.tls-listen", "127.0.0.1:853"),
                ("tls.cert", "c.pem"),
                ("tls.key", "k.pem"),
                ("tls.trusted-ca", "ca.pem"),
                ("consul.remote-datacenters", "dc2=https://a:1+b:2"),
            ],
            &[("consul.datacenter", "dc3"), ("consul.remote-datacenters", "dc1=a:1+b:2,dc2=c:3")],
            &[("join", "10.0.0.1:2379,http://h:1"), ("learner", "true"), ("join-token-file", "token")],
            &[("cluster.invited-only", "false")],
            &[("audit.file", "/var/log/a"), ("audit.keep", "3"), ("audit.level", "all"), ("audit.rotate-size", "1MiB")],
            &[("watch.progress-interval", "90s"), ("quota.backend-bytes", "1025KiB"), ("log.level", "info,h2=off")],
        ];
        for flags in flags {
            let flags = flags.iter().map(|(key, text)| (*key, (*text).to_owned())).collect();
            let config = Config::load(&Sources { flags, ..Sources::default() }).unwrap();
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), config.to_toml()).unwrap();
            let read = Config::load(&Sources { file: Some(file.path().into()), ..Sources::default() });
            assert_eq!(read.unwrap(), config, "{}", config.to_toml());
        }
    }

    #[test]
    fn every_setting_is_shown() {
        for (flags, absent) in [(vec![], &ONLY_TO_JOIN[..]), (vec![("join", "h:1".to_owned())], &GIVEN_BY_THE_CLUSTER)]
        {
            let config = Config::load(&Sources { flags, ..Sources::default() }).unwrap();
            let shown: Vec<&str> = config.values().iter().map(|(key, _)| *key).collect();
            let wanted = SETTINGS.iter().map(|setting| setting.key).filter(|key| !absent.contains(key));
            assert_eq!(shown, wanted.collect::<Vec<_>>());
        }
        let text = Config::load(&Sources::default()).unwrap().to_toml();
        assert!(text.contains("heartbeat = \"100ms\"\n"), "{text}");
        assert!(!text.contains("join"), "a setting of nodes that join is shown: {text}");
    }
}
