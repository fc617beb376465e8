//! Listening sockets: TCP, and Unix sockets for clients on the same machine.
//!
//! Owns the file of a Unix socket. Invariant: an existing file is removed only if it is a socket
//! without a listener, and at the end only if it is still the file that this listener made.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};

use anyhow::Context as _;
use headwater_node::ClientKey;
use headwater_tls::ServerStream;
use socket2::{Domain, SockAddr, Type};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// Mode of the file of a Unix socket: only its owner and its group may connect. As long as neither
/// users nor access control lists are enabled, nothing else protects the data.
const MODE: u32 = 0o660;
/// Most connections that wait to be accepted, count (the system's own bound is smaller on most
/// machines).
const BACKLOG: i32 = 1024;

/// A listening socket.
#[derive(Debug)]
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix(UnixSocket),
}

impl Listener {
    /// Waits for the next connection.
    pub(super) async fn accept(&self) -> io::Result<Socket> {
        match self {
            Self::Tcp(listener) => listener.accept().await.map(|(socket, from)| Socket::Tcp(socket, from.ip())),
            Self::Unix(socket) => socket.listener.accept().await.map(|(socket, _)| Socket::Unix(socket)),
        }
    }
}

/// An accepted connection.
#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpStream, IpAddr),
    Unix(UnixStream),
    Tls(ServerStream),
}

impl Socket {
    /// IP address of the peer. `None` on a Unix socket, and after the TLS handshake.
    pub(super) fn peer_address(&self) -> Option<IpAddr> {
        match self {
            Self::Tcp(_, from) => Some(*from),
            Self::Unix(_) | Self::Tls(_) => None,
        }
    }

    /// The client by its IP address or, on a Unix socket, by its user. [`ClientKey::Unknown`] after
    /// the TLS handshake, and if the system does not know the user.
    pub(super) fn client(&self) -> ClientKey {
        match self {
            Self::Tcp(_, from) => ClientKey::of_address(*from),
            Self::Unix(stream) => stream.peer_cred().map_or(ClientKey::Unknown, |peer| ClientKey::User(peer.uid())),
            Self::Tls(_) => ClientKey::Unknown,
        }
    }
}

impl Socket {
    /// IP address and port of the peer. `None` as for [`peer_address`](Self::peer_address), and if
    /// the peer is gone.
    pub(super) fn peer_socket(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(socket, _) => socket.peer_addr().ok(),
            Self::Unix(_) | Self::Tls(_) => None,
        }
    }
}

/// A listening Unix socket. Dropping it removes its file, unless another file has taken its place.
#[derive(Debug)]
pub struct UnixSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode number of the file.
    identity: (u64, u64),
}

impl UnixSocket {
    /// Listens at `path`. The leftover socket of a killed process is replaced.
    ///
    /// # Errors
    ///
    /// If another process listens there, if the file is no socket, or if the system refuses.
    pub fn bind(path: &Path) -> anyhow::Result<Self> {
        clear(path)?;
        let shown = path.display();
        let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM, None).context("making a Unix socket")?;
        let address = SockAddr::unix(path).with_context(|| format!("{shown}"))?;
        socket.bind(&address).with_context(|| format!("{shown}"))?;
        // No client can connect before the socket listens, so none connects before the mode is set.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(MODE)).with_context(|| format!("{shown}"))?;
        let identity = identity(path).with_context(|| format!("{shown}"))?;
        socket.listen(BACKLOG).with_context(|| format!("{shown}"))?;
        socket.set_nonblocking(true).with_context(|| format!("{shown}"))?;
        let listener = UnixListener::from_std(socket.into()).with_context(|| format!("{shown}"))?;
        Ok(Self { listener, path: path.to_owned(), identity })
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|found| found == self.identity)
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            // Harmless: the next start replaces it.
            tracing::debug!(path = %self.path.display(), %error, "a socket file stays");
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let file = std::fs::symlink_metadata(path)?;
    Ok((file.dev(), file.ino()))
}

/// Removes the leftover socket of a killed process, if there is one at `path`. An error if the path
/// is in use or no socket.
fn clear(path: &Path) -> anyhow::Result<()> {
    let shown = path.display();
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("{shown}")),
        Ok(file) if !file.file_type().is_socket() => {
            anyhow::bail!("{shown} exists and is no socket; it is left as it is: remove it or configure another path")
        }
        Ok(_) => {}
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).with_context(|| format!("{shown}"))
        }
        Ok(_) => anyhow::bail!("{shown} is in use; stop what listens there or configure another path"),
        Err(error) => Err(error).with_context(|| format!("{shown}")),
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(socket, _) => Pin::new(socket).poll_read(cx, buf),
            Self::Unix(socket) => Pin::new(socket).poll_read(cx, buf),
            Self::Tls(socket) => Pin::new(socket).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(socket, _) => Pin::new(socket).poll_write(cx, buf),
            Self::Unix(socket) => Pin::new(socket).poll_write(cx, buf),
            Self::Tls(socket) => Pin::new(socket).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(socket, _) => Pin::new(socket).poll_write_vectored(cx, bufs),
            Self::Unix(socket) => Pin::new(socket).poll_write_vectored(cx, bufs),
            Self::Tls(socket) => Pin::new(socket).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(socket, _) => socket.is_write_vectored(),
            Self::Unix(socket) => socket.is_write_vectored(),
            Self::Tls(socket) => socket.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(socket, _) => Pin::new(socket).poll_flush(cx),
            Self::Unix(socket) => Pin::new(socket).poll_flush(cx),
            Self::Tls(socket) => Pin::new(socket).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(socket, _) => Pin::new(socket).poll_shutdown(cx),
            Self::Unix(socket) => Pin::new(socket).poll_shutdown(cx),
            Self::Tls(socket) => Pin::new(socket).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(path: &Path) -> String {
        UnixSocket::bind(path).unwrap_err().to_string()
    }

    #[tokio::test]
    async fn a_socket_that_was_left_is_replaced_and_a_living_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        // The leftover of a killed process: the file without a listener.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let socket = UnixSocket::bind(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, MODE);
        assert!(refusal(&path).contains("is in use"), "{}", refusal(&path));
        assert!(UnixStream::connect(&path).await.is_ok(), "the first one still listens");
        drop(socket);
        assert!(!path.exists(), "its file goes with it");
    }

    #[tokio::test]
    async fn what_is_no_socket_is_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notes");
        std::fs::write(&path, "mine").unwrap();
        assert!(refusal(&path).contains("is no socket"), "{}", refusal(&path));
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
        let missing = dir.path().join("missing/s");
        assert!(refusal(&missing).contains("missing/s"), "{}", refusal(&missing));
    }

    #[tokio::test]
    async fn another_file_of_the_name_outlives_the_socket() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let socket = UnixSocket::bind(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "mine").unwrap();
        drop(socket);
        assert!(path.exists());
    }
}
