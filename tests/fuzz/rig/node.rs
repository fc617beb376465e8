//! One node's process: configuration, start, end, output.

use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::Context;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use super::ports;
use crate::target::Needs;

/// A node of the cluster under attack, and its process.
pub(crate) struct Node {
    pub(crate) id: u64,
    pub(crate) client: SocketAddr,
    pub(crate) peer: SocketAddr,
    pub(crate) dns: SocketAddr,
    pub(crate) dns_tls: SocketAddr,
    /// Folder of its certificates; exists only with TLS.
    pub(crate) certs: PathBuf,
    config: PathBuf,
    log: PathBuf,
    child: Mutex<Option<Child>>,
}

impl Node {
    pub(super) fn new(dir: &Path, index: usize, hosts: &[Ipv4Addr], needs: Needs) -> anyhow::Result<Self> {
        let folder = dir.join(format!("node{}", index + 1));
        std::fs::create_dir_all(&folder)?;
        let certs = folder.join("certs");
        if needs == Needs::Tls {
            copy_certificates(&dir.join("certs"), &certs, index)?;
        }
        let config = folder.join("config.toml");
        std::fs::write(&config, configuration(&folder, index, hosts, needs)?)?;
        let [client, peer, dns, dns_tls] = ports(hosts[index]);
        let log = folder.join("log");
        Ok(Self { id: index as u64 + 1, client, peer, dns, dns_tls, certs, config, log, child: Mutex::new(None) })
    }

    pub(super) fn start(&self, binary: &Path) -> anyhow::Result<()> {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(&self.log)?;
        // With `setpriv` the nodes end even if the fuzzer is killed. A process group of its own:
        // Ctrl-C ends the attack, not the nodes.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(binary).arg("serve").arg("--config").arg(&self.config);
        command.env("RUST_BACKTRACE", "1").stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        command.process_group(0).kill_on_drop(true);
        *self.child.lock() = Some(command.spawn().context("setpriv")?);
        Ok(())
    }

    /// The process id; `None` if the process does not run.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.lock().as_ref().and_then(Child::id)
    }

    /// The exit status of the process, in words; `None` while it runs, before its start, and after
    /// `kill`.
    pub(crate) fn ended(&self) -> Option<String> {
        match self.child.lock().as_mut()?.try_wait() {
            Ok(status) => status.map(|status| status.to_string()),
            Err(error) => Some(error.to_string()),
        }
    }

    pub(crate) fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let pid = self.pid().and_then(|id| Pid::from_raw(id as i32)).context("the process has ended")?;
        Ok(kill_process(pid, signal)?)
    }

    pub(super) async fn kill(&self) {
        let child = self.child.lock().take();
        if let Some(mut child) = child
            && let Err(error) = child.kill().await
        {
            eprintln!("node {}: {error}", self.id);
        }
    }

    /// Everything that the node has logged.
    pub(crate) fn log(&self) -> String {
        std::fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// The last `count` lines that the node has logged.
    pub(crate) fn last_lines(&self, count: usize) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(count)..].join("\n")
    }
}

/// Copies a node's certificates into a folder of its own, where a target may damage them.
fn copy_certificates(from: &Path, to: &Path, index: usize) -> anyhow::Result<()> {
    std::fs::create_dir_all(to)?;
    let own = from.join(format!("node{}", index + 1));
    for name in ["client.crt", "client.key", "peer.crt", "peer.key"] {
        std::fs::copy(own.join(name), to.join(name))?;
    }
    for name in ["client-ca.crt", "peer-ca.crt", "client.crl", "peer.crl"] {
        std::fs::copy(from.join(name), to.join(name))?;
    }
    Ok(())
}

/// Settings of every node. Caches are small and history is short, so that growth of memory and disk
/// comes from the attack. Election timeouts are long, so that a busy machine causes no election.
const SIZES: &str = r#"
[raft]
election-min = "2s"
election-max = "3s"
snapshot-every = 2000
log-keep = 1000
[storage]
block-cache = "16MiB"
state-memtable = "2MiB"
[watch]
window-size = "8MiB"
leader-loss-timeout = "6s"
[history]
retention = "2m"
[log]
level = "info"
"#;

fn configuration(folder: &Path, index: usize, hosts: &[Ipv4Addr], needs: Needs) -> anyhow::Result<String> {
    let [client, peer, dns, dns_tls] = ports(hosts[index]);
    let scheme = if needs == Needs::Tls { "https" } else { "http" };
    let mut text = String::new();
    writeln!(text, "data-dir = {:?}", folder.join("data"))?;
    writeln!(text, "listen-client = \"{client}\"\nlisten-peer = \"{peer}\"")?;
    writeln!(text, "[node]\nid = {0}\nname = \"node{0}\"", index + 1)?;
    writeln!(text, "[cluster]\ntoken = \"fuzz\"\ninitial = [")?;
    for (other, host) in hosts.iter().enumerate() {
        let [client, peer, ..] = ports(*host);
        writeln!(
            text,
            "  {{ id = {0}, name = \"node{0}\", peer = \"{scheme}://{peer}\", client = \"{scheme}://{client}\" }},",
            other + 1
        )?;
    }
    writeln!(text, "]\n[dns]\nlisten = \"{dns}\"")?;
    if needs == Needs::Tls {
        writeln!(text, "tls-listen = \"{dns_tls}\"")?;
        for (section, name) in [("tls", "client"), ("peer-tls", "peer")] {
            writeln!(text, "[{section}]")?;
            for (key, ending) in [("cert", ".crt"), ("key", ".key"), ("trusted-ca", "-ca.crt"), ("crl", ".crl")] {
                writeln!(text, "{key} = {:?}", folder.join("certs").join(format!("{name}{ending}")))?;
            }
            if section == "tls" {
                writeln!(text, "client-certs = \"require\"")?;
            }
        }
    }
    text.push_str(SIZES);
    Ok(text)
}
