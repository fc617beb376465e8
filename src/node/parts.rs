//! Answers in parts, produced by a separate thread.

use futures::stream::{self, Stream, StreamExt};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::NodeError;

/// A stream of the parts through the first for which `is_last` holds, or through the first error.
/// If the producer stops earlier, because the reader is stalled, the stream ends with
/// [`NodeError::Timeout`]: an incomplete answer must not look complete.
pub(super) fn to_the_last<T: Send + 'static>(
    items: mpsc::Receiver<Result<T, NodeError>>,
    mut is_last: impl FnMut(&T) -> bool + Send + 'static,
) -> impl Stream<Item = Result<T, NodeError>> + Send {
    let end = stream::iter([None]);
    ReceiverStream::new(items).map(Some).chain(end).scan(false, move |has_ended, item| {
        let item = match item {
            Some(item) => {
                *has_ended = item.as_ref().map_or(true, &mut is_last);
                Some(item)
            }
            None => (!*has_ended).then_some(Err(NodeError::Timeout)),
        };
        std::future::ready(item)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(items: Vec<Result<u8, NodeError>>) -> Vec<Result<u8, NodeError>> {
        let (sender, receiver) = mpsc::channel(8);
        for item in items {
            sender.send(item).await.unwrap();
        }
        drop(sender);
        to_the_last(receiver, |item| *item == 9).collect().await
    }

    #[tokio::test]
    async fn what_was_cut_off_does_not_look_whole() {
        assert_eq!(read(vec![Ok(1), Ok(9)]).await, [Ok(1), Ok(9)]);
        assert_eq!(read(vec![Ok(1)]).await, [Ok(1), Err(NodeError::Timeout)]);
        assert_eq!(read(vec![]).await, [Err(NodeError::Timeout)]);
        assert_eq!(read(vec![Ok(1), Err(NodeError::Stopped)]).await, [Ok(1), Err(NodeError::Stopped)]);
    }
}
