//! Rights on resources, on leader and follower: every method without a token, and with tokens that
//! have no right, a right to the exact name, a right to a prefix, and management; the rights to
//! owners and lists; streams.

use std::time::{Duration, Instant};

use headwater::pb::pbresource as pb;
use http::Method;
use serde_json::json;
use tonic::{Code, Status};

use super::client::{Client, Delivery, album, album_type, artist, artist_type, id_of, names_of, without_uid};
use crate::acl::Guarded;

const ULID: &str = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
const UNITS: (&str, &str) = ("default", "default");

/// Calls every method but `ListByOwner` for the artist of this name; returns the codes, in order.
/// The last call deletes the artist.
async fn codes(client: &Client, name: &str) -> Vec<Code> {
    let code = |result: Result<(), Status>| result.map_or_else(|status| status.code(), |()| Code::Ok);
    let resource = artist(name);
    let id = without_uid(id_of(&resource));
    // With legal fields, because the form of a message is checked before the rights.
    let status = pb::WriteStatusRequest {
        id: Some(pb::Id { uid: ULID.to_owned(), ..id.clone() }),
        key: "k".to_owned(),
        status: Some(pb::Status { observed_generation: ULID.to_owned(), ..Default::default() }),
        ..Default::default()
    };
    vec![
        code(client.read(id.clone()).await.map(drop)),
        code(client.list(artist_type(), UNITS, name).await.map(drop)),
        code(client.watch(artist_type(), Some(UNITS), name).await.map(drop)),
        code(client.write(resource.clone()).await.map(drop)),
        code(client.judge(resource).await.map(drop)),
        code(client.write_status(status).await.map(drop)),
        code(client.delete(id).await),
    ]
}

fn all(codes: &[Code], wanted: Code) -> bool {
    codes.iter().all(|code| *code == wanted)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_method_asks() {
    let guarded = Guarded::start().await;
    let management = Client::of(&guarded.cluster, 0).with("x-consul-token", &guarded.root);
    management.register_demo().await;
    let (_, none) = guarded.token("none", "key \"x\" { policy = \"read\" }").await;
    let exact = "resource \"demo/Artist/default/default/korn\" { policy = \"write\" }";
    let (_, exact) = guarded.token("exact", exact).await;
    let (_, reader) = guarded.token("reader", "resource_prefix \"demo/Artist/\" { policy = \"read\" }").await;
    let (_, writer) = guarded.token("writer", "resource_prefix \"demo/Artist/\" { policy = \"write\" }").await;
    for member in [guarded.cluster.leader().await, guarded.follower] {
        let nobody = Client::of(&guarded.cluster, member);
        let by = |token: &str| nobody.with("x-consul-token", token).consistent();
        for exists in [false, true] {
            if exists {
                by(&guarded.root).write(artist("korn")).await.unwrap();
            }
            let refused = codes(&nobody, "korn").await;
            assert!(
                refused.iter().all(|code| matches!(code, Code::Unauthenticated | Code::PermissionDenied)),
                "{refused:?}"
            );
            assert!(all(&codes(&by("unknown"), "korn").await, Code::Unauthenticated));
            assert!(all(&codes(&by(&none), "korn").await, Code::PermissionDenied));
            let other = codes(&by(&exact), "other").await;
            assert!(all(&other, Code::PermissionDenied), "{other:?}");
        }
        let denied = Code::PermissionDenied;
        let read_only = codes(&by(&reader), "korn").await;
        assert_eq!(read_only[..3], [Code::Ok; 3], "{read_only:?}");
        assert!(all(&read_only[3..], denied), "{read_only:?}");
        for token in [&exact, &writer, &guarded.root] {
            by(&guarded.root).write(artist("korn")).await.unwrap();
            let allowed = codes(&by(token), "korn").await;
            assert!(allowed.iter().all(|code| *code != denied && *code != Code::Unauthenticated), "{allowed:?}");
        }
        // A list has only readable resources.
        for name in ["korn", "kiss"] {
            by(&guarded.root).write(artist(name)).await.unwrap();
        }
        let listed = by(&exact).list(artist_type(), UNITS, "").await.unwrap();
        assert_eq!(names_of(&listed), ["korn"]);
        let (listed, _) = by(&exact).watch(artist_type(), Some(UNITS), "").await.unwrap().list().await;
        assert_eq!(names_of(&listed), ["korn"]);
        // The refusal does not tell whether a type is registered.
        let unknown = super::client::type_of("demo", "v2", "Nothing");
        let refused = [
            by(&none).list(unknown, UNITS, "").await.unwrap_err(),
            by(&none).list(artist_type(), UNITS, "").await.unwrap_err(),
        ];
        assert_eq!(refused[0].message(), refused[1].message());
        assert_eq!(refused[0].code(), refused[1].code());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_needs_the_right_to_all_that_goes_with_it() {
    let guarded = Guarded::start().await;
    let management = Client::of(&guarded.cluster, guarded.follower).with("x-consul-token", &guarded.root).consistent();
    management.register_demo().await;
    let korn = management.write(artist("korn")).await.unwrap();
    management.write(album(&id_of(&korn), "issues")).await.unwrap();
    let (_, artists) = guarded.token("artists", "resource_prefix \"demo/Artist/\" { policy = \"write\" }").await;
    let (_, albums) = guarded.token("albums", "resource_prefix \"demo/Album/\" { policy = \"write\" }").await;
    let (_, both) = guarded.token("both", "resource_prefix \"demo/\" { policy = \"write\" }").await;
    let by = |token: &str| Client::of(&guarded.cluster, guarded.follower).with("x-consul-token", token).consistent();
    let refused = by(&artists).delete(id_of(&korn)).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "the album would go with it");
    management.read(id_of(&korn)).await.unwrap();
    // An owner must be readable: the answer would tell whether it exists.
    let refused = by(&albums).write(album(&id_of(&korn), "follow-the-leader")).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    by(&both).delete(id_of(&korn)).await.unwrap();
    assert_eq!(management.read(id_of(&korn)).await.unwrap_err().code(), Code::NotFound);
    crate::cluster::wait_until("the album is gone", async || {
        management.list(album_type(), UNITS, "").await.unwrap().is_empty()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_shows_what_may_be_read_and_ends_when_that_changes() {
    let guarded = Guarded::start().await;
    let management = Client::of(&guarded.cluster, 0).with("x-consul-token", &guarded.root);
    management.register_demo().await;
    let policy = guarded.policy("p", "resource \"demo/Artist/default/default/korn\" { policy = \"read\" }").await;
    let made = guarded.done(Method::PUT, "/v1/acl/token", json!({"Policies": [{"ID": policy}]})).await;
    let token = made["SecretID"].as_str().unwrap().to_owned();
    let reader = Client::of(&guarded.cluster, guarded.follower).with("x-consul-token", &token);
    let mut watch = reader.watch(artist_type(), Some(UNITS), "").await.unwrap();
    assert!(watch.list().await.0.is_empty());
    management.write(artist("kiss")).await.unwrap();
    management.write(artist("korn")).await.unwrap();
    let Delivery::Upsert(first) = watch.next().await else { panic!("an upsert") };
    assert_eq!(names_of(&[first]), ["korn"], "the other one is not shown");
    let rules = "resource \"demo/Artist/default/default/kiss\" { policy = \"read\" }";
    guarded.done(Method::PUT, &format!("/v1/acl/policy/{policy}"), json!({"Name": "p", "Rules": rules})).await;
    let changed = Instant::now();
    management.write(artist("korn-again")).await.unwrap();
    let ended = watch.next_with_index().await.unwrap_err();
    assert_eq!(ended.code(), Code::Aborted, "{ended:?}");
    assert!(changed.elapsed() < Duration::from_secs(1), "{:?}", changed.elapsed());
    let (listed, _) = reader.watch(artist_type(), Some(UNITS), "").await.unwrap().list().await;
    assert_eq!(names_of(&listed), ["kiss"], "the list of the new rights");
}
