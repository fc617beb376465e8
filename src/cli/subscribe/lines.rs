//! The subscription as lines: each event is one, a batch several.

use std::io::Write;

use futures::StreamExt;
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, SerializeOptions};
use tonic::{Code, Status};

use super::SubscribeArgs;
use super::show::row;
use crate::ClientArgs;
use crate::connect::describe;
use crate::error::{CliError, Tried};
use crate::open_call::{Contact, RETRY_PAUSE};
use crate::output::WriteOut;
use headwater_client::{Endpoints, EventSource, Shown, is_final_for_streams};
use headwater_proto::pb::PUBLIC_DESCRIPTORS;
use headwater_proto::pb::subscribe::event::Payload;
use headwater_proto::pb::subscribe::{CatalogOp, Event, SubscribeRequest};

/// A subscription over all attempts: its position, and the output format.
struct Follower {
    /// The request of the next attempt. Its index is at first that of `--resume`, then that of the
    /// last printed event; 0 asks for the whole state.
    request: SubscribeRequest,
    /// Lineage and index of the last printed event outside of a snapshot, for the next request.
    /// `None` before the first one, or if the server names no lineage.
    shown: Option<Shown>,
    /// Whether a snapshot is being received. Its printed part does not count as progress.
    in_snapshot: bool,
    contact: Contact,
    /// Descriptor of an event for JSON; `None` for text.
    json: Option<MessageDescriptor>,
    /// Whether to end after the first state.
    once: bool,
}

/// The reason for which an attempt has ended.
enum Ended {
    /// The state was printed, and `--once` is given.
    Done,
    /// The stream could not be opened or has ended, with this status.
    Broken(Status),
    /// An event could not be printed.
    Final(CliError),
}

impl From<CliError> for Ended {
    fn from(error: CliError) -> Self {
        Self::Final(error)
    }
}

pub(super) async fn run(
    request: SubscribeRequest,
    endpoints: &Endpoints,
    args: &SubscribeArgs,
    client: &ClientArgs,
) -> Result<(), CliError> {
    let json = match client.write_out {
        WriteOut::Json => {
            let pool = DescriptorPool::decode(PUBLIC_DESCRIPTORS).map_err(CliError::other)?;
            pool.get_message_by_name("subscribe.Event")
        }
        WriteOut::Simple | WriteOut::Table => None,
    };
    let mut follower =
        Follower { request, shown: None, in_snapshot: false, contact: Contact::default(), json, once: args.once };
    loop {
        let mut tried = Vec::new();
        for _ in endpoints.names() {
            let number = endpoints.preferred();
            match follower.follow(endpoints, &mut std::io::stdout()).await {
                Ended::Done => return Ok(()),
                Ended::Final(error) => return Err(error),
                Ended::Broken(status) => {
                    follower.broken(&status)?;
                    tried.push(Tried { endpoint: endpoints.name(number).to_owned(), reason: describe(&status) });
                }
            }
            endpoints.fail_over(number);
        }
        if !follower.contact.was_made() {
            return Err(CliError::Unreachable(tried));
        }
        follower.contact.failed(&tried);
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

impl Follower {
    /// Handles a broken attempt: an error if every attempt would be refused. Resets the index if
    /// the next attempt needs the whole state.
    fn broken(&mut self, status: &Status) -> Result<(), CliError> {
        match status.code() {
            code if is_final_for_streams(code) => Err(CliError::Finding(status.message().to_owned())),
            Code::Aborted | Code::OutOfRange => {
                self.request.index = 0;
                Ok(())
            }
            _ => {
                if self.in_snapshot {
                    self.request.index = 0;
                }
                Ok(())
            }
        }
    }

    async fn follow(&mut self, source: &impl EventSource, out: &mut impl Write) -> Ended {
        match self.print_all(source, out).await {
            Ok(()) => Ended::Done,
            Err(ended) => ended,
        }
    }

    async fn print_all(&mut self, source: &impl EventSource, out: &mut impl Write) -> Result<(), Ended> {
        self.in_snapshot = self.request.index == 0;
        let opened = source.subscribe(self.request.clone(), self.shown.clone()).await.map_err(Ended::Broken)?;
        self.contact.made();
        let mut events = opened.events;
        while let Some(event) = events.next().await {
            let event = event.map_err(Ended::Broken)?;
            match &event.payload {
                Some(Payload::NewSnapshotToFollow(_)) => self.in_snapshot = true,
                Some(Payload::EndOfSnapshot(_)) => self.in_snapshot = false,
                Some(_) | None => {}
            }
            self.print(out, &event)?;
            if !self.in_snapshot {
                // Set only now: until an event has come, the server may be of another lineage than
                // the index of the request.
                self.request.index = event.index;
                self.shown = opened.epoch.clone().map(|epoch| Shown { epoch, index: event.index });
            }
            if self.once && !self.in_snapshot {
                return Ok(());
            }
        }
        Err(Ended::Broken(Status::unavailable("the stream ended")))
    }

    fn print(&self, out: &mut impl Write, event: &Event) -> Result<(), CliError> {
        match &self.json {
            Some(descriptor) => writeln!(out, "{}", json(descriptor, event)?)?,
            None => print_lines(out, event)?,
        }
        Ok(out.flush()?)
    }
}

/// An event in protobuf's JSON, with numbers as numbers.
fn json(descriptor: &MessageDescriptor, event: &Event) -> Result<String, CliError> {
    let message = DynamicMessage::decode(descriptor.clone(), event.encode_to_vec().as_slice());
    let message = message.map_err(CliError::other)?;
    let mut out = serde_json::Serializer::new(Vec::new());
    let options = SerializeOptions::new().stringify_64_bit_integers(false);
    message.serialize_with_options(&mut out, &options).map_err(CliError::other)?;
    String::from_utf8(out.into_inner()).map_err(CliError::other)
}

fn print_lines(out: &mut impl Write, event: &Event) -> Result<(), CliError> {
    let op = |op: i32| if op == CatalogOp::Register as i32 { "register" } else { "deregister" };
    match &event.payload {
        Some(Payload::EndOfSnapshot(_)) => writeln!(out, "{}\tend of snapshot", event.index)?,
        Some(Payload::NewSnapshotToFollow(_)) => writeln!(out, "-\tnew snapshot")?,
        Some(Payload::EventBatch(batch)) => {
            for event in &batch.events {
                print_lines(out, event)?;
            }
        }
        Some(Payload::ServiceHealth(update)) => {
            let row = row(&update.check_service_node.clone().unwrap_or_default());
            // A deregistration has only the names of node and service, and the id.
            let columns = if update.op == CatalogOp::Register as i32 { row.len() } else { 3 };
            writeln!(out, "{}\t{}\t{}", event.index, op(update.op), row[..columns].join("\t").trim_end())?;
        }
        Some(Payload::Service(update)) => writeln!(out, "{}\t{}\t{}", event.index, op(update.op), update.name)?,
        None => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    use futures::future::BoxFuture;
    use parking_lot::Mutex;

    use headwater_client::Opened;
    use headwater_proto::pb::subscribe::{EventBatch, ServiceListUpdate};

    /// Opens one stream after the other, each of a lineage, and records the requests.
    struct Server {
        streams: Mutex<VecDeque<(&'static str, Vec<Event>)>>,
        asked: Mutex<Vec<(u64, Option<Shown>)>>,
    }

    impl EventSource for Server {
        fn subscribe(
            &self,
            request: SubscribeRequest,
            shown: Option<Shown>,
        ) -> BoxFuture<'static, Result<Opened, Status>> {
            self.asked.lock().push((request.index, shown));
            let (epoch, events) = self.streams.lock().pop_front().expect("a stream for each attempt");
            let events = futures::stream::iter(events.into_iter().map(Ok)).boxed();
            Box::pin(async move { Ok(Opened { epoch: Some(epoch.to_owned()), events }) })
        }

        fn fail_over(&self) {}

        fn endpoints(&self) -> usize {
            1
        }
    }

    fn event(index: u64, payload: Payload) -> Event {
        Event { index, payload: Some(payload) }
    }

    fn named(op: CatalogOp, name: &str) -> Payload {
        Payload::Service(ServiceListUpdate { op: op.into(), name: name.to_owned(), ..Default::default() })
    }

    #[test]
    fn an_event_is_a_line_and_a_batch_several() {
        let batch = EventBatch {
            events: vec![event(7, named(CatalogOp::Register, "a")), event(7, named(CatalogOp::Deregister, "b"))],
        };
        for (payload, wanted) in [
            (Payload::EndOfSnapshot(true), "7\tend of snapshot\n"),
            (Payload::NewSnapshotToFollow(true), "-\tnew snapshot\n"),
            (Payload::EventBatch(batch), "7\tregister\ta\n7\tderegister\tb\n"),
        ] {
            let mut out = Vec::new();
            print_lines(&mut out, &event(7, payload)).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), wanted);
        }
    }

    #[tokio::test]
    async fn an_index_goes_with_its_own_lineage() {
        let whole = |index| vec![event(index, Payload::EndOfSnapshot(true))];
        let streams = [
            ("old", whole(10)),
            // Breaks before it is known whether the stream resumes.
            ("new", vec![]),
            ("new", vec![event(0, Payload::NewSnapshotToFollow(true))]),
            ("new", whole(7)),
            ("new", vec![event(8, named(CatalogOp::Register, "a"))]),
            ("new", vec![]),
        ];
        let server = Server { streams: Mutex::new(streams.into()), asked: Mutex::default() };
        let mut follower = Follower {
            request: SubscribeRequest::default(),
            shown: None,
            in_snapshot: false,
            contact: Contact::default(),
            json: None,
            once: false,
        };
        for _ in 0..6 {
            let Ended::Broken(status) = follower.follow(&server, &mut Vec::new()).await else { panic!("it breaks") };
            follower.broken(&status).unwrap();
        }
        let asked = server.asked.into_inner();
        let shown = |epoch: &str, index| Some(Shown { epoch: epoch.to_owned(), index });
        let wanted = [
            (0, None),
            (10, shown("old", 10)),
            (10, shown("old", 10)),
            // It asks for everything, and for nothing older than the printed state.
            (0, shown("old", 10)),
            (7, shown("new", 7)),
            (8, shown("new", 8)),
        ];
        assert_eq!(asked, wanted);
    }

    #[test]
    fn json_is_protobufs_with_numbers() {
        let pool = DescriptorPool::decode(PUBLIC_DESCRIPTORS).unwrap();
        let descriptor = pool.get_message_by_name("subscribe.Event").unwrap();
        let text = json(&descriptor, &event(7, named(CatalogOp::Deregister, "b"))).unwrap();
        assert_eq!(text, r#"{"Index":7,"Service":{"Op":"Deregister","Name":"b"}}"#);
    }
}
