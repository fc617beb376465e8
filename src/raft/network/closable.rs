//! Connections to one address that can be closed at once, with all their HTTP/2 streams.
//!
//! After a loss of bytes, a connection may still answer probes while its streams wait for ever, or
//! misread each other's headers. Dropping such a connection is not enough: it lives as long as its
//! streams.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::Shared;
use hyper::rt::{Read, ReadBufCursor, Write};
use tokio::sync::oneshot;
use tonic::transport::{Channel, Endpoint};
use tower::ServiceExt;

use headwater_tls::Connector;

/// Resolves with `Ok` when the connections are to be closed.
type Closed = Shared<oneshot::Receiver<()>>;

/// Closes all connections made to one address. Dropping it closes nothing: calls may still be under
/// way.
pub(super) struct ConnectionCloser {
    close: oneshot::Sender<()>,
}

impl ConnectionCloser {
    /// A channel of `endpoint` by `connector`, and the closer of its connections.
    pub(super) fn of(endpoint: &Endpoint, connector: Connector) -> (Channel, Self) {
        let (close, closed) = oneshot::channel();
        let closed: Closed = closed.shared();
        let connector = connector.map_response(move |socket| ClosableIo::new(socket, closed.clone()));
        (endpoint.connect_with_connector_lazy(connector), Self { close })
    }

    /// Closes the connections. Calls that wait for them fail.
    pub(super) fn close(self) {
        // Without a connection there is no receiver.
        let _nothing_to_close = self.close.send(()).is_err();
    }
}

/// A connection that fails at its next read once its closer is used; a waiting read is woken.
struct ClosableIo<T> {
    socket: T,
    /// `None` once the closer was used or dropped.
    closed: Option<Closed>,
    is_closed: bool,
}

impl<T> ClosableIo<T> {
    fn new(socket: T, closed: Closed) -> Self {
        Self { socket, closed: Some(closed), is_closed: false }
    }

    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        if let Some(closed) = &mut self.closed
            && let Poll::Ready(verdict) = closed.poll_unpin(context)
        {
            // A dropped closer leaves its connections open.
            self.is_closed = verdict.is_ok();
            self.closed = None;
        }
        match self.is_closed {
            true => Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the connection was given up")),
            false => Ok(()),
        }
    }
}

impl<T: Read + Unpin> Read for ClosableIo<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.socket).poll_read(context, buffer)
    }
}

impl<T: Write + Unpin> Write for ClosableIo<T> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(context, buffers)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hyper_util::rt::TokioIo;
    use tokio::io::AsyncReadExt;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    async fn connected(closed: Closed) -> (TokioIo<ClosableIo<TokioIo<TcpStream>>>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (other, _) = listener.accept().await.unwrap();
        (TokioIo::new(ClosableIo::new(TokioIo::new(socket), closed)), other)
    }

    #[tokio::test]
    async fn a_used_closer_ends_a_read_that_waits() {
        let (close, closed) = oneshot::channel();
        let (mut reader, _other) = connected(closed.shared()).await;
        let reading = tokio::spawn(async move { reader.read_u8().await });
        ConnectionCloser { close }.close();
        assert_eq!(reading.await.unwrap().unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
    }

    #[tokio::test]
    async fn a_dropped_closer_leaves_its_connections_alone() {
        let (close, closed) = oneshot::channel();
        let (mut reader, other) = connected(closed.shared()).await;
        drop(ConnectionCloser { close });
        other.try_write(b"ab").unwrap();
        assert_eq!(reader.read_u8().await.unwrap(), b'a');
        assert_eq!(reader.read_u8().await.unwrap(), b'b', "also when it is known that the closer is gone");
        assert!(tokio::time::timeout(Duration::from_millis(50), reader.read_u8()).await.is_err());
    }
}
