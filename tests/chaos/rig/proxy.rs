//! A proxy in front of every peer port: for users without the right to create network namespaces,
//! and for faults that drop bytes of a stream.
//!
//! A proxy finds the connecting node by the kernel's table of sockets. So each direction between
//! two nodes is a link of its own. Bytes on a cut link are held back until the link is healed,
//! which looks like TCP on a network that drops packets.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use parking_lot::Mutex;
use rand::Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Delay of bytes that count as lost: the time until TCP would send them again.
const RETRANSMISSION: Duration = Duration::from_millis(200);
const CHUNK_BYTES: usize = 16 * 1024;

/// Damage to the bytes from one node to another. The default is none.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Link {
    pub cut: bool,
    pub loss_percent: u8,
    pub delay: Duration,
    /// Share of the bytes that are dropped from the middle of the stream, percent. They are lost
    /// for good.
    pub drop_percent: u8,
}

/// The proxies of a cluster.
pub(crate) struct Proxies {
    shared: Arc<Shared>,
}

struct Shared {
    processes: Mutex<Vec<Option<u32>>>,
    /// `links[from][to]`.
    links: Vec<Vec<watch::Sender<Link>>>,
}

impl Proxies {
    /// Starts a proxy for each node. `ports` has for each the port that the proxy listens on, and
    /// the node's peer port, to which it forwards.
    pub(crate) async fn start(ports: Vec<(u16, u16)>) -> anyhow::Result<Self> {
        let links = ports.iter().map(|_| ports.iter().map(|_| watch::channel(Link::default()).0).collect()).collect();
        let shared = Arc::new(Shared { processes: Mutex::new(vec![None; ports.len()]), links });
        for (node, (listen, target)) in ports.into_iter().enumerate() {
            let listener = TcpListener::bind(("127.0.0.1", listen)).await.with_context(|| format!("port {listen}"))?;
            tokio::spawn(accept(shared.clone(), listener, node, target));
        }
        Ok(Self { shared })
    }

    pub(crate) fn set_process(&self, node: usize, pid: u32) {
        self.shared.processes.lock()[node] = Some(pid);
    }

    pub(crate) fn set(&self, from: usize, to: usize, change: impl FnOnce(&mut Link)) {
        self.shared.links[from][to].send_modify(change);
    }

    pub(crate) fn heal(&self) {
        for link in self.shared.links.iter().flatten() {
            link.send_replace(Link::default());
        }
    }
}

async fn accept(shared: Arc<Shared>, listener: TcpListener, to: usize, target: u16) {
    // Runs until the program ends.
    while let Ok((inbound, _)) = listener.accept().await {
        let shared = shared.clone();
        tokio::spawn(async move {
            let Some(from) = shared.who(&inbound) else { return };
            let (mut there, mut back) = (shared.links[from][to].subscribe(), shared.links[to][from].subscribe());
            // A connection cannot be made while either direction is cut.
            while there.borrow().cut || back.borrow().cut {
                wait_whole(&mut there).await;
                wait_whole(&mut back).await;
            }
            let Ok(outbound) = TcpStream::connect(("127.0.0.1", target)).await else { return };
            // Otherwise small messages would wait for each other. An error shows again when the
            // socket is read.
            drop((inbound.set_nodelay(true), outbound.set_nodelay(true)));
            let (in_read, in_write) = inbound.into_split();
            let (out_read, out_write) = outbound.into_split();
            // Both sides are closed when either is done.
            tokio::select! {
                () = carry(in_read, out_write, there) => {}
                () = carry(out_read, in_write, back) => {}
            }
        });
    }
}

async fn wait_whole(link: &mut watch::Receiver<Link>) {
    let _gone = link.wait_for(|link| !link.cut).await.is_err();
}

async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut link: watch::Receiver<Link>) {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let Ok(length @ 1..) = from.read(&mut chunk).await else { return };
        let now = *link.borrow();
        if now.drop_percent > 0 && rand::rng().random_range(0..100) < now.drop_percent {
            continue;
        }
        let mut wait = now.delay;
        if now.loss_percent > 0 && rand::rng().random_range(0..100) < now.loss_percent {
            wait += RETRANSMISSION;
        }
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        wait_whole(&mut link).await;
        if to.write_all(&chunk[..length]).await.is_err() {
            return;
        }
    }
}

impl Shared {
    /// Number of the node at the other end of a connection, by its process; `None` for a process
    /// that is no node.
    fn who(&self, inbound: &TcpStream) -> Option<usize> {
        let port = inbound.peer_addr().ok()?.port();
        let table = std::fs::read_to_string("/proc/net/tcp").ok()?;
        let inode = table.lines().find_map(|line| socket_inode(line, port))?;
        let name = format!("socket:[{inode}]");
        let processes = self.processes.lock().clone();
        processes.iter().position(|pid| pid.is_some_and(|pid| holds(pid, &name)))
    }
}

/// The inode of the socket in this line of `/proc/net/tcp`, if its local port is `port`.
fn socket_inode(line: &str, port: u16) -> Option<u64> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let local = u16::from_str_radix(fields.get(1)?.rsplit_once(':')?.1, 16).ok()?;
    if local == port { fields.get(9)?.parse().ok().filter(|inode| *inode != 0) } else { None }
}

fn holds(pid: u32, name: &str) -> bool {
    let Ok(entries) = std::fs::read_dir(Path::new("/proc").join(pid.to_string()).join("fd")) else { return false };
    entries.flatten().any(|entry| std::fs::read_link(entry.path()).is_ok_and(|link| link.as_os_str() == name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_found_by_their_local_port() {
        let line = "   1: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 4711 1";
        assert_eq!(socket_inode(line, 8080), Some(4711));
        assert_eq!(socket_inode(line, 50000), None);
        assert_eq!(socket_inode("  sl  local_address rem_address   st", 8080), None);
    }

    #[tokio::test]
    async fn a_cut_link_holds_one_direction_back() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = server.local_addr().unwrap().port();
        let spare = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        let proxies = Proxies::start(vec![(0, 1), (spare, target)]).await.unwrap();
        // Both ends are this process: it plays node 1, which connects.
        proxies.set_process(0, std::process::id());
        let mut client = TcpStream::connect(("127.0.0.1", spare)).await.unwrap();
        let (mut served, _) = server.accept().await.unwrap();
        proxies.set(0, 1, |link| link.cut = true);
        client.write_all(b"there").await.unwrap();
        served.write_all(b"back").await.unwrap();
        let mut back = [0; 4];
        client.read_exact(&mut back).await.unwrap();
        assert_eq!(&back, b"back");
        let mut there = [0; 5];
        let held = tokio::time::timeout(Duration::from_millis(100), served.read_exact(&mut there)).await;
        assert!(held.is_err(), "nothing comes through a cut link");
        proxies.heal();
        served.read_exact(&mut there).await.unwrap();
        assert_eq!(&there, b"there");
    }

    #[tokio::test]
    async fn no_connection_is_made_while_either_direction_is_cut() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = server.local_addr().unwrap().port();
        let spare = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        let proxies = Proxies::start(vec![(0, 1), (spare, target)]).await.unwrap();
        proxies.set_process(0, std::process::id());
        for (from, to) in [(0, 1), (1, 0)] {
            proxies.set(from, to, |link| link.cut = true);
            let _client = TcpStream::connect(("127.0.0.1", spare)).await.unwrap();
            let made = tokio::time::timeout(Duration::from_millis(100), server.accept()).await;
            assert!(made.is_err(), "the link from {from} to {to} is cut");
            proxies.heal();
            server.accept().await.unwrap();
        }
    }

    #[tokio::test]
    async fn what_is_dropped_never_comes() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = server.local_addr().unwrap().port();
        let spare = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        let proxies = Proxies::start(vec![(0, 1), (spare, target)]).await.unwrap();
        proxies.set_process(0, std::process::id());
        let mut client = TcpStream::connect(("127.0.0.1", spare)).await.unwrap();
        let (mut served, _) = server.accept().await.unwrap();
        proxies.set(0, 1, |link| link.drop_percent = 100);
        client.write_all(b"gone").await.unwrap();
        served.write_all(b"back").await.unwrap();
        client.read_exact(&mut [0; 4]).await.unwrap();
        let mut here = [0; 4];
        let dropped = tokio::time::timeout(Duration::from_millis(100), served.read_exact(&mut here)).await;
        assert!(dropped.is_err(), "nothing comes through");
        proxies.heal();
        client.write_all(b"here").await.unwrap();
        served.read_exact(&mut here).await.unwrap();
        assert_eq!(&here, b"here", "the stream goes on with a hole in it");
    }
}
