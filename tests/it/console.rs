//! The console's paths on a member, and the figures of all members that its first page shows.

use http::Version;
use serde_json::Value;

use crate::cluster::{Cluster, put, wait_until};
use crate::gateway::client::Connection;

async fn status(cluster: &Cluster, member: usize) -> Value {
    let mut http = Connection::open(&cluster.client_url(member), Version::HTTP_11).await;
    let answer = http.post("/v3/cluster/member/status", "{}").await;
    assert_eq!(answer.status, 200, "{:?}", answer.json);
    answer.json
}

fn number(value: &Value) -> u64 {
    value.as_str().map_or(0, |text| text.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_member_tells_how_all_members_stand() {
    let mut cluster = Cluster::three().await;
    cluster.kv(0).put(put("a", "1")).await.unwrap();
    let leader = cluster.leader().await;
    for member in 0..3 {
        wait_until("all members have applied the put", async || {
            let status = status(&cluster, member).await;
            let members = status["members"].as_array().unwrap();
            number(&status["keys"]) == 1
                && members.len() == 3
                && members.iter().all(|one| number(&one["applied"]) == number(&status["committed"]))
        })
        .await;
        let status = status(&cluster, member).await;
        assert_eq!(number(&status["answering"]), cluster.id(member));
        assert_eq!(number(&status["leader"]), cluster.id(leader));
        assert!(number(&status["term"]) > 0 && number(&status["live_bytes"]) > 0, "{status}");
        for one in status["members"].as_array().unwrap() {
            assert_eq!(one["serving"], true, "{one}");
            assert!(one["problem"].is_null() && number(&one["stored_bytes"]) > 0, "{one}");
            let is_itself = one["id"] == status["answering"];
            assert_eq!(number(&one["round_trip_us"]) == 0, is_itself, "{one}");
        }
    }

    let gone = cluster.follower().await;
    let gone_id = cluster.id(gone);
    cluster.crash(gone).await;
    let asked = cluster.leader().await;
    let status = status(&cluster, asked).await;
    for one in status["members"].as_array().unwrap() {
        let is_gone = number(&one["id"]) == gone_id;
        assert_eq!(one["problem"] == "does not answer", is_gone, "{one}");
        assert_eq!(number(&one["applied"]) == 0, is_gone, "{one}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_member_serves_the_page() {
    let cluster = Cluster::three().await;
    for member in 0..3 {
        for version in [Version::HTTP_11, Version::HTTP_2] {
            let mut http = Connection::open(&cluster.client_url(member), version).await;
            let (status, page) = http.get_with("/ui/", &[]).await;
            assert_eq!(status, 200);
            assert!(page.contains("<script type=\"module\" src=\"app.js\">"), "{page}");
            assert_eq!(http.get_with("/ui/none.js", &[]).await.0, 404);
            let (_, settings) = http.get_with("/ui/settings.json", &[]).await;
            let settings: Value = serde_json::from_str(&settings).unwrap();
            assert_eq!(settings["ui"], "read", "the default");
        }
    }
}
