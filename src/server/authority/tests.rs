//! Real bytes of etcdctl, every form a block can have, and any cut of them into reads. h2 itself
//! judges the result: it decodes with tables of its own.

use bytes::BytesMut;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::frames::Frames;
use super::hpack::{Authority, authority};
use super::*;
use headwater_types::limits::HEADER_BLOCK_BYTES_MAX;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
/// `:method: POST`, `:scheme: http`, `:path: /`, from the static table.
const POST: &[u8] = &[0x83, 0x86, 0x84];
const URL: &str = "http://127.0.0.1:2379";
const NAME: &str = "127.0.0.1:00000002379";
/// `http://127.0.0.1:2379` as Go's encoder writes it: Huffman-coded, with its length.
const URL_HUFFMAN: &[u8] =
    &[0x8f, 0x9d, 0x29, 0xae, 0xe3, 0x0c, 0x04, 0x4e, 0xae, 0x05, 0xc0, 0xb8, 0x6e, 0x09, 0x97, 0x5f];

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap();
    [&length.to_be_bytes()[1..], &[kind, flags, 0, 0, 0, stream], payload].concat()
}

/// A frame of headers that ends its request.
fn headers(stream: u8, block: &[u8]) -> Vec<u8> {
    frame(1, 0x5, stream, block)
}

fn raw(text: &str) -> Vec<u8> {
    assert!(text.len() < 127);
    [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat()
}

/// A header block whose literal `:authority` enters the dynamic table.
fn indexed(value: &str) -> Vec<u8> {
    [POST, &[0x41], &raw(value)].concat()
}

fn connection(frames: &[Vec<u8>]) -> Vec<u8> {
    [PREFACE, SETTINGS, &frames.concat()].concat()
}

/// The output for an input that arrives in these chunks and then ends. Also whether the parser was
/// done before the end.
fn followed<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> (Vec<u8>, bool) {
    let (mut frames, mut out) = (Frames::default(), BytesMut::new());
    for chunk in chunks {
        frames.follow(chunk, &mut out);
    }
    let done = frames.are_done();
    frames.stop(&mut out);
    (out.to_vec(), done)
}

/// Stands for the name of a request that h2 resets.
const REFUSED: &str = "refused";

/// The names that h2 reads in the first `requests` requests of a connection, then one [`REFUSED`]
/// for each request that it resets.
async fn read_by_h2(input: &[u8], requests: usize) -> Vec<String> {
    let (mut client, server) = tokio::io::duplex(1024 * 1024);
    let server = tokio::spawn(async move {
        let mut connection = h2::server::handshake(RepairedStream::new(server)).await.unwrap();
        let mut names = Vec::new();
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            names.push(request.uri().authority().map_or_else(String::new, ToString::to_string));
            respond.send_response(http::Response::new(()), true).unwrap();
        }
        names
    });
    client.write_all(input).await.unwrap();
    let mut refused = Vec::new();
    let mut answers = 0;
    while answers < requests {
        let mut head = [0; 9];
        client.read_exact(&mut head).await.unwrap();
        let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
        client.read_exact(&mut payload).await.unwrap();
        match head[3] {
            1 => answers += 1,
            3 => {
                answers += 1;
                refused.push(REFUSED.to_owned());
            }
            7 => panic!("h2 ended the connection: {payload:?}"),
            _ => {}
        }
    }
    drop(client);
    let mut names = server.await.unwrap();
    names.extend(refused);
    names
}

/// (name of the case, bytes of the connection, names that h2 reads, whether all further bytes pass
/// unchanged)
fn cases() -> Vec<(&'static str, Vec<u8>, Vec<&'static str>, bool)> {
    let url = indexed(URL);
    let reference = [POST, &[0xbe]].concat();
    let half = url.len() / 2;
    let with = |head: &[u8], value: &[u8]| headers(1, &[POST, head, value].concat());
    vec![
        (
            "a name passes and ends it",
            connection(&[headers(1, &indexed("a:1")), headers(3, &url)]),
            vec!["a:1", REFUSED],
            true,
        ),
        ("a URL", connection(&[headers(1, &url)]), vec![NAME], false),
        ("a path", connection(&[headers(1, &indexed("/run/x.sock"))]), vec![".run.x.sock"], false),
        ("a path as a URL", connection(&[headers(1, &indexed("unix:///x"))]), vec!["unix....x"], false),
        ("Huffman", connection(&[with(&[0x41], URL_HUFFMAN)]), vec![NAME], false),
        ("not put into the table", connection(&[with(&[0x01], &raw(URL))]), vec![NAME], false),
        ("never put into a table", connection(&[with(&[0x11], &raw(URL))]), vec![NAME], false),
        ("its name written out", connection(&[with(b"\x40\x0a:authority", &raw(URL))]), vec![NAME], false),
        (
            "its name in Huffman code",
            connection(&[with(&[0, 0x88, 0xb8, 0x3b, 0x53, 0x39, 0xec, 0x32, 0x7d, 0x7f], &raw(URL))]),
            vec![NAME],
            false,
        ),
        (
            "the table's size first",
            connection(&[headers(1, &[&[0x3f, 0xe1, 0x1f], &url[..]].concat())]),
            vec![NAME],
            false,
        ),
        (
            "behind a long field",
            connection(&[headers(1, &[b"\x83\x86\x44\x7f\x01", &[b'/'; 128][..], &url[3..]].concat())]),
            vec![NAME],
            false,
        ),
        ("a reference to it", connection(&[headers(1, &url), headers(3, &reference)]), vec![NAME, NAME], false),
        (
            "again and again, then a name",
            connection(&[with(&[0x01], &raw(URL)), headers(3, &url), headers(5, &indexed("b"))]),
            vec![NAME, NAME, "b"],
            true,
        ),
        ("no name at all", connection(&[headers(1, POST), headers(3, &url)]), vec!["", NAME], false),
        ("padded", connection(&[frame(1, 0xd, 1, &[&[4], &url[..], &[0; 4]].concat())]), vec![NAME], false),
        (
            "with a priority",
            connection(&[frame(1, 0x25, 1, &[&[0, 0, 0, 0, 9], &url[..]].concat())]),
            vec![NAME],
            false,
        ),
        (
            "padded, with a priority",
            connection(&[frame(1, 0x2d, 1, &[&[2, 0, 0, 0, 0, 9], &url[..], &[0; 2]].concat())]),
            vec![NAME],
            false,
        ),
        (
            "in pieces, some empty",
            connection(&[
                frame(1, 0x9, 1, &[&[3], &url[..half], &[0; 3]].concat()),
                frame(9, 0, 1, &[]),
                frame(9, 0, 1, &url[half..]),
                frame(9, 0x4, 1, &[]),
                headers(3, &reference),
            ]),
            vec![NAME, NAME],
            false,
        ),
        (
            "with other frames around",
            connection(&[
                frame(6, 0, 0, &[7; 8]),
                frame(1, 0x4, 1, &url),
                frame(0, 0x1, 1, &[5; 300]),
                frame(6, 0, 0, &[7; 8]),
                headers(3, &reference),
            ]),
            vec![NAME, NAME],
            false,
        ),
    ]
}

#[tokio::test]
async fn h2_reads_the_names() {
    for (what, input, names, done) in cases() {
        assert_eq!(followed([&input[..]]).1, done, "{what}");
        assert_eq!(read_by_h2(&input, names.len()).await, names, "{what}");
    }
}

#[test]
fn a_url_becomes_the_name_of_the_same_server_and_length() {
    const CASES: &[(&str, Option<&str>)] = &[
        (URL, Some(NAME)),
        ("https://10.0.0.1:2379", Some("10.0.0.1:000000002379")),
        ("http://etcd-0.example_x.org:2379/", Some("etcd-0.example_x.org:000000002379")),
        ("http://[::1]:2379", Some("[::1]:00000002379")),
        ("http://host", Some("host:000080")),
        ("https://host:/a?b#c", Some("host:00000000000443")),
        ("/run/head_water-1.sock", Some(".run.head_water-1.sock")),
        ("unix:///run/ö x", Some("unix....run....x")),
        ("http://", None),
        ("http://host:99999", None),
        ("http://two words:1", None),
        ("unix://socket", Some("unix...socket")),
        ("host:1/path", None),
        ("host:1", None),
        ("", None),
    ];
    for (value, wanted) in CASES {
        let found = authority(&indexed(value));
        match wanted {
            None => assert_eq!(found, Authority::Kept, "{value}"),
            Some(name) => {
                assert_eq!(name.len(), value.len(), "{value}");
                assert_eq!(found, Authority::Repaired(indexed(name)), "{value}");
            }
        }
    }
}

#[test]
fn lengths_of_more_than_one_byte_are_read_and_written() {
    for length in [126, 127, 128, 254, 255, 256, 400, 5000] {
        let url = format!("http://{}:1", "h".repeat(length - 9));
        let prefix = |length: usize| match length {
            ..127 => vec![u8::try_from(length).unwrap()],
            127..255 => vec![0x7f, u8::try_from(length - 127).unwrap()],
            _ => vec![
                0x7f,
                u8::try_from((length - 127) % 128 + 128).unwrap(),
                u8::try_from((length - 127) / 128).unwrap(),
            ],
        };
        let block = [&[0x41], &prefix(length)[..], url.as_bytes()].concat();
        let name = format!("{}:00000001", "h".repeat(length - 9));
        let wanted = [&[0x41], &prefix(length)[..], name.as_bytes()].concat();
        assert_eq!(authority(&block), Authority::Repaired(wanted), "{length}");
    }
}

/// Input that cannot be repaired passes unchanged.
#[test]
fn what_cannot_be_repaired_passes() {
    let url = indexed(URL);
    let full = |bytes: usize| {
        // One frame of so many bytes with its head; a field before the URL fills it.
        let filler = bytes - 9 - url.len() - 5;
        let length = filler - 128;
        let prefix = [0x7f, u8::try_from(length % 128 + 128).unwrap(), u8::try_from(length / 128).unwrap()];
        let block = [POST, b"\x00\x01x", &prefix, &vec![b'v'; filler - 1], &url[3..]].concat();
        headers(1, &block)
    };
    let largest = full(HEADER_BLOCK_BYTES_MAX);
    assert_eq!(largest.len(), HEADER_BLOCK_BYTES_MAX);
    let (out, done) = followed([&connection(&[largest])[..]]);
    assert!(!done && out.windows(NAME.len()).any(|window| window == NAME.as_bytes()), "a block of the largest size");
    let passes = [
        ("HTTP/1", b"POST /v3/kv/put HTTP/1.1\r\nhost: http://a:1\r\n\r\n".to_vec()),
        ("nearly the preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\t0123456789abcdef".to_vec()),
        ("one byte too large", connection(&[full(HEADER_BLOCK_BYTES_MAX + 1)])),
        ("a broken string", connection(&[headers(1, &[0x41, 0x7e, b'h'])])),
        ("a broken number", connection(&[headers(1, &[0x41, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01])])),
        ("broken Huffman code", connection(&[headers(1, &[0x41, 0x82, 0xff, 0xff])])),
        ("more padding than payload", connection(&[frame(1, 0xd, 1, &[9, 0, 0])])),
        ("no room for the length of padding", connection(&[frame(1, 0xc, 1, &[])])),
        ("no room for the priority", connection(&[frame(1, 0x25, 1, &[0, 0])])),
        ("another frame within a block", connection(&[frame(1, 0x1, 1, &url), frame(6, 0, 0, &[7; 8])])),
        ("another stream within a block", connection(&[frame(1, 0x1, 1, &url), frame(9, 0x4, 3, &[])])),
        ("the end within a block", connection(&[frame(1, 0x1, 1, &url)])),
        ("the end within a frame", connection(&[headers(1, &url)])[..50].to_vec()),
        ("a continuation of nothing", connection(&[frame(9, 0x4, 1, &url)])),
        ("an endless block", connection(&[frame(1, 0, 1, &[]), frame(9, 0, 1, &[]).repeat(2000)])),
    ];
    for (what, input) in passes {
        assert_eq!(followed([&input[..]]).0, input, "{what}");
    }
}

/// Only frame heads and incomplete header blocks are held back. Each byte of the preface passes at
/// once, and each byte of a payload that is not part of a header block.
#[test]
fn nothing_waits_that_can_go_on() {
    let (mut frames, mut out) = (Frames::default(), BytesMut::new());
    let input = [&connection(&[frame(0, 0, 1, b"payload")])[..], &[0, 0]].concat();
    for (nth, byte) in input.iter().enumerate() {
        frames.follow(&[*byte], &mut out);
        let head = [33, 42].iter().any(|end| (end - 9..*end - 1).contains(&nth)) || nth >= 49;
        if !head {
            assert_eq!(out.len(), nth + 1, "after byte {nth}");
        }
    }
    assert_eq!(out, input[..49]);
}

proptest! {
    #[test]
    fn cuts_make_no_difference(nth in 0..cases().len(), sizes in prop::collection::vec(1usize..40, 1..200)) {
        let (_, input, ..) = cases().swap_remove(nth);
        let (whole, _) = followed([&input[..]]);
        let mut rest = &input[..];
        let mut chunks = Vec::new();
        for size in sizes.into_iter().chain([usize::MAX]) {
            let (chunk, tail) = rest.split_at(size.min(rest.len()));
            chunks.push(chunk);
            rest = tail;
        }
        prop_assert_eq!(followed(chunks).0, whole);
    }

    #[test]
    fn arbitrary_bytes_pass_or_wait(bytes in prop::collection::vec(any::<u8>(), 0..300), cut in 0usize..300) {
        let block: &[u8] = &bytes;
        prop_assert!(!matches!(authority(block), Authority::Repaired(other) if other == block));
        let input = [PREFACE, block].concat();
        let (out, _) = followed([&input[..cut.min(input.len())], &input[cut.min(input.len())..]]);
        prop_assert_eq!(out, input);
    }
}

/// [`RepairedStream`] yields the same bytes with every size of pipe and buffer, and passes an
/// answer on.
#[tokio::test]
async fn a_stream_reads_the_same_whatever_the_buffers() {
    for (what, input, ..) in cases() {
        let (wanted, _) = followed([&input[..]]);
        for (pipe, size) in [(1, 1), (7, 3), (64, 5), (4096, 4096)] {
            let (mut client, server) = tokio::io::duplex(pipe);
            let mut server = RepairedStream::new(server);
            let sent = input.clone();
            let writer = tokio::spawn(async move {
                client.write_all(&sent).await.unwrap();
                client.shutdown().await.unwrap();
                let mut answer = Vec::new();
                client.read_to_end(&mut answer).await.unwrap();
                answer
            });
            let mut read = Vec::new();
            loop {
                let mut buffer = vec![0; size];
                match server.read(&mut buffer).await.unwrap() {
                    0 => break,
                    length => read.extend_from_slice(&buffer[..length]),
                }
            }
            assert_eq!(read, wanted, "{what}, {pipe} and {size} bytes");
            server.write_all(b"answer").await.unwrap();
            server.shutdown().await.unwrap();
            assert_eq!(writer.await.unwrap(), b"answer");
        }
    }
}
