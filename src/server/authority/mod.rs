//! Requests that name the server by a URL. etcdctl 3.4 sends `http://127.0.0.1:2379` as
//! `:authority` when an endpoint is a URL or comes from the list of members. Go's servers take
//! that; RFC 9113 (§8.3.1) does not allow it, and h2 refuses it.
//!
//! As the name of a Unix socket, etcdctl sends the socket's path, or `unix:///PATH`.
//!
//! [`RepairedStream`] stands between the socket and hyper and repairs such a value on the way in:
//! `frames` finds the block of headers, `hpack` the value in it. All other bytes pass unchanged and
//! in order; only an unfinished frame head or block of headers is held back. After the first
//! request with a legal name, reads go to the socket directly. For nearly all clients that is the
//! first request.
//!
//! Does not know the meaning of requests, and refuses none: bytes that cannot be repaired pass
//! unchanged, and h2 judges them.

mod frames;
mod hpack;
#[cfg(test)]
mod tests;

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use frames::Frames;

/// A connection that repairs requests while they are read. Writes pass unchanged.
#[derive(Debug)]
pub(super) struct RepairedStream<S> {
    socket: S,
    /// `None` once all further bytes pass unchanged.
    repair: Option<Box<Repair>>,
}

#[derive(Debug, Default)]
struct Repair {
    frames: Frames,
    /// Bytes that passed the repair and that the reader has not taken yet.
    ready: BytesMut,
}

impl<S> RepairedStream<S> {
    /// The connection of a client, with repair.
    pub(super) fn new(socket: S) -> Self {
        Self { socket, repair: Some(Box::default()) }
    }

    /// A connection that needs no repair.
    pub(super) fn as_it_is(socket: S) -> Self {
        Self { socket, repair: None }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for RepairedStream<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while let Some(repair) = &mut this.repair {
            if !repair.ready.is_empty() {
                let length = repair.ready.len().min(buf.remaining());
                buf.put_slice(&repair.ready[..length]);
                repair.ready.advance(length);
                return Poll::Ready(Ok(()));
            }
            if repair.frames.are_done() {
                this.repair = None;
                break;
            }
            if buf.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            // The bytes are read into the caller's buffer first, and taken back: `follow` decides
            // which of them may pass.
            let before = buf.filled().len();
            ready!(Pin::new(&mut this.socket).poll_read(cx, buf))?;
            let Repair { frames, ready } = &mut **repair;
            match &buf.filled()[before..] {
                [] => frames.stop(ready),
                input => frames.follow(input, ready),
            }
            buf.set_filled(before);
        }
        Pin::new(&mut this.socket).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for RepairedStream<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().socket).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().socket).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_shutdown(cx)
    }
}
