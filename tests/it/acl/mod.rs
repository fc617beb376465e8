//! Consul's access control lists (spec: security §4), on the leader and on a follower.

mod enforcement;
mod late;
mod lists;
mod login;
mod streams;

use std::time::Duration;

use headwater::node::{AclOptions, RequestContext};
use headwater::types::Feature;
use http::{Method, Request, Version};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tokio::sync::watch;
use tonic::body::Body;

use crate::auth::start_held;
use crate::cluster::{Cluster, Settings, within};
use crate::consul_http::Answer;
use crate::gateway::client::Connection;

/// ACL options with default policy "allow": a token may do everything that its rules do not forbid.
pub fn allowing() -> AclOptions {
    AclOptions { enabled: true, default_allow: true, ..AclOptions::default() }
}

/// ACL options with default policy "deny": a token may do only the things that its rules permit.
pub fn denying() -> AclOptions {
    AclOptions { default_allow: false, ..allowing() }
}

/// A cluster with ACLs. `root` is the secret of its management token, empty before the bootstrap;
/// `follower` is a follower when the cluster starts.
pub struct Guarded {
    pub cluster: Cluster,
    pub root: String,
    pub follower: usize,
}

impl Guarded {
    /// Starts a cluster with the options [`denying`], and bootstraps its ACLs.
    pub async fn start() -> Self {
        Self::start_with(denying).await
    }

    /// Starts a cluster with these ACL options and bootstraps its ACLs: `root` is the secret of the
    /// management token.
    pub async fn start_with(acl: fn() -> AclOptions) -> Self {
        Self::start_bare(acl).await.bootstrapped().await
    }

    /// As [`start`](Self::start). Also returns the switches of [`start_held`], one for each member.
    pub async fn start_held() -> (Self, Vec<watch::Sender<bool>>) {
        let (cluster, holds) = start_held(Settings { acl: denying, ..Settings::calm() }).await;
        (Self::of(cluster).await.bootstrapped().await, holds)
    }

    /// Starts a cluster with these ACL options, without a bootstrap: `root` is empty.
    pub async fn start_bare(acl: fn() -> AclOptions) -> Self {
        Self::of(Cluster::start(Settings { acl, ..Settings::calm() }).await).await
    }

    async fn bootstrapped(mut self) -> Self {
        let done = self.ask(self.follower, "", Method::PUT, "/v1/acl/bootstrap", "").await;
        assert_eq!(done.status, 200, "{done:?}");
        self.root = done.json["SecretID"].as_str().unwrap().to_owned();
        self
    }

    async fn of(cluster: Cluster) -> Self {
        let follower = cluster.follower().await;
        // The version of a new cluster rises to that of its members soon after its start.
        let node = cluster.node(follower);
        let mut applied = node.applied();
        let is_risen = async {
            while !Feature::Acl.is_in(node.versions().cluster().version) {
                applied.changed().await.unwrap();
            }
        };
        within("the cluster rises", is_risen).await;
        Self { cluster, root: String::new(), follower }
    }

    /// Waits until a member has applied all writes that were answered before the call.
    pub async fn settled(&self, member: usize) {
        let context = RequestContext::system(Duration::from_secs(30));
        self.cluster.node(member).auth().status(&context).await.unwrap();
    }

    /// Sends an HTTP request to a member, with `token` as its secret unless that is empty.
    pub async fn ask(&self, member: usize, token: &str, method: Method, path: &str, body: impl ToString) -> Answer {
        let headers: Vec<_> =
            Some(("x-consul-token", token.to_owned())).filter(|_| !token.is_empty()).into_iter().collect();
        self.ask_with(member, &headers, method, path, body).await
    }

    /// Sends a request with headers to a member.
    pub async fn ask_with(
        &self,
        member: usize,
        headers: &[(&str, String)],
        method: Method,
        path: &str,
        body: impl ToString,
    ) -> Answer {
        let mut connection = Connection::open(&self.cluster.client_url(member), Version::HTTP_11).await;
        let body = Body::new(Full::new(body.to_string().into()));
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let response = connection.send(request.body(body).unwrap()).await;
        let (parts, body) = response.into_parts();
        let bytes = within("an answer ends", body.collect()).await.unwrap().to_bytes();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let json = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        Answer { status: parts.status.as_u16(), headers: parts.headers, text, json }
    }

    /// Sends a request with the management token to the follower. The answer must be 200; returns
    /// its JSON.
    pub async fn done(&self, method: Method, path: &str, body: impl ToString) -> Value {
        let answer = self.ask(self.follower, &self.root, method, path, body).await;
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer.json
    }

    /// Makes a policy, and returns its id.
    pub async fn policy(&self, name: &str, rules: &str) -> String {
        let made = self.done(Method::PUT, "/v1/acl/policy", json!({"Name": name, "Rules": rules})).await;
        made["ID"].as_str().unwrap().to_owned()
    }

    /// Makes the policy `name` with these rules, and a token of that policy. Returns the token's
    /// accessor and secret.
    pub async fn token(&self, name: &str, rules: &str) -> (String, String) {
        self.policy(name, rules).await;
        let made = self.done(Method::PUT, "/v1/acl/token", json!({"Policies": [{"Name": name}]})).await;
        let text = |member: &str| made[member].as_str().unwrap().to_owned();
        (text("AccessorID"), text("SecretID"))
    }

    /// Registers a passing instance of `service` on the catalog's node `node`, with the management
    /// token.
    pub async fn register(&self, node: &str, service: &str) {
        let body = json!({
            "Node": node, "Address": "10.0.0.1", "Service": {"Service": service, "Port": 80},
            "Check": {"CheckID": format!("service:{service}"), "Name": "alive", "Status": "passing", "ServiceID": service},
        });
        self.done(Method::PUT, "/v1/catalog/register", body).await;
    }
}
