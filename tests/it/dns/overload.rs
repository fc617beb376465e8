//! Overload, malformed packets, and shutdown.

use std::sync::Arc;
use std::time::{Duration, Instant};

use headwater::types::catalog::CheckStatus;
use headwater::types::limits::{DNS_CONNECTIONS_MAX, DNS_REQUEST_BYTES_MAX};
use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::RecordType;

use super::client::{Connection, answer_lines, instance, question, register, udp, udp_packet};
use crate::cluster::{Cluster, Settings, wait_until, within};
use crate::gateway::client::metric;

async fn one() -> Cluster {
    let cluster = Cluster::start(Settings::alone()).await;
    register(&cluster, 0, instance("web", 1, CheckStatus::Passing)).await;
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_question_harms_nobody() {
    let cluster = one().await;
    let server = cluster.dns_address(0);
    let good = question("web.service.consul.", RecordType::A, None);
    let mut cut = good.to_vec().unwrap();
    cut.pop();
    assert_eq!(answer_lines(&Message::from_vec(&udp_packet(server, &cut).await).unwrap()), ["FormErr"]);
    // Longer than any question: the system truncates it.
    let long = [good.to_vec().unwrap(), vec![0; 60_000]].concat();
    let answer = Message::from_vec(&udp_packet(server, &long).await).unwrap();
    assert_eq!(answer.metadata.id, 4711);
    // Noise and an answer do not keep the server from answering the question behind them.
    let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.connect(server).await.unwrap();
    for noise in [&b""[..], b"x", b"GET / HTTP/1.1\r\n\r\n"] {
        socket.send(noise).await.unwrap();
    }
    let mut answer_to_an_answer = good.clone();
    answer_to_an_answer.metadata.message_type = hickory_proto::op::MessageType::Response;
    socket.send(&answer_to_an_answer.to_vec().unwrap()).await.unwrap();
    socket.send(&good.to_vec().unwrap()).await.unwrap();
    let mut packet = vec![0; 4096];
    loop {
        let length = within("an answer", socket.recv(&mut packet)).await.unwrap();
        let answer = Message::from_vec(&packet[..length]).unwrap();
        if answer.metadata.response_code == ResponseCode::NoError {
            assert_eq!(answer_lines(&answer), ["NoError", "10.0.0.1"]);
            break;
        }
        // A line of HTTP can be parsed as a DNS header.
        assert_eq!(answer.metadata.id, u16::from_be_bytes(*b"GE"), "{answer}");
    }

    let mut connection = Connection::open(server).await;
    connection.send(&cut).await;
    assert_eq!(answer_lines(&connection.receive().await.unwrap()), ["FormErr"], "the next question may be a good one");
    assert_eq!(answer_lines(&connection.ask(&good).await), ["NoError", "10.0.0.1"]);
    connection.send(&long[..=DNS_REQUEST_BYTES_MAX]).await;
    assert_eq!(answer_lines(&connection.receive().await.unwrap()), ["FormErr"]);
    assert!(connection.receive().await.is_none(), "what follows cannot be found any more");
    let mut connection = Connection::open(server).await;
    connection.send(b"x").await;
    assert!(connection.receive().await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn one_connection_carries_many_questions() {
    let cluster = one().await;
    let good = question("web.service.consul.", RecordType::A, None);
    let mut connection = Connection::open(cluster.dns_address(0)).await;
    // Pipelined: answers come in the order of the questions.
    for id in 0..50 {
        let mut question = good.clone();
        question.metadata.id = id;
        connection.send(&question.to_vec().unwrap()).await;
    }
    for id in 0..50 {
        let answer = connection.receive().await.unwrap();
        assert_eq!((answer.metadata.id, answer.answers.len()), (id, 1));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_connections_are_refused_and_udp_goes_on() {
    let cluster = one().await;
    let server = cluster.dns_address(0);
    let good = question("web.service.consul.", RecordType::A, None);
    let mut open = Vec::new();
    let mut asked = Instant::now();
    for _ in 0..DNS_CONNECTIONS_MAX {
        let mut connection = Connection::open(server).await;
        assert_eq!(answer_lines(&connection.ask(&good).await)[0], "NoError");
        open.push(connection);
        // None of them may be idle for so long that the server closes it.
        if asked.elapsed() > Duration::from_secs(1) {
            for connection in &mut open {
                connection.ask(&good).await;
            }
            asked = Instant::now();
        }
    }
    let mut refused = Connection::open(server).await;
    assert!(refused.receive().await.is_none(), "one more is closed");
    assert_eq!(answer_lines(&udp(server, &good).await)[0], "NoError");
    open.pop();
    wait_until("there is room again", async || {
        let mut connection = Connection::open(server).await;
        // A refused connection may be closed before the question is sent.
        connection.try_send(&good.to_vec().unwrap()).await.is_ok() && connection.receive().await.is_some()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_is_answered_or_refused() {
    let cluster = one().await;
    let server = cluster.dns_address(0);
    let good = Arc::new(question("web.service.consul.", RecordType::A, None));
    let asking: Vec<_> = (0..64)
        .map(|_| {
            let good = good.clone();
            tokio::spawn(async move {
                let mut connection = Connection::open(server).await;
                for _ in 0..50 {
                    let code = connection.ask(&good).await.metadata.response_code;
                    assert!(matches!(code, ResponseCode::NoError | ResponseCode::ServFail), "{code}");
                }
            })
        })
        .collect();
    for asked in asking {
        within("all are answered", asked).await.unwrap();
    }
    assert_eq!(answer_lines(&udp(server, &good).await), ["NoError", "10.0.0.1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_are_counted() {
    let cluster = one().await;
    let server = cluster.dns_address(0);
    udp(server, &question("web.service.consul.", RecordType::A, None)).await;
    udp(server, &question("nobody.service.consul.", RecordType::SRV, None)).await;
    let mut connection = Connection::open(server).await;
    connection.ask(&question("example.com.", RecordType::A, None)).await;
    for (name, value) in [
        (r#"headwater_dns_queries_total{code="NOERROR",transport="udp",type="A"}"#, 1),
        (r#"headwater_dns_queries_total{code="NXDOMAIN",transport="udp",type="SRV"}"#, 1),
        (r#"headwater_dns_queries_total{code="REFUSED",transport="tcp",type="A"}"#, 1),
        ("headwater_dns_query_seconds_count", 3),
        ("headwater_dns_connections", 1),
    ] {
        assert_eq!(metric(&cluster.client_url(0), name).await, value, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_ends_idle_connections() {
    let mut cluster = one().await;
    let server = cluster.dns_address(0);
    let mut connection = Connection::open(server).await;
    assert_eq!(answer_lines(&connection.ask(&question("consul.", RecordType::A, None)).await), ["NoError"]);
    cluster.stop(0).await;
    assert!(connection.receive().await.is_none());
    assert!(tokio::net::TcpStream::connect(server).await.is_err(), "nobody listens any more");
}
