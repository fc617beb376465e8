//! Readers that take no data, and connections on which the client sends nothing. The node's memory
//! stays bounded, other clients are served, and such connections and streams are ended.

use std::future::poll_fn;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use h2::client::SendRequest;
use headwater::node::Limit;
use headwater::pb::etcdserverpb as pb;
use headwater::types::limits::{ANSWER_CHUNK_BYTES_MAX, HEADER_LIST_BYTES_MAX, UNREAD_ANSWERS_BYTES_MAX};
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::Code;

use crate::cluster::{Cluster, Settings, get, put, wait_until, within};

/// Size of the range that slow readers request.
const RANGE_BYTES: usize = 24 << 20;
const READERS: usize = 20;

/// An HTTP/2 connection to the first member with this flow-control window for each stream, bytes.
async fn connect(cluster: &Cluster, window: u32) -> SendRequest<Bytes> {
    let address = cluster.client_url(0).trim_start_matches("http://").to_owned();
    let socket = TcpStream::connect(address).await.unwrap();
    let mut builder = h2::client::Builder::new();
    let (requests, connection) = builder.initial_window_size(window).handshake(socket).await.unwrap();
    tokio::spawn(connection);
    requests
}

/// Sends a unary gRPC request; `method` is `PACKAGE.SERVICE/METHOD`. The caller may leave the
/// answer unread.
async fn call(requests: &mut SendRequest<Bytes>, method: &str, message: &impl Message) -> h2::client::ResponseFuture {
    poll_fn(|cx| requests.poll_ready(cx)).await.unwrap();
    let request = http::Request::post(format!("http://member/{method}"));
    let request = request.header("content-type", "application/grpc").header("te", "trailers").body(()).unwrap();
    let (answer, mut body) = requests.send_request(request, false).unwrap();
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(message.encoded_len() as u32);
    message.encode(&mut frame).unwrap();
    body.send_data(frame.freeze(), true).unwrap();
    answer
}

fn all() -> pb::RangeRequest {
    pb::RangeRequest { range_end: "l".into(), ..get("k") }
}

async fn filled() -> Cluster {
    let cluster = Cluster::start(Settings::alone()).await;
    for number in 0..RANGE_BYTES >> 20 {
        cluster.kv(0).put(put(format!("k{number}"), "v".repeat(1 << 20))).await.unwrap();
    }
    cluster
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_that_take_nothing_hold_a_bounded_amount_and_are_cut() {
    let cluster = filled().await;
    let (answers, limit_counters) = (cluster.node(0).answers().clone(), cluster.node(0).limit_counters().clone());
    let mut requests = connect(&cluster, 0).await;
    let mut streams = Vec::new();
    for _ in 0..READERS {
        streams.push(call(&mut requests, "etcdserverpb.KV/Range", &all()).await);
    }
    let (mut open, mut refused) = (Vec::new(), 0);
    for stream in streams {
        let answer = within("an answer or a refusal", stream).await.unwrap();
        match answer.headers().get("grpc-status") {
            None => open.push(answer),
            Some(status) => {
                let text = answer.headers()["grpc-message"].to_str().unwrap();
                assert_eq!(status.to_str().unwrap(), (Code::ResourceExhausted as i32).to_string());
                assert!(text.contains("read"), "{text}");
                refused += 1;
            }
        }
        // The bound is checked before a read, so that on each thread one more answer may come on
        // top.
        let most = UNREAD_ANSWERS_BYTES_MAX + 2 * RANGE_BYTES;
        assert!(answers.used() <= most, "{} of {}", answers.used(), READERS * RANGE_BYTES);
    }
    assert!(!open.is_empty() && refused > 0, "{} answers, {refused} refusals", open.len());
    // Small requests have their reserve.
    cluster.kv(0).put(put("small", "v")).await.unwrap();
    cluster.kv(0).range(get("small")).await.unwrap();
    assert_eq!(limit_counters.counter(Limit::UnreadAnswers).get(), refused);

    wait_until("stalled streams are cut", async || answers.used() == 0).await;
    assert_eq!(limit_counters.counter(Limit::StalledReader).get(), open.len() as u64);
    for answer in open {
        let mut body = answer.into_body();
        let error = loop {
            if let Err(error) = within("the reset", body.data()).await.unwrap() {
                break error;
            }
        };
        assert!(error.is_reset(), "{error:?}");
    }
    // The connection goes on, and so do large answers.
    within("an answer", call(&mut requests, "etcdserverpb.KV/Range", &get("small")).await).await.unwrap();
    let mut large = cluster.kv(0).max_decoding_message_size(usize::MAX);
    assert_eq!(within("a range", large.range(all())).await.unwrap().into_inner().kvs.len(), RANGE_BYTES >> 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_changes_that_is_not_read_holds_a_bounded_amount() {
    let cluster = filled().await;
    let answers = cluster.node(0).answers().clone();
    // The server may begin an answer, and not finish it.
    let mut requests = connect(&cluster, 1).await;
    let create =
        pb::WatchCreateRequest { key: "k".into(), range_end: "l".into(), start_revision: 1, ..Default::default() };
    let create = pb::WatchRequest { request_union: Some(pb::watch_request::RequestUnion::CreateRequest(create)) };
    let mut open = Vec::new();
    for _ in 0..READERS {
        open.push(within("a watch", call(&mut requests, "etcdserverpb.Watch/Watch", &create).await).await.unwrap());
    }
    // Every stream holds an event that its reader does not take. One event is larger than a chunk,
    // and a stream holds at most the data of one answer.
    wait_until("every stream is charged", async || answers.used() >= READERS << 20).await;
    let each = (2 << 20) + ANSWER_CHUNK_BYTES_MAX;
    assert!(answers.used() <= READERS * each, "{}", answers.used());
    cluster.kv(0).range(get("k1")).await.unwrap();
}

async fn silent(address: &str, says: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(says).await.unwrap();
    stream
}

/// Sends `says` on a new connection; returns everything that the server sends until the connection
/// is closed or reset.
async fn answer_to(address: &str, says: &[u8]) -> String {
    let mut stream = silent(address, says).await;
    let mut answer = Vec::new();
    let _ended = within("the end of an answer", stream.read_to_end(&mut answer)).await;
    String::from_utf8(answer).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_without_a_request_end_and_idle_ones_that_had_one_stay() {
    let cluster = Cluster::start(Settings::alone()).await;
    let client = cluster.client_url(0).trim_start_matches("http://").to_owned();
    let peer = cluster.peer_url(0).trim_start_matches("http://").to_owned();
    let mut idle = silent(&client, b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let mut answer = [0; 4096];
    assert!(within("the answer", idle.read(&mut answer)).await.unwrap() > 0);
    let settings = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let says: [&[u8]; 4] = [b"", b"GET / HTT", b"GET /version HTTP/1.1\r\nHost: x\r\nX-Half: ", settings];
    let mut streams = Vec::new();
    for address in [&client, &peer] {
        for says in says {
            streams.push(silent(address, says).await);
        }
    }
    for mut stream in streams {
        let mut rest = Vec::new();
        // Closed or reset: both are an end.
        let _ended = within("the end of a silent connection", stream.read_to_end(&mut rest)).await;
    }
    // On the peer port, the probes of HTTP/2 end the last one earlier.
    let cut = cluster.node(0).limit_counters().counter(Limit::FirstRequest).get();
    assert!((7..=8).contains(&cut), "{cut}");
    idle.write_all(b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    assert!(within("another answer", idle.read(&mut answer)).await.unwrap() > 0, "an idle one stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_of_http_1_are_bounded_and_bodies_are_not_by_the_same() {
    let cluster = Cluster::start(Settings::alone()).await;
    let address = cluster.client_url(0).trim_start_matches("http://").to_owned();
    let peer = cluster.peer_url(0).trim_start_matches("http://").to_owned();
    let head_of = |bytes: usize| {
        let (begin, end) = ("GET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Long: ", "\r\n\r\n");
        format!("{begin}{}{end}", "x".repeat(bytes - begin.len() - end.len()))
    };
    let most = 4 * HEADER_LIST_BYTES_MAX as usize;
    for (address, bytes, is_refused) in
        [(&address, most, false), (&address, most + 1, true), (&peer, most, false), (&peer, most + 1, true)]
    {
        let answer = answer_to(address, head_of(bytes).as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 "), "{bytes} at {address}: {answer}");
        assert_eq!(answer.starts_with("HTTP/1.1 431"), is_refused, "{bytes} at {address}: {answer}");
    }
    // A body passes through the buffer in parts.
    let body = "v".repeat(5 * most);
    let head = "PUT /v1/kv/long HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length:";
    let answer = answer_to(&address, format!("{head} {}\r\n\r\n{body}", body.len()).as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let read = b"GET /v1/kv/long?raw HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let answer = answer_to(&address, read).await;
    assert!(answer.bytes().filter(|byte| *byte == b'v').count() >= body.len(), "the value comes whole");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_are_never_sent_to_their_end_are_refused_on_every_face() {
    let settings = Settings { request_timeout: Duration::from_secs(2), ..Settings::alone() };
    let cluster = Cluster::start(settings).await;
    let address = cluster.client_url(0).trim_start_matches("http://").to_owned();
    for (line, status) in [("PUT /v1/kv/k", "408"), ("POST /v3/kv/put", "504")] {
        let head = format!("{line} HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{{");
        let mut stream = silent(&address, head.as_bytes()).await;
        let mut answer = String::new();
        within("a refusal", stream.read_to_string(&mut answer)).await.unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{line}: {answer}");
    }
    let mut requests = connect(&cluster, 65_535).await;
    poll_fn(|cx| requests.poll_ready(cx)).await.unwrap();
    let request = http::Request::post("http://member/etcdserverpb.KV/Put").header("content-type", "application/grpc");
    let (answer, mut body) = requests.send_request(request.body(()).unwrap(), false).unwrap();
    body.send_data(Bytes::from_static(&[0, 0, 0, 0, 9]), false).unwrap();
    let answer = within("a refusal", answer).await.unwrap();
    assert_eq!(answer.headers()["grpc-status"], (Code::DeadlineExceeded as i32).to_string().as_str());
    let limit_counters = cluster.node(0).limit_counters();
    assert!(limit_counters.counter(Limit::RequestBody).get() >= 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_grpc_that_was_cut_before_its_first_request_connects_again_by_itself() {
    let cluster = Cluster::start(Settings { members: 1, ..Settings::default() }).await;
    let endpoint = tonic::transport::Endpoint::from_shared(cluster.client_url(0)).unwrap();
    let mut kv = pb::kv_client::KvClient::new(endpoint.connect().await.unwrap());
    let cut = cluster.node(0).limit_counters().counter(Limit::FirstRequest).clone();
    wait_until("the connection without a request is cut", async || cut.get() > 0).await;
    // A request that leaves before the client sees the cut fails.
    wait_until("a request opens another connection", async || kv.put(put("k", "v")).await.is_ok()).await;
}
