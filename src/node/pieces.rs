//! Answers in pieces, produced by a separate thread.

use futures::stream::{self, Stream, StreamExt};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::NodeError;

/// A stream of the pieces through the first for which `is_last` holds. If the producer stops
/// earlier, because the reader is stalled, the stream ends with [`NodeError::Timeout`]: an
/// incomplete answer must not look complete.
pub(super) fn to_the_last<T: Send + 'static>(
    pieces: mpsc::Receiver<Result<T, NodeError>>,
    mut is_last: impl FnMut(&T) -> bool + Send + 'static,
) -> impl Stream<Item = Result<T, NodeError>> + Send {
    let end = stream::iter([None]);
    ReceiverStream::new(pieces).map(Some).chain(end).scan(false, move |has_ended, piece| {
        let piece = match piece {
            Some(piece) => {
                *has_ended = piece.as_ref().map_or(true, &mut is_last);
                Some(piece)
            }
            None => (!*has_ended).then_some(Err(NodeError::Timeout)),
        };
        std::future::ready(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(pieces: Vec<Result<u8, NodeError>>) -> Vec<Result<u8, NodeError>> {
        let (sender, receiver) = mpsc::channel(8);
        for piece in pieces {
            sender.send(piece).await.unwrap();
        }
        drop(sender);
        to_the_last(receiver, |piece| *piece == 9).collect().await
    }

    #[tokio::test]
    async fn what_was_cut_off_does_not_look_whole() {
        assert_eq!(read(vec![Ok(1), Ok(9)]).await, [Ok(1), Ok(9)]);
        assert_eq!(read(vec![Ok(1)]).await, [Ok(1), Err(NodeError::Timeout)]);
        assert_eq!(read(vec![]).await, [Err(NodeError::Timeout)]);
        assert_eq!(read(vec![Ok(1), Err(NodeError::Stopped)]).await, [Ok(1), Err(NodeError::Stopped)]);
    }
}
