//! Tokens, policies and roles: the bootstrap, and the answer of each endpoint.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use headwater::node::{AclOptions, RequestContext, Secret, UserPassword};
use headwater::types::LogIndex;
use headwater::types::auth::AuthCommand;
use http::Method;
use serde_json::{Value, json};

use super::{Guarded, denying};
use crate::cluster::{Cluster, Settings, wait_until, within};
use crate::consul_http::ask;

#[tokio::test(flavor = "multi_thread")]
async fn without_lists_nothing_is_judged() {
    let cluster = Cluster::start(Settings { members: 1, ..Settings::calm() }).await;
    for path in ["/v1/acl/bootstrap", "/v1/acl/token", "/v1/acl/policy", "/v1/acl/login"] {
        let answer = ask(&cluster, 0, Method::PUT, path, "{}").await;
        assert_eq!((answer.status, answer.text.as_str()), (401, "ACL support disabled"), "{path}");
    }
    let answer = ask(&cluster, 0, Method::PUT, "/v1/kv/a?token=anything", "1").await;
    assert_eq!((answer.status, answer.text.as_str()), (200, "true"));
    assert_eq!(answer.headers["x-consul-default-acl-policy"], "allow");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bootstrap_makes_one_token_and_says_how_to_repeat_it() {
    let guarded = Guarded::start().await;
    for member in guarded.cluster.running() {
        let again = guarded.ask(member, "", Method::PUT, "/v1/acl/bootstrap", "").await;
        assert_eq!(again.status, 403);
        let wanted = "Permission denied: ACL bootstrap no longer allowed (reset index: ";
        assert!(again.text.starts_with(wanted), "{}", again.text);
        let own = guarded.ask(member, &guarded.root, Method::GET, "/v1/acl/token/self", "").await;
        assert_eq!(own.json["SecretID"], json!(guarded.root));
        assert_eq!(
            own.json["Policies"],
            json!([{"ID": "00000000-0000-0000-0000-000000000001", "Name": "global-management"}])
        );
        let unknown = guarded.ask(member, "no-such-secret", Method::GET, "/v1/acl/token/self", "").await;
        assert_eq!((unknown.status, unknown.text.as_str()), (403, "ACL not found"));
        let anonymous = guarded.ask(member, "", Method::GET, "/v1/acl/token/self", "").await;
        assert_eq!(anonymous.json["AccessorID"], "00000000-0000-0000-0000-000000000002");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_users_the_first_token_is_given_to_root_alone() {
    let guarded = Guarded::start_bare(denying).await;
    let node = guarded.cluster.node(guarded.follower);
    let context = RequestContext::system(Duration::from_secs(30));
    for name in ["root", "u"] {
        let password = node.auth().hash(&context, UserPassword::Plain(Secret::new("canary"))).await.unwrap();
        let (user, role) = (name.to_owned(), name.to_owned());
        for command in [
            AuthCommand::UserAdd { name: user.clone(), password },
            AuthCommand::RoleAdd { name: role.clone() },
            AuthCommand::UserGrantRole { user, role },
        ] {
            node.auth().change(&context, command).await.unwrap();
        }
    }
    node.auth().change(&context, AuthCommand::Enable).await.unwrap();
    let bootstrap = async |member: usize, credentials: Option<&str>| {
        let headers: Vec<_> =
            credentials.map(|it| ("authorization", format!("Basic {}", STANDARD.encode(it)))).into_iter().collect();
        guarded.ask_with(member, &headers, Method::PUT, "/v1/acl/bootstrap", "").await
    };
    for member in guarded.cluster.running() {
        guarded.settled(member).await;
        for credentials in [None, Some("u:canary")] {
            let refused = bootstrap(member, credentials).await;
            assert_eq!(refused.status, 403, "{credentials:?}: {refused:?}");
        }
    }
    let made = bootstrap(guarded.follower, Some("root:canary")).await;
    assert_eq!(made.status, 200, "{made:?}");
    let token = made.json["SecretID"].as_str().unwrap();
    let listed = guarded.ask(guarded.follower, token, Method::GET, "/v1/acl/tokens", "").await;
    assert_eq!(listed.status, 200, "{listed:?}");
}

/// The options [`denying`], with [`FIRST`] as the secret of the first management token.
fn with_first_token() -> AclOptions {
    AclOptions { initial_management: Some(Secret::new(FIRST)), ..denying() }
}

const FIRST: &str = "8f246f6e-0f1f-4a28-b6d7-4d5ea1b4f9c2";

#[tokio::test(flavor = "multi_thread")]
async fn no_client_bootstraps_if_the_settings_have_the_first_token() {
    let guarded = Guarded::start_bare(with_first_token).await;
    let refuse = async |member: usize| {
        let refused = guarded.ask(member, "", Method::PUT, "/v1/acl/bootstrap", "").await;
        assert_eq!(refused.status, 403, "{refused:?}");
        let wanted = "Permission denied: ACL bootstrap no longer allowed";
        assert!(refused.text.starts_with(wanted), "{}", refused.text);
    };
    // The leader may not have made the token yet: the refusal is the same.
    refuse(guarded.follower).await;
    wait_until("every member knows the token", async || {
        for member in guarded.cluster.running() {
            if guarded.ask(member, FIRST, Method::GET, "/v1/acl/tokens", "").await.status != 200 {
                return false;
            }
        }
        true
    })
    .await;
    for member in guarded.cluster.running() {
        refuse(member).await;
        let context = RequestContext::system(Duration::from_secs(10));
        let bootstrapped = guarded.cluster.node(member).acl().bootstrapped(&context).await.unwrap();
        assert!(bootstrapped > LogIndex::ZERO, "members without the setting take no bootstrap either");
    }
    let listed = guarded.ask(guarded.follower, FIRST, Method::GET, "/v1/acl/tokens", "").await;
    let names: Vec<_> = listed.json.as_array().unwrap().iter().map(|it| it["Description"].as_str().unwrap()).collect();
    assert_eq!(names.iter().filter(|name| **name == "Initial Management Token").count(), 1, "{names:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_made_read_changed_copied_and_removed() {
    let guarded = Guarded::start().await;
    let policy = guarded.policy("kv", "key_prefix \"a/\" { policy = \"write\" }").await;
    let body = json!({
        "Description": "one", "Policies": [{"ID": policy}], "ServiceIdentities": [{"ServiceName": "web"}],
        "NodeIdentities": [{"NodeName": "n", "Datacenter": "dc1"}],
        "TemplatedPolicies": [{"TemplateName": "builtin/service", "TemplateVariables": {"Name": "db"}}],
    });
    let made = guarded.done(Method::PUT, "/v1/acl/token", &body).await;
    let (accessor, secret) = (made["AccessorID"].as_str().unwrap(), made["SecretID"].as_str().unwrap());
    assert_eq!(made["Policies"], json!([{"ID": policy, "Name": "kv"}]));
    for member in ["ServiceIdentities", "NodeIdentities", "TemplatedPolicies", "Description"] {
        assert_eq!(made[member], body[member], "{member}");
    }
    assert_eq!((&made["Local"], &made["CreateIndex"]), (&json!(false), &made["ModifyIndex"]));
    // Only the answer to the creation shows the secret, and answers to its holder.
    let path = format!("/v1/acl/token/{accessor}");
    let read = guarded.done(Method::GET, &path, "").await;
    assert_eq!(read["SecretID"], "<hidden>");
    let own = guarded.ask(guarded.follower, secret, Method::GET, "/v1/acl/token/self", "").await;
    assert_eq!((&own.json["AccessorID"], &own.json["SecretID"]), (&json!(accessor), &json!(secret)));
    // A change replaces the links; the secret stays.
    let changed = guarded
        .done(Method::PUT, &path, json!({"AccessorID": accessor, "SecretID": "<hidden>", "Description": "two"}))
        .await;
    assert_eq!((&changed["Description"], &changed["Policies"]), (&json!("two"), &Value::Null));
    assert_eq!(changed["CreateIndex"], made["CreateIndex"]);
    assert!(changed["ModifyIndex"].as_u64() > made["ModifyIndex"].as_u64());
    let copy = guarded.done(Method::PUT, &format!("{path}/clone"), json!({"Description": "three"})).await;
    assert_ne!(copy["SecretID"], json!(secret));
    let listed = guarded.done(Method::GET, "/v1/acl/tokens", "").await;
    let names: Vec<_> = listed.as_array().unwrap().iter().map(|it| it["Description"].as_str().unwrap()).collect();
    for name in ["Anonymous Token", "Bootstrap Token (Global Management)", "two", "three"] {
        assert!(names.contains(&name), "{name} {names:?}");
    }
    assert_eq!(guarded.done(Method::DELETE, &path, "").await, json!(true));
    let gone = guarded.ask(guarded.follower, &guarded.root, Method::GET, &path, "").await;
    assert_eq!((gone.status, gone.text.as_str()), (404, "token does not exist: ACL not found"));
    let gone = guarded.ask(guarded.follower, secret, Method::GET, "/v1/kv/a/x", "").await;
    assert_eq!((gone.status, gone.text.as_str()), (403, "ACL not found"));
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_and_roles_have_names_and_rules_have_lines() {
    let guarded = Guarded::start().await;
    let policy = guarded.policy("ops", "operator = \"read\"").await;
    let by_name = guarded.done(Method::GET, "/v1/acl/policy/name/ops", "").await;
    assert_eq!((&by_name["ID"], &by_name["Rules"]), (&json!(policy), &json!("operator = \"read\"")));
    let listed = guarded.done(Method::GET, "/v1/acl/policies", "").await;
    let names: Vec<_> = listed.as_array().unwrap().iter().map(|it| it["Name"].as_str().unwrap()).collect();
    assert_eq!(names, ["global-management", "builtin/global-read-only", "ops"]);
    let role = guarded.done(Method::PUT, "/v1/acl/role", json!({"Name": "staff", "Policies": [{"Name": "ops"}]})).await;
    assert_eq!(role["Policies"], json!([{"ID": policy, "Name": "ops"}]));
    let by_name = guarded.done(Method::GET, "/v1/acl/role/name/staff", "").await;
    assert_eq!(by_name["ID"], role["ID"]);
    // A policy that is gone is not shown any more.
    guarded.done(Method::DELETE, &format!("/v1/acl/policy/{policy}"), "").await;
    let by_name = guarded.done(Method::GET, "/v1/acl/role/name/staff", "").await;
    assert_eq!(by_name["Policies"], Value::Null);
    for (method, path, body, status, text) in [
        (
            Method::PUT,
            "/v1/acl/policy",
            json!({"Name": "x", "Rules": "operator = \"read\"\nkeys \"a\" { policy = \"read\" }"}),
            400,
            "Invalid Policy: Failed to parse ACL rules: line 2: \"keys\" is no kind of rule",
        ),
        (Method::PUT, "/v1/acl/policy", json!({"Name": "a b"}), 400, "Invalid Policy: invalid Name"),
        (Method::PUT, "/v1/acl/policy", json!({"Name": "global-management"}), 400, "A Policy with Name"),
        (Method::DELETE, "/v1/acl/policy/00000000-0000-0000-0000-000000000001", json!({}), 400, "not permitted"),
        (Method::GET, "/v1/acl/policy/name/none", json!({}), 404, "policy does not exist: ACL not found"),
        (Method::PUT, "/v1/acl/token", json!({"Policies": [{"Name": "none"}]}), 400, "No such ACL policy with name"),
        (Method::PUT, "/v1/acl/token", json!({"Roles": [{"ID": "none"}]}), 400, "No such ACL role with ID"),
        (Method::PUT, "/v1/acl/token", json!({"SecretID": "short"}), 400, "SecretID is not a valid UUID"),
        (Method::PUT, "/v1/acl/token", json!({"ExpirationTTL": "25h"}), 400, "ExpirationTime must be"),
        (Method::PUT, "/v1/acl/token", json!({"ServiceIdentities": [{"ServiceName": "a b"}]}), 400, "invalid name"),
        (Method::DELETE, "/v1/acl/token/00000000-0000-0000-0000-000000000002", json!({}), 400, "anonymous token"),
        (Method::PUT, "/v1/acl/create", json!({}), 410, "removed in Consul 1.11"),
        (Method::GET, "/v1/acl/list", json!({}), 410, "removed in Consul 1.11"),
        (Method::GET, "/v1/acl/templated-policy/name/builtin/none", json!({}), 404, "does not exist"),
    ] {
        let answer = guarded.ask(guarded.follower, &guarded.root, method, path, body).await;
        assert_eq!(answer.status, status, "{path}: {answer:?}");
        assert!(answer.text.contains(text), "{path}: {}", answer.text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn templates_are_shown_and_filled() {
    let guarded = Guarded::start().await;
    let all = guarded.done(Method::GET, "/v1/acl/templated-policies", "").await;
    assert_eq!(all["builtin/service"]["TemplateName"], "builtin/service");
    let shown = guarded
        .ask(
            guarded.follower,
            &guarded.root,
            Method::POST,
            "/v1/acl/templated-policy/preview/builtin/node",
            json!({"Name": "n7"}),
        )
        .await;
    assert!(shown.json["Rules"].as_str().unwrap().starts_with("node \"n7\" {"), "{shown:?}");
    let replication = guarded.done(Method::GET, "/v1/acl/replication", "").await;
    assert_eq!((&replication["Enabled"], &replication["Running"]), (&json!(false), &json!(false)));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lists_need_rights_to_the_lists() {
    let guarded = Guarded::start().await;
    let (accessor, reader) = guarded.token("reader", "acl = \"read\"").await;
    let (_, other) = guarded.token("other", "operator = \"write\"").await;
    for member in guarded.cluster.running() {
        let listed = guarded.ask(member, &reader, Method::GET, "/v1/acl/tokens", "").await;
        assert_eq!(listed.status, 200);
        for secret in [guarded.root.as_str(), other.as_str()] {
            assert!(!listed.text.contains(secret));
        }
        let answer = guarded.ask(member, &reader, Method::PUT, "/v1/acl/token", "{}").await;
        let wanted = format!("Permission denied: token with AccessorID '{accessor}' lacks permission 'acl:write'");
        assert_eq!((answer.status, answer.text.as_str()), (403, wanted.as_str()));
        // Denied before the existence is looked up.
        for path in ["/v1/acl/token/none", "/v1/acl/policy/none", "/v1/acl/role/none", "/v1/acl/auth-method/none"] {
            let answer = guarded.ask(member, &other, Method::GET, path, "").await;
            assert_eq!(answer.status, 403, "{path}");
            assert!(answer.text.contains("lacks permission 'acl:read'"), "{}", answer.text);
        }
        let answer = guarded.ask(member, "", Method::GET, "/v1/acl/policies", "").await;
        let wanted = "Permission denied: anonymous token lacks permission 'acl:read'. \
                      The anonymous token is used implicitly when a request does not specify a token.";
        assert_eq!((answer.status, answer.text.as_str()), (403, wanted));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_ends_by_the_clock_and_is_removed() {
    let guarded = Guarded::start().await;
    guarded.policy("kv", "key_prefix \"\" { policy = \"write\" }").await;
    let body = json!({"Policies": [{"Name": "kv"}], "ExpirationTTL": "2s"});
    let made = guarded.done(Method::PUT, "/v1/acl/token", body).await;
    assert!(made["ExpirationTime"].is_string());
    let secret = made["SecretID"].as_str().unwrap();
    let path = format!("/v1/acl/token/{}", made["AccessorID"].as_str().unwrap());
    assert_eq!(guarded.ask(guarded.follower, secret, Method::PUT, "/v1/kv/a", "1").await.status, 200);
    let is_gone = async {
        loop {
            let answer = guarded.ask(guarded.follower, secret, Method::GET, "/v1/kv/a", "").await;
            if answer.status == 403 {
                break assert_eq!(answer.text, "ACL not found");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    within("the token ends", is_gone).await;
    let is_removed = async {
        while guarded.ask(guarded.follower, &guarded.root, Method::GET, &path, "").await.status != 404 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    within("the token is removed", is_removed).await;
}
