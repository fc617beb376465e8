//! The commands `headwater resource …`: manifests, and output.

use serde_json::{Value, json};

use super::{good, headwater};
use crate::cluster::{Cluster, wait_until};

/// All resources of a type, as `list` prints them: one JSON value a line.
async fn listed(cluster: &Cluster, member: usize, type_: &str) -> Vec<Value> {
    let out = good(cluster, &[member], &["list", type_, "--all", "-o", "json"]).await;
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_examples_are_applied_and_a_second_time_nothing_changes() {
    let cluster = Cluster::three().await;
    let follower = cluster.follower().await;
    let first = good(&cluster, &[follower], &["apply", "-f", "examples/"]).await;
    assert_eq!(first.lines().filter(|line| line.ends_with(" created")).count(), 13, "{first}");
    let again = good(&cluster, &[follower], &["apply", "-f", "examples/"]).await;
    assert_eq!(again.lines().filter(|line| line.ends_with(" unchanged")).count(), 13, "{again}");

    // Every member has them at once.
    for member in 0..3 {
        let artists = listed(&cluster, member, "demo.v2.Artist").await;
        assert_eq!(artists.len(), 1);
        assert_eq!(artists[0]["name"], "korn");
        assert_eq!(artists[0]["data"]["active"], true, "a default");
        let owned = good(&cluster, &[member], &["list-by-owner", "v2.Artist", "korn", "-o", "json"]).await;
        assert_eq!(owned.lines().count(), 2, "{owned}");
    }
    let types = good(&cluster, &[follower], &["types"]).await;
    for name in ["demo.v1.Concept", "demo.v2.Album", "headwater.v1.ResourceType", "internal.v1.Tombstone"] {
        assert!(types.contains(name), "{types}");
    }

    // The output of `read` is a manifest, in both formats.
    for format in ["yaml", "json"] {
        let read = good(&cluster, &[follower], &["read", "v2.Album", "issues", "--output", format]).await;
        let back = headwater(&cluster, &[follower], &["apply", "-f", "-"], &read).await;
        assert_eq!(back.out, "demo.v2.Album issues unchanged\n", "{read}{back:#?}");
    }

    // A change is shown field by field, first as a dry run.
    let album = "type: v2.Album\nname: issues\nowner: {type: v2.Artist, name: korn}\n\
                 data: {title: Issues, yearOfRelease: 2000, tracks: [Dead]}\n";
    let changes = "  ~ data.tracks[0]: \"Dead\" -> \"Dead\"\n";
    for (args, said) in [
        (&["apply", "-f", "-", "--dry-run"][..], "would be changed"),
        (&["apply", "-f", "-"], "changed"),
        (&["apply", "-f", "-"], "unchanged"),
    ] {
        let ran = headwater(&cluster, &[follower], args, album).await;
        assert!(ran.is_good && ran.out.starts_with(&format!("demo.v2.Album issues {said}\n")), "{ran:#?}");
        assert!(!ran.out.contains(changes), "what is the same is not shown");
        assert_eq!(ran.out.contains("  ~ data.yearOfRelease: 1999 -> 2000\n"), said != "unchanged", "{ran:#?}");
        assert_eq!(ran.out.contains("  - data.tracks[1]: \"Falling Away from Me\"\n"), said != "unchanged", "{ran:#?}");
    }

    // The children of a deleted owner are deleted.
    let said = good(&cluster, &[follower], &["delete", "v2.Artist", "korn"]).await;
    assert_eq!(said, "demo.v2.Artist korn deleted\n");
    wait_until("the albums are gone", async || listed(&cluster, follower, "v2.Album").await.is_empty()).await;
    let gone = headwater(&cluster, &[follower], &["read", "v2.Artist", "korn"], "").await;
    assert!(!gone.is_good && gone.error.contains("there is no demo.v2.Artist korn"), "{gone:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_manifest_is_refused_with_its_line_and_nothing_is_applied() {
    let cluster = Cluster::three().await;
    good(&cluster, &[0], &["apply", "-f", "examples/demo-types.yaml"]).await;
    let good_part = "type: Concept\nname: fine\n---\n";
    for (bad, wanted) in [
        ("type: v2.Artist\nname: x\ndata:\n  nmae: x\n", "standard input:7:3: unrecognized field name 'nmae'"),
        ("type: v2.Artist\nname: x\ndata:\n  name: x\n   genre: y\n", "standard input:8:"),
        ("type: v2.Artist\nname: x\ndata: {name: ''}\n", "standard input:6:7: artist.name required"),
        ("type: Artist\nname: x\n", "standard input:4:7: several types are called Artist"),
    ] {
        let ran = headwater(&cluster, &[1], &["apply", "-f", "-"], &format!("{good_part}{bad}")).await;
        assert!(!ran.is_good && ran.out.is_empty(), "{ran:#?}");
        assert!(ran.error.contains(wanted) && ran.error.ends_with("nothing was applied\n"), "{ran:#?}");
    }
    assert_eq!(listed(&cluster, 2, "Concept").await, Vec::<Value>::new());

    // An error that only the server finds is printed with the position, and the number of applied
    // resources.
    let text = format!("{good_part}type: Concept\nname: b\ntenancy: {{namespace: nowhere}}\n");
    let ran = headwater(&cluster, &[1], &["apply", "-f", "-"], &text).await;
    assert!(ran.error.contains("standard input:4: demo.v1.Concept b in default/nowhere: "), "{ran:#?}");
    assert!(ran.error.contains("1 of 2 were applied before it"), "{ran:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_with_a_version_is_applied_only_if_it_is_the_stored_one() {
    let cluster = Cluster::three().await;
    good(&cluster, &[0], &["apply", "-f", "examples/"]).await;
    let read = good(&cluster, &[0], &["read", "RecordLabel", "immortal", "-o", "json"]).await;
    let mut label: Value = serde_json::from_str(&read).unwrap();
    label["data"] = json!({"name": "Immortal", "description": "closed"});
    let apply = ["apply", "-f", "-"];
    let first = headwater(&cluster, &[1], &apply, &label.to_string()).await;
    assert!(first.is_good && first.out.contains("changed"), "{first:#?}");
    label["data"]["description"] = "open".into();
    let second = headwater(&cluster, &[1], &apply, &label.to_string()).await;
    assert!(!second.is_good && second.error.contains("It has changed since"), "{second:#?}");
    let stale = label["version"].as_str().unwrap();
    let late = headwater(&cluster, &[1], &["delete", "RecordLabel", "immortal", "--version", stale], "").await;
    assert!(!late.is_good && late.error.contains("has changed since that version"), "{late:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_prints_the_list_and_then_what_happens_on_any_member() {
    use tokio::io::{AsyncBufReadExt, BufReader};
    let mut cluster = Cluster::three().await;
    good(&cluster, &[0], &["apply", "-f", "examples/"]).await;
    let first = cluster.follower().await;
    let others: Vec<_> = (0..3).filter(|member| *member != first).collect();
    let endpoints: Vec<_> = [&[first], others.as_slice()].concat().iter().map(|it| cluster.client_url(*it)).collect();
    let mut child = tokio::process::Command::new(env!("CARGO_BIN_EXE_headwater"))
        .args(["resource", "watch", "Concept", "-o", "json", "--endpoints", &endpoints.join(","), "--timeout", "60s"])
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = async || {
        let line = crate::cluster::within("an event", lines.next_line()).await.unwrap().unwrap();
        let event: Value = serde_json::from_str(&line).unwrap();
        (event["event"].as_str().unwrap().to_owned(), event["resource"]["name"].as_str().unwrap_or("").to_owned())
    };
    assert_eq!(next().await, ("upsert".into(), "nu-metal".into()));
    assert_eq!(next().await, ("end of list".into(), String::new()));
    let make = |name: &str| format!("type: Concept\nname: {name}\n");
    headwater(&cluster, &others, &["apply", "-f", "-"], &make("a")).await;
    assert_eq!(next().await, ("upsert".into(), "a".into()));
    // The watched member stops: the watch resumes at another one.
    cluster.stop(first).await;
    headwater(&cluster, &others, &["apply", "-f", "-"], &make("b")).await;
    assert_eq!(next().await, ("upsert".into(), "b".into()), "no list comes first");
    good(&cluster, &others, &["delete", "Concept", "a"]).await;
    assert_eq!(next().await, ("delete".into(), "a".into()));
}
