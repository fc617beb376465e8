//! Logins with a JSON web token.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::future::join_all;
use headwater::node::{NodeError, RequestContext, hash_secret};
use headwater::types::acl::AclToken;
use headwater::types::{AuthRefusal, Refusal};
use http::Method;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};

use super::Guarded;

/// Private key that signs the web tokens of these tests. Used nowhere else.
const PRIVATE: &str = "-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgevZzL1gdAFr88hb2
OF/2NxApJCzGCEDdfSp6VQO30hyhRANCAAQRWz+jn65BtOMvdyHKcvjBeBSDZH2r
1RTwjmYSi9R/zpBnuQ4EiMnCqfMPWiZqB4QdbAd0E7oH50VpuZ1P087G
-----END PRIVATE KEY-----";
/// Public key of [`PRIVATE`].
const PUBLIC: &str = "-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEEVs/o5+uQbTjL3chynL4wXgUg2R9
q9UU8I5mEovUf86QZ7kOBIjJwqnzD1omageEHWwHdBO6B+dFabmdT9POxg==
-----END PUBLIC KEY-----";

fn bearer(claims: &Value) -> String {
    let key = EncodingKey::from_ec_pem(PRIVATE.as_bytes()).unwrap();
    jsonwebtoken::encode(&Header::new(Algorithm::ES256), claims, &key).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proof_becomes_a_token_and_a_logout_ends_it() {
    let guarded = Guarded::start().await;
    let method = json!({
        "Name": "people", "Type": "jwt", "MaxTokenTTL": "1h", "Config": {
            "JWTValidationPubKeys": [PUBLIC], "JWTSupportedAlgs": ["ES256"], "BoundIssuer": "https://id.example",
            "BoundAudiences": ["headwater"], "ClaimMappings": {"sub": "user"}, "ListClaimMappings": {"groups": "groups"},
        },
    });
    let made = guarded.done(Method::PUT, "/v1/acl/auth-method", &method).await;
    assert_eq!(made["Config"]["BoundIssuer"], "https://id.example");
    let rule = json!({
        "AuthMethod": "people", "BindType": "service", "BindName": "of-${value.user}", "Selector": "\"web\" in list.groups",
    });
    guarded.done(Method::PUT, "/v1/acl/binding-rule", rule).await;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let claims = |member: &str, value: Value| {
        let mut claims = json!({
            "sub": "ada", "groups": ["web", "ops"], "iss": "https://id.example", "aud": "headwater", "exp": now + 600,
        });
        claims[member] = value;
        bearer(&claims)
    };
    let login = async |bearer: String| {
        let body = json!({"AuthMethod": "people", "BearerToken": bearer});
        guarded.ask(guarded.follower, "", Method::POST, "/v1/acl/login", body).await
    };
    for (what, bearer) in [
        ("no token at all", "x".to_owned()),
        ("an issuer that is not bound", claims("iss", json!("https://other.example"))),
        ("an audience that is not bound", claims("aud", json!("other"))),
        ("a past time", claims("exp", json!(now - 600))),
        ("no time", claims("exp", Value::Null)),
        ("no group that is bound", claims("groups", json!(["ops"]))),
        ("another key", {
            let good = claims("sub", json!("ada"));
            format!("{}AAAA", &good[..good.len() - 4])
        }),
    ] {
        let answer = login(bearer).await;
        assert_eq!((answer.status, answer.text.as_str()), (403, "Permission denied"), "{what}");
    }
    let token = login(claims("sub", json!("ada"))).await;
    assert_eq!(token.status, 200, "{token:?}");
    assert_eq!(token.json["ServiceIdentities"], json!([{"ServiceName": "of-ada"}]));
    assert_eq!(token.json["AuthMethod"], "people");
    assert!(token.json["ExpirationTime"].is_string());
    let secret = token.json["SecretID"].as_str().unwrap();
    let registered = guarded
        .ask(guarded.follower, secret, Method::PUT, "/v1/agent/service/register", json!({"Name": "of-ada"}))
        .await;
    assert_eq!(registered.status, 200, "{registered:?}");
    let out = guarded.ask(guarded.follower, secret, Method::POST, "/v1/acl/logout", "").await;
    assert_eq!(out.json, json!(true));
    let gone = guarded.ask(guarded.follower, secret, Method::GET, "/v1/acl/token/self", "").await;
    assert_eq!(gone.status, 403);
    let root = guarded.ask(guarded.follower, &guarded.root, Method::POST, "/v1/acl/logout", "").await;
    assert_eq!(root.status, 403, "only what a login has made is logged out");
}

/// The auth method `people`, for tokens with this locality.
fn located(locality: &str) -> Value {
    json!({
        "Name": "people", "Type": "jwt", "TokenLocality": locality,
        "Config": {"JWTValidationPubKeys": [PUBLIC], "JWTSupportedAlgs": ["ES256"]},
    })
}

const RULE: &str = r#"{"AuthMethod": "people", "BindType": "service", "BindName": "web"}"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_login_that_was_judged_before_a_change_makes_no_token() {
    let guarded = Guarded::start().await;
    let node = guarded.cluster.node(guarded.follower);
    let context = RequestContext::system(Duration::from_secs(30));
    guarded.done(Method::PUT, "/v1/acl/auth-method", located("local")).await;
    let rule = guarded.done(Method::PUT, "/v1/acl/binding-rule", RULE).await;
    let rule = format!("/v1/acl/binding-rule/{}", rule["ID"].as_str().unwrap());
    for (number, (method, path, body)) in
        [(Method::PUT, "/v1/acl/auth-method/people", located("global")), (Method::DELETE, rule.as_str(), json!(""))]
            .into_iter()
            .enumerate()
    {
        let accessor = format!("11111111-2222-3333-4444-{number:012}");
        let token =
            AclToken { secret: hash_secret(&accessor), method: "people".to_owned(), accessor, ..AclToken::anonymous() };
        guarded.settled(guarded.follower).await;
        let judged = node.rights_changed();
        guarded.done(method, path, body).await;
        let late = node.acl().put_as_of(&context, token.clone(), judged).await;
        let wanted = Refusal::Auth(AuthRefusal::OldRevision);
        assert!(matches!(&late, Err(NodeError::Refused(refusal)) if *refusal == wanted), "{path}: {late:?}");
        guarded.settled(guarded.follower).await;
        node.acl().put_as_of(&context, token, node.rights_changed()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_of_the_method_that_is_there_when_it_is_made() {
    const CHANGES: usize = 20;
    const CLIENTS: usize = 4;
    let guarded = Guarded::start().await;
    let first = guarded.done(Method::PUT, "/v1/acl/auth-method", located("local")).await;
    guarded.done(Method::PUT, "/v1/acl/binding-rule", RULE).await;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let body = json!({"AuthMethod": "people", "BearerToken": bearer(&json!({"sub": "ada", "exp": now + 600}))});
    let index = |answer: &Value, member: &str| answer[member].as_u64().unwrap();
    let is_over = AtomicBool::new(false);
    let logins = async || {
        let mut made = Vec::new();
        while !is_over.load(Ordering::Relaxed) {
            let answer = guarded.ask(guarded.follower, "", Method::POST, "/v1/acl/login", &body).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            made.push((index(&answer.json, "CreateIndex"), answer.json["Local"].as_bool().unwrap()));
        }
        made
    };
    let changes = async {
        let mut versions = vec![(index(&first, "ModifyIndex"), true)];
        for number in 0..CHANGES {
            let is_local = number % 2 == 1;
            let method = located(if is_local { "local" } else { "global" });
            let changed = guarded.done(Method::PUT, "/v1/acl/auth-method/people", method).await;
            versions.push((index(&changed, "ModifyIndex"), is_local));
        }
        is_over.store(true, Ordering::Relaxed);
        versions
    };
    let (made, versions) = tokio::join!(join_all((0..CLIENTS).map(|_| logins())), changes);
    assert!(made.iter().all(|made| !made.is_empty()));
    for (created, is_local) in made.into_iter().flatten() {
        let (_, expected) = versions.iter().rfind(|(modified, _)| *modified < created).unwrap();
        assert_eq!(is_local, *expected, "the token of entry {created}: {versions:?}");
    }
}
