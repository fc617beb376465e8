//! `headwater register` and `headwater deregister`.

use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};

use super::http::{Call, encode};
use crate::ClientArgs;
use crate::connect::Cluster;
use crate::error::CliError;
use crate::output::{WriteOut, print_json};

/// Register an instance of a service, or change it
///
/// Without --node it is registered on the node that is asked, under the name of that member. A node
/// that is not in the catalog yet needs a --node-address and is registered with it; without that
/// option, an existing node is not changed. The status is a plain value, which no program checks;
/// with --ttl it turns critical unless it is refreshed in time.
#[derive(Clone, Debug, Args)]
pub(crate) struct RegisterArgs {
    /// The service's name
    #[arg(required_unless_present = "node")]
    service: Option<String>,
    /// The instance's id, unique on its node [default: the service's name]
    #[arg(long, requires = "service")]
    id: Option<String>,
    /// The instance's address [default: the node's]
    #[arg(long, requires = "service")]
    address: Option<String>,
    /// The instance's port
    #[arg(long, requires = "service")]
    port: Option<u16>,
    /// A tag; may be given several times
    #[arg(long, value_name = "TAG", requires = "service")]
    tag: Vec<String>,
    /// Metadata of the instance; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair, requires = "service")]
    meta: Vec<(String, String)>,
    /// The node of the instance [default: the member that is asked]
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// The node's address [default: the one that it has]
    #[arg(long, value_name = "ADDRESS", requires = "node")]
    node_address: Option<String>,
    /// Metadata of the node; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair, requires = "node_address")]
    node_meta: Vec<(String, String)>,
    /// Register a check with this status [default with --ttl: critical]
    #[arg(long, value_enum)]
    status: Option<Status>,
    /// Output of the check
    #[arg(long, requires = "status", default_value = "", hide_default_value = true)]
    output: String,
    /// Time without a refresh after which the check turns critical (PUT /v1/agent/check/pass/ID)
    #[arg(long, value_parser = crate::parse_duration, value_name = "DURATION", requires = "service", conflicts_with = "node")]
    ttl: Option<Duration>,
}

/// Remove an instance, a check, or a node with everything on it
#[derive(Clone, Debug, Args)]
pub(crate) struct DeregisterArgs {
    /// The instance's id (`headwater health` shows it)
    #[arg(required_unless_present_any = ["node", "check"])]
    id: Option<String>,
    /// Node of the instance or check; with neither an id nor a check, the node itself is removed
    /// [default: the member that is asked]
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Remove only this check
    #[arg(long, value_name = "ID", conflicts_with = "id")]
    check: Option<String>,
}

/// Status of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Status {
    Passing,
    Warning,
    Critical,
}

impl Status {
    fn word(self) -> &'static str {
        match self {
            Self::Passing => "passing",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE")?;
    if key.is_empty() { Err("the key is empty".to_owned()) } else { Ok((key.to_owned(), value.to_owned())) }
}

/// The node of the catalog that a registration names.
#[derive(Debug)]
struct TargetNode {
    name: String,
    address: String,
    /// Id of the member that the node stands for; empty for any other node.
    member_id: String,
    /// Whether an existing node is left unchanged (`SkipNodeUpdate`).
    is_left_alone: bool,
}

/// The node of the catalog that stands for the member that answers this request.
async fn member(cluster: &Cluster) -> Result<TargetNode, CliError> {
    let own = Call::get("/v1/agent/self", &[]).send(cluster).await?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let config = &own["Config"];
    Ok(TargetNode {
        name: text(&config["NodeName"]),
        address: text(&own["Member"]["Addr"]),
        member_id: text(&config["NodeID"]),
        is_left_alone: true,
    })
}

/// Reads the node `name` of the catalog; an error if there is none.
async fn known(name: &str, cluster: &Cluster) -> Result<TargetNode, CliError> {
    let found = Call::get(&format!("/v1/catalog/node/{}", encode(name)), &[]).send(cluster).await?;
    let node = &found["Node"];
    match (node["Node"].as_str(), node["Address"].as_str()) {
        (Some(name), Some(address)) => Ok(TargetNode {
            name: name.to_owned(),
            address: address.to_owned(),
            member_id: String::new(),
            is_left_alone: true,
        }),
        _ => Err(CliError::Finding(format!("node {name} is not in the catalog yet: give its --node-address"))),
    }
}

fn object(pairs: &[(String, String)]) -> Value {
    pairs.iter().map(|(key, value)| (key.clone(), Value::from(value.as_str()))).collect::<Map<_, _>>().into()
}

pub(crate) async fn register(args: RegisterArgs, cluster: &Cluster, client: &ClientArgs) -> Result<(), CliError> {
    let on = match (&args.node, &args.node_address) {
        (Some(name), Some(address)) => {
            TargetNode { name: name.clone(), address: address.clone(), member_id: String::new(), is_left_alone: false }
        }
        (Some(name), None) => known(name, cluster).await?,
        (None, _) => member(cluster).await?,
    };
    let done = Call::put("/v1/catalog/register", &body(&args, &on)).send(cluster).await?;
    let node = &on.name;
    let mut out = std::io::stdout().lock();
    match (client.write_out, &args.service) {
        (WriteOut::Json, _) => print_json(&mut out, &done),
        (WriteOut::Simple | WriteOut::Table, Some(service)) => {
            let id = args.id.as_ref().unwrap_or(service);
            said(&mut out, &format!("{service} is registered on {node} as {id}"))?;
            match args.ttl {
                Some(ttl) => {
                    let (ttl, check) = (humantime::format_duration(ttl), encode(&format!("service:{id}")));
                    said(&mut out, &format!("report at least every {ttl}: PUT /v1/agent/check/pass/{check} at {node}"))
                }
                None => Ok(()),
            }
        }
        (WriteOut::Simple | WriteOut::Table, None) => said(&mut out, &format!("node {node} is registered")),
    }
}

fn said(out: &mut impl std::io::Write, text: &str) -> Result<(), CliError> {
    Ok(writeln!(out, "{text}")?)
}

/// Body of the registration of `args` at the node `on`. Sets `SkipNodeUpdate`, which leaves an
/// existing node unchanged, unless the arguments describe the node.
fn body(args: &RegisterArgs, on: &TargetNode) -> Value {
    let node = &on.name;
    let mut body = json!({ "Node": node, "Address": on.address, "SkipNodeUpdate": on.is_left_alone });
    if !on.member_id.is_empty() {
        body["ID"] = on.member_id.as_str().into();
    }
    if !args.node_meta.is_empty() {
        body["NodeMeta"] = object(&args.node_meta);
    }
    let id = args.service.as_ref().map(|service| args.id.as_ref().unwrap_or(service));
    if let (Some(service), Some(id)) = (&args.service, id) {
        body["Service"] = json!({ "Service": service, "ID": id, "Tags": args.tag, "Meta": object(&args.meta) });
        if let Some(address) = &args.address {
            body["Service"]["Address"] = address.as_str().into();
        }
        if let Some(port) = args.port {
            body["Service"]["Port"] = port.into();
        }
    }
    if args.status.is_some() || args.ttl.is_some() {
        let status = args.status.map_or("critical", Status::word);
        let (check, name) = match (id, &args.service) {
            (Some(id), Some(service)) => (format!("service:{id}"), format!("Service '{service}' check")),
            _ => (format!("node:{node}"), format!("Node '{node}' check")),
        };
        body["Check"] = json!({ "CheckID": check, "Name": name, "Status": status, "Output": args.output });
        if let Some(id) = id {
            body["Check"]["ServiceID"] = id.as_str().into();
        }
        if let Some(ttl) = args.ttl {
            body["Check"]["Definition"] = json!({ "TTL": format!("{}ms", ttl.as_millis()) });
        }
    }
    body
}

pub(crate) async fn deregister(args: DeregisterArgs, cluster: &Cluster, client: &ClientArgs) -> Result<(), CliError> {
    let node = match &args.node {
        Some(node) => node.clone(),
        None => member(cluster).await?.name,
    };
    if let Some(nothing) = nothing_to_remove(&args, &node, cluster).await? {
        return Err(CliError::Finding(nothing));
    }
    let mut body = json!({ "Node": node });
    let what = match (&args.id, &args.check) {
        (Some(id), _) => {
            body["ServiceID"] = id.as_str().into();
            format!("{id} is not registered on {node} any more")
        }
        (None, Some(check)) => {
            body["CheckID"] = check.as_str().into();
            format!("check {check} is not registered on {node} any more")
        }
        (None, None) => format!("node {node} is not registered any more"),
    };
    let done = Call::put("/v1/catalog/deregister", &body).send(cluster).await?;
    let mut out = std::io::stdout().lock();
    match client.write_out {
        WriteOut::Json => print_json(&mut out, &done),
        WriteOut::Simple | WriteOut::Table => said(&mut out, &what),
    }
}

/// The error text if `node` has nothing that `args` would remove; `None` if it has something.
/// Needed because the server accepts the removal of an absent row.
async fn nothing_to_remove(args: &DeregisterArgs, node: &str, cluster: &Cluster) -> Result<Option<String>, CliError> {
    let whole = Call::get(&format!("/v1/catalog/node/{}", encode(node)), &[]).send(cluster).await?;
    if whole["Node"].is_null() {
        return Ok(Some(format!("there is no node {node}; `headwater nodes` shows those that there are")));
    }
    if let Some(check) = &args.check {
        let checks = Call::get(&format!("/v1/health/node/{}", encode(node)), &[]).send(cluster).await?;
        let is_there = rows(&checks).iter().any(|row| row["CheckID"] == check.as_str());
        return Ok((!is_there).then(|| format!("there is no check {check} on {node}")));
    }
    let Some(id) = &args.id else { return Ok(None) };
    if whole["Services"].get(id).is_some() {
        return Ok(None);
    }
    // Most instances have the name of their service as id.
    let same_name = Call::get(&format!("/v1/catalog/service/{}", encode(id)), &[]).send(cluster).await?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let other_nodes: Vec<String> = rows(&same_name)
        .iter()
        .map(|row| format!("{} --node {}", text(&row["ServiceID"]), text(&row["Node"])))
        .collect();
    let hint = match other_nodes.as_slice() {
        [] => "`headwater services` and `headwater health NAME` show what there is".to_owned(),
        found => format!("there is: headwater deregister {}", found.join(", or ")),
    };
    Ok(Some(format!("there is no instance {id} on {node}; {hint}")))
}

fn rows(list: &Value) -> &[Value] {
    list.as_array().map(Vec::as_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: RegisterArgs,
    }

    fn on(name: &str, address: &str, member_id: &str, is_left_alone: bool) -> TargetNode {
        TargetNode {
            name: name.to_owned(),
            address: address.to_owned(),
            member_id: member_id.to_owned(),
            is_left_alone,
        }
    }

    fn parsed(line: &str) -> RegisterArgs {
        Line::try_parse_from(line.split(' ')).unwrap().args
    }

    #[test]
    fn an_instance_goes_to_the_member_that_is_asked() {
        let args = parsed("register web --port 80 --tag a --tag b --meta v=1 --status passing --ttl 10s");
        assert_eq!(
            body(&args, &on("node1", "127.0.0.1", "id", true)),
            json!({
                "ID": "id", "Node": "node1", "Address": "127.0.0.1", "SkipNodeUpdate": true,
                "Service": {"Service": "web", "ID": "web", "Tags": ["a", "b"], "Meta": {"v": "1"}, "Port": 80},
                "Check": {
                    "CheckID": "service:web", "Name": "Service 'web' check", "Status": "passing", "Output": "",
                    "ServiceID": "web", "Definition": {"TTL": "10000ms"},
                },
            })
        );
    }

    #[test]
    fn a_node_of_its_own_is_registered_with_it() {
        let args =
            parsed("register web --id web-2 --address 10.0.0.9 --node n1 --node-address 10.0.0.1 --node-meta r=1");
        assert_eq!(
            body(&args, &on("n1", "10.0.0.1", "", false)),
            json!({
                "Node": "n1", "Address": "10.0.0.1", "SkipNodeUpdate": false, "NodeMeta": {"r": "1"},
                "Service": {"Service": "web", "ID": "web-2", "Tags": [], "Meta": {}, "Address": "10.0.0.9"},
            })
        );
        let args = parsed("register web --id web-2 --node n1 --status warning --output slow");
        assert_eq!(
            body(&args, &on("n1", "10.0.0.1", "", true)),
            json!({
                "Node": "n1", "Address": "10.0.0.1", "SkipNodeUpdate": true,
                "Service": {"Service": "web", "ID": "web-2", "Tags": [], "Meta": {}},
                "Check": {
                    "CheckID": "service:web-2", "Name": "Service 'web' check", "Status": "warning", "Output": "slow",
                    "ServiceID": "web-2",
                },
            })
        );
        for bad in [
            "register",
            "register web --node-address 10.0.0.1",
            "register web --node n1 --node-meta r=1",
            "register --port 80 --node n --node-address a",
            "register web --meta x",
        ] {
            assert!(Line::try_parse_from(bad.split(' ')).is_err(), "{bad}");
        }
    }
}
