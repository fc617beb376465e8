//! Ports of members: bound for as long as a cluster exists, also while its members do not run.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpSocket};

use crate::cluster::TIMEOUT;

/// Sockets bound to the client and peer address of one member. They do not listen: they keep other
/// processes from taking the ports while the member does not run.
pub struct ReservedPorts {
    client: TcpSocket,
    peer: TcpSocket,
}

impl ReservedPorts {
    /// Binds the two addresses.
    pub async fn bind(client: SocketAddr, peer: SocketAddr) -> Self {
        Self { client: keep(client).await, peer: keep(peer).await }
    }

    /// Binds two free ports of 127.0.0.1.
    pub async fn any() -> Self {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        Self::bind(any, any).await
    }

    /// Client and peer address.
    pub fn addresses(&self) -> (SocketAddr, SocketAddr) {
        (self.client.local_addr().unwrap(), self.peer.local_addr().unwrap())
    }
}

/// Repeats `try_bind` until it succeeds, and returns its result. Panics after [`TIMEOUT`].
async fn once_free<T>(address: SocketAddr, mut try_bind: impl AsyncFnMut() -> std::io::Result<T>) -> T {
    let give_up = Instant::now() + TIMEOUT;
    loop {
        match try_bind().await {
            Ok(bound) => return bound,
            Err(error) => {
                assert!(Instant::now() < give_up, "{address}: {error}");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
}

/// A listener at `address`, also while a [`ReservedPorts`] holds it. A bind that fails, for example
/// because an ended member still listens there, is repeated. Panics after [`TIMEOUT`].
pub async fn bind(address: SocketAddr) -> TcpListener {
    once_free(address, async || TcpListener::bind(address).await).await
}

async fn keep(address: SocketAddr) -> TcpSocket {
    once_free(address, async || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // Listeners do the same, so that one of them can bind the address as well.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        Ok(socket)
    })
    .await
}
