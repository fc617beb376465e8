//! The console's files, headers and entity tags, and the setting `ui`.

use std::collections::BTreeSet;
use std::path::Path;

use http_body_util::BodyExt;

use super::*;

/// Most bytes of all files together, as they are in the program and on the wire.
const BYTES_MAX: usize = 120 * 1024;

fn console(mode: ConsoleMode) -> Console {
    let (member, dns_domain, max_txn_ops) = ("node1".into(), "consul".into(), 128);
    let options = ConsoleOptions { mode, member, dns_domain, max_txn_ops, ..Default::default() };
    Console::new(options, &Registry::new()).unwrap()
}

fn ask(console: &Console, method: Method, path: &str, headers: &[(HeaderName, &str)]) -> Response<Body> {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(name, *value);
    }
    console.call(&request.body(()).unwrap())
}

async fn body(response: Response<Body>) -> Vec<u8> {
    response.into_body().collect().await.unwrap().to_bytes().to_vec()
}

#[test]
fn the_folder_is_the_table() {
    let listed: BTreeSet<_> = FILES.iter().map(|file| file.name.to_owned()).collect();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("files");
    let there: BTreeSet<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(listed, there);
}

#[test]
fn all_files_together_are_small() {
    let packed: usize = FILES.iter().map(|file| file.gzip.len()).sum();
    assert!(packed <= BYTES_MAX, "{packed} bytes");
}

/// Data reaches the page as text only, and the page loads from its own server only.
#[test]
fn no_file_makes_elements_of_texts_or_names_another_server() {
    for file in FILES {
        let text = String::from_utf8(file.unpacked()).unwrap();
        for forbidden in
            ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "DOMParser"]
        {
            assert!(!text.contains(forbidden), "{} has {forbidden}", file.name);
        }
        let urls = text
            .match_indices("http")
            .map(|(at, _)| &text[at..])
            .filter(|rest| rest.starts_with("http://") || rest.starts_with("https://"));
        let foreign: Vec<_> = urls.filter(|rest| !rest.starts_with("http://www.w3.org/2000/svg")).collect();
        assert!(foreign.is_empty(), "{} names {}", file.name, &foreign[0][..foreign[0].len().min(60)]);
    }
}

#[tokio::test]
async fn every_file_has_its_type_and_the_headers_that_shut_others_out() {
    let console = console(ConsoleMode::Read);
    for file in FILES {
        let response = ask(&console, Method::GET, &format!("/ui/{}", file.name), &[]);
        assert_eq!(response.status(), StatusCode::OK, "{}", file.name);
        let headers = response.headers();
        assert_eq!(headers[header::CONTENT_TYPE], file.content_type);
        assert!(headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap().starts_with("default-src 'self'"));
        assert_eq!(headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
        assert_eq!(headers[header::REFERRER_POLICY], "no-referrer");
        assert_eq!(headers[header::CACHE_CONTROL], "no-cache");
        assert_eq!(body(response).await, file.unpacked(), "{}", file.name);
    }
    let index = ask(&console, Method::GET, "/ui/", &[]);
    assert_eq!(index.headers()[header::CONTENT_TYPE], "text/html; charset=utf-8");
    let moved = ask(&console, Method::GET, "/ui", &[]);
    assert_eq!(
        (moved.status(), &moved.headers()[header::LOCATION]),
        (StatusCode::PERMANENT_REDIRECT, &HeaderValue::from_static("/ui/"))
    );
    for path in ["/ui/x.js", "/ui/../etc/passwd", "/ui//app.js", "/ui/app.js/"] {
        assert_eq!(ask(&console, Method::GET, path, &[]).status(), StatusCode::NOT_FOUND, "{path}");
    }
}

#[tokio::test]
async fn what_a_browser_has_is_not_sent_again() {
    let console = console(ConsoleMode::Read);
    let get = |headers: &[(HeaderName, &str)]| ask(&console, Method::GET, "/ui/app.js", headers);
    let packed = get(&[(header::ACCEPT_ENCODING, "br, gzip;q=0.8")]);
    assert_eq!(packed.headers()[header::CONTENT_ENCODING], "gzip");
    let tag = packed.headers()[header::ETAG].to_str().unwrap().to_owned();
    let plain_tag = get(&[]).headers()[header::ETAG].to_str().unwrap().to_owned();
    assert_ne!(tag, plain_tag, "a strong tag is of one encoding");
    assert!(body(packed).await.starts_with(&[0x1f, 0x8b]));
    for (encoding, known, wanted) in [
        ("gzip", tag.as_str(), 304),
        ("gzip", &format!("\"x\", W/{tag}"), 304),
        ("gzip", "*", 304),
        ("gzip", &plain_tag, 200),
        ("gzip;q=0", &plain_tag, 304),
        ("identity", &tag, 200),
        ("gzip", "\"x\"", 200),
    ] {
        let response = get(&[(header::ACCEPT_ENCODING, encoding), (header::IF_NONE_MATCH, known)]);
        assert_eq!(response.status(), wanted, "{encoding} {known}");
        assert!(response.headers().contains_key(header::ETAG));
    }
    let head = ask(&console, Method::HEAD, "/ui/app.js", &[(header::ACCEPT_ENCODING, "gzip")]);
    assert_eq!(head.status(), StatusCode::OK);
    assert_ne!(head.headers()[header::CONTENT_LENGTH], "0");
    assert!(body(head).await.is_empty());
}

#[tokio::test]
async fn the_switch() {
    let off = console(ConsoleMode::Off);
    for path in ["/ui", "/ui/", "/ui/app.js", "/ui/settings.json"] {
        assert_eq!(ask(&off, Method::GET, path, &[]).status(), StatusCode::NOT_FOUND, "{path}");
    }
    for mode in [ConsoleMode::Read, ConsoleMode::Write] {
        let response = ask(&console(mode), Method::GET, "/ui/settings.json", &[]);
        assert_eq!(response.headers()[header::CACHE_CONTROL], "no-store");
        let settings: serde_json::Value = serde_json::from_slice(&body(response).await).unwrap();
        assert_eq!(settings["ui"], mode.name());
        assert_eq!((&settings["dns_domain"], &settings["max_txn_ops"]), (&json!("consul"), &json!(128)));
        let refused = ask(&console(mode), Method::POST, "/ui/", &[]);
        assert_eq!(
            (refused.status(), &refused.headers()[header::ALLOW]),
            (StatusCode::METHOD_NOT_ALLOWED, &HeaderValue::from_static("GET, HEAD"))
        );
    }
    for mode in [ConsoleMode::Off, ConsoleMode::Read, ConsoleMode::Write] {
        assert_eq!(ConsoleMode::named(mode.name()), Some(mode));
    }
    assert_eq!(ConsoleMode::named("on"), None);
}

#[test]
fn paths_of_the_console() {
    for (path, wanted) in
        [("/ui", true), ("/ui/", true), ("/ui/app.js", true), ("/uix", false), ("/", false), ("/v1/ui/", false)]
    {
        assert_eq!(Console::owns(path), wanted, "{path}");
    }
}
