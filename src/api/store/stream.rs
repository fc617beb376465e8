//! One stream of changes: a page of history is read and sent once the client has taken the page
//! before.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use tonic::Status;

use super::encode;
use super::errors::{stream_ended, stream_failed};
use headwater_api_shared::frames::Frame;
use headwater_api_shared::stream::{Outbox, StreamEnd, StreamService};
use headwater_node::{HistoryReader, Node, RequestContext};

pub(super) struct HistoryStream {
    pub(super) reader: HistoryReader,
    pub(super) context: RequestContext,
    /// The name of the datacenter, which nodes of the catalog carry.
    pub(super) datacenter: Arc<str>,
}

impl StreamService for HistoryStream {
    type Request = Infallible;

    fn status(end: StreamEnd) -> Status {
        stream_ended(end)
    }

    async fn advance(&mut self, out: &mut Outbox) -> Result<bool, StreamEnd> {
        let Some(page) = self.reader.next().await.map_err(stream_failed)? else { return Ok(false) };
        out.events_sent(page.commands.iter().map(|command| command.changes.len()).sum());
        out.push(Frame::new(&encode::history(page, &self.datacenter)));
        Ok(true)
    }

    fn rejudge(&mut self, node: &Node, _: &mut Outbox) -> Result<(), StreamEnd> {
        self.reader.rejudge(node, &self.context).map_err(StreamEnd::Failed)
    }

    async fn handle(&mut self, request: Infallible, _: &mut Outbox) -> Result<(), StreamEnd> {
        match request {}
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.reader.poll_ready(cx)
    }

    fn is_finished(&self) -> bool {
        self.reader.is_finished()
    }
}
