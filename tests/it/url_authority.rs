//! A client that sends a URL in `:authority`, as etcdctl 3.4 does. The HTTP/2 libraries of the
//! tests cannot, so the frames are written by hand.

use bytes::{Buf, Bytes};
use headwater::pb::etcdserverpb as pb;
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::cluster::{Cluster, Settings, within};

/// The type of DATA frames of HTTP/2. The next two are types of frames as well (RFC 9113 §6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
/// `http://127.0.0.1:2379` in the Huffman code that Go's clients use, with its length.
const URL: &[u8] = &[0x8f, 0x9d, 0x29, 0xae, 0xe3, 0x0c, 0x04, 0x4e, 0xae, 0x05, 0xc0, 0xb8, 0x6e, 0x09, 0x97, 0x5f];

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap();
    [&length.to_be_bytes()[1..], &[kind, flags, 0, 0, 0, stream], payload].concat()
}

/// The frames of a `Maintenance.Status` call with an empty message and this `:authority`, as HPACK
/// encodes it.
fn status_request(stream: u8, authority: &[u8]) -> Vec<u8> {
    let block: [&[u8]; 3] = [
        b"\x83\x86\x04\x20/etcdserverpb.Maintenance/Status",
        authority,
        b"\x0f\x10\x10application/grpc\x00\x02te\x08trailers",
    ];
    let block = block.concat();
    [frame(HEADERS, 0x4, stream, &block), frame(DATA, 0x1, stream, &[0; 5])].concat()
}

/// Reads the answer on a stream up to its trailers. Frames of other streams are skipped.
async fn status(socket: &mut TcpStream, stream: u8) -> pb::StatusResponse {
    let mut data = Vec::new();
    loop {
        let mut head = [0; 9];
        socket.read_exact(&mut head).await.unwrap();
        let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
        socket.read_exact(&mut payload).await.unwrap();
        if head[8] == stream {
            match head[3] {
                DATA => data.extend_from_slice(&payload),
                HEADERS if head[4] & 0x1 != 0 => break,
                // `:status: 200`, from the static table.
                HEADERS => assert_eq!(payload[0], 0x88),
                kind => assert_ne!(kind, 3, "the stream was reset: {payload:?}"),
            }
        }
        assert_ne!(head[3], 7, "the connection was ended: {payload:?}");
    }
    let mut data = Bytes::from(data);
    assert_eq!(data.get_u8(), 0, "a message that is not compressed");
    assert_eq!(data.get_u32() as usize, data.len());
    pb::StatusResponse::decode(data).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_may_name_the_server_by_a_url() {
    let cluster = Cluster::start(Settings::alone()).await;
    let url = cluster.client_url(0);
    let mut socket = TcpStream::connect(url.strip_prefix("http://").unwrap()).await.unwrap();
    socket.set_nodelay(true).unwrap();
    socket.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    socket.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();

    let written_out = [&[0x41], URL].concat();
    // In two pieces, the cut within the URL.
    let request = status_request(1, &written_out);
    let (first, second) = request.split_at(50);
    socket.write_all(first).await.unwrap();
    socket.write_all(second).await.unwrap();
    let answer = within("an answer", status(&mut socket, 1)).await;
    assert_eq!(answer.header.unwrap().member_id, 1);

    // By reference to the header table, which has the name by now, and literally once more.
    for (stream, authority) in [(3, vec![0xbe]), (5, [&[0x01], URL].concat()), (7, vec![0xbe])] {
        socket.write_all(&status_request(stream, &authority)).await.unwrap();
        let answer = within("an answer", status(&mut socket, stream)).await;
        assert_eq!(answer.header.unwrap().member_id, 1, "stream {stream}");
    }
}
