//! The page of examples/follow.html in a real browser. It follows a subtree at one member, which
//! crashes, misses writes at other members, and restarts. The page must miss no change.

use std::process::Stdio;

use axum::Router;
use axum::response::Html;
use axum::routing::{get, post};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::sync::watch;

use super::cases::Member;
use super::client::Via;
use crate::cluster::{Cluster, within};

const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// A script that sends the page's content to the test after each change. Each report waits for the
/// one before, because a browser sends requests in parallel.
const REPORT: &str = r#"<script>
  const shown = document.getElementById("view")
  let sent = Promise.resolve()
  new MutationObserver(() => {
    const body = shown.textContent
    sent = sent.then(() => fetch("/report", { method: "POST", body }))
  }).observe(shown, { childList: true })
</script>"#;

fn browser() -> Option<&'static str> {
    let runs = |name: &&str| {
        let mut version = std::process::Command::new(name);
        version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        version.status().is_ok_and(|status| status.success())
    };
    BROWSERS.into_iter().find(runs)
}

/// The member that the test writes to. The page follows another one.
fn member(cluster: &Cluster) -> Member<'_> {
    Member { cluster, index: 1, via: Via::Http, case: "page" }
}

/// Serves the page with [`REPORT`]; returns its URL and a receiver of the reported content.
async fn serve() -> (String, watch::Receiver<Value>) {
    let page = include_str!("../../../examples/follow.html").to_owned() + REPORT;
    let (shown, seen) = watch::channel(Value::Null);
    let report = move |body: String| async move {
        shown.send_replace(serde_json::from_str(&body).unwrap());
    };
    let routes = Router::new().route("/", get(move || async move { Html(page) })).route("/report", post(report));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
    (url, seen)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_follows_through_the_death_of_its_member() {
    let Some(browser) = browser() else {
        assert!(std::env::var_os("HEADWATER_REQUIRE_CHROMIUM").is_none(), "there is no browser: scripts/setup browser");
        eprintln!(
            "skipped: a_page_follows_through_the_death_of_its_member, because there is no Chromium (scripts/setup browser)"
        );
        return;
    };
    let mut cluster = Cluster::three().await;
    member(&cluster).fixture().await;
    let (page, mut seen) = serve().await;
    cluster.browsers.allowed_origins.push(page.trim_end_matches('/').to_owned());
    cluster.stop(0).await;
    cluster.restart(0).await;
    cluster.wait_healthy().await;
    let target = super::client::encode(&member(&cluster).target("/app?recursive=true"));
    let url = format!("{page}#{}/v1/watch?target={target}", cluster.client_url(0));
    let profile = tempfile::tempdir().unwrap();
    let _running = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
        // Without a display: everything else runs as it does for a person.
        .arg("--remote-debugging-port=0")
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(&url)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();

    let whole = json!({"": "d0", "a": "1", "b": "2", "d": null, "d/x": "3"});
    within("the page shows the state", seen.wait_for(|shown| *shown == whole)).await.unwrap();
    member(&cluster).put("/app/a", "7").await;
    let live = json!({"": "d0", "a": "7", "b": "2", "d": null, "d/x": "3"});
    within("the page shows a change", seen.wait_for(|shown| *shown == live)).await.unwrap();

    cluster.crash(0).await;
    cluster.leader().await;
    for number in 0..50 {
        member(&cluster).put("/app/a", &number.to_string()).await;
    }
    member(&cluster)
        .txn(vec![member(&cluster).del_tree_op("/app/d"), member(&cluster).put_op("/app/e/f/g", "8")])
        .await;
    cluster.restart(0).await;
    let after = json!({"": "d0", "a": "49", "b": "2", "e": null, "e/f": null, "e/f/g": "8"});
    within("the page has missed nothing", seen.wait_for(|shown| *shown == after)).await.unwrap();
    member(&cluster).del("/app/b").await;
    let last = json!({"": "d0", "a": "49", "e": null, "e/f": null, "e/f/g": "8"});
    within("the page goes on", seen.wait_for(|shown| *shown == last)).await.unwrap();
}
