//! Instances and names as people read them.

use headwater_proto::pb::pbservice::CheckServiceNode;

/// Columns of [`row`].
pub(super) const HEADER: &[&str] = &["NODE", "SERVICE", "ID", "ADDRESS", "HEALTH", "TAGS"];

/// An instance as a row.
pub(super) fn row(instance: &CheckServiceNode) -> Vec<String> {
    let (node, service) = (instance.node.clone().unwrap_or_default(), instance.service.clone().unwrap_or_default());
    let host = if service.address.is_empty() { node.address } else { service.address };
    let address = match (service.socket_path.is_empty(), service.port) {
        (false, _) => service.socket_path,
        (true, 0) => host,
        (true, port) if host.contains(':') => format!("[{host}]:{port}"),
        (true, port) => format!("{host}:{port}"),
    };
    let health = health(instance).to_owned();
    vec![node.node, service.service, service.id, address, health, service.tags.join(",")]
}

/// The worst status of an instance's checks; `passing` without checks.
fn health(instance: &CheckServiceNode) -> &str {
    let badness = |status: &str| match status {
        "passing" => 0,
        "warning" => 1,
        _ => 2,
    };
    let worst = instance.checks.iter().max_by_key(|check| badness(&check.status));
    worst.map_or("passing", |check| check.status.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_proto::pb::pbservice::{HealthCheck, Node, NodeService};

    #[test]
    fn an_instance_is_as_healthy_as_its_worst_check() {
        let check = |status: &str| HealthCheck { status: status.to_owned(), ..Default::default() };
        for (checks, wanted) in [
            (vec![], "passing"),
            (vec!["passing"], "passing"),
            (vec!["passing", "warning"], "warning"),
            (vec!["critical", "warning", "passing"], "critical"),
        ] {
            let checks = checks.into_iter().map(check).collect();
            assert_eq!(health(&CheckServiceNode { checks, ..Default::default() }), wanted);
        }
    }

    #[test]
    fn an_instance_without_an_address_is_at_that_of_its_node() {
        let instance = |address: &str, port, socket_path: &str| CheckServiceNode {
            node: Some(Node { node: "n".to_owned(), address: "10.0.0.1".to_owned(), ..Default::default() }),
            service: Some(NodeService {
                address: address.to_owned(),
                port,
                socket_path: socket_path.to_owned(),
                ..Default::default()
            }),
            checks: vec![],
        };
        for (instance, wanted) in [
            (instance("", 80, ""), "10.0.0.1:80"),
            (instance("10.0.0.2", 0, ""), "10.0.0.2"),
            (instance("fe80::1", 80, ""), "[fe80::1]:80"),
            (instance("", 80, "/run/web"), "/run/web"),
        ] {
            assert_eq!(row(&instance)[3], wanted);
        }
    }
}
