//! Paths of Consul's HTTP API that are not served: the answer gives the reason, often with an
//! alternative.
//!
//! Owns the table, which docs/consul.md shows. Must not know the served paths: `routes` is asked
//! first. A path that ends in `/` matches itself without the slash and everything below it.

/// Paths that are not served, with their common reason.
struct UnservedPaths {
    paths: &'static [&'static str],
    /// The end of a sentence that begins with the path.
    reason: &'static str,
}

/// Paths of Consul that are not served, grouped by reason.
const ABSENT: &[UnservedPaths] = &[
    UnservedPaths {
        paths: &["/v1/acl/authorize"],
        reason: "it is not part of the access control lists that are served",
    },
    UnservedPaths {
        paths: &["/v1/agent/token/"],
        reason: "an agent needs no token: it is a member, and the token for DNS is the setting acl.dns-token",
    },
    UnservedPaths {
        paths: &["/v1/agent/connect/", "/v1/connect/ca/"],
        reason: "there is no certificate authority: the mesh's instances are in the catalog, their certificates are not",
    },
    UnservedPaths {
        paths: &["/v1/connect/intentions/"],
        reason: "there are no intentions: the proxies of a mesh have to be told by other means who may call whom",
    },
    UnservedPaths {
        paths: &["/v1/discovery-chain/"],
        reason: "there are no discovery chains: ask /v1/health/connect/NAME for the instances",
    },
    UnservedPaths {
        paths: &["/v1/health/ingress/"],
        reason: "there is no configuration of ingress gateways: ask /v1/health/service/NAME for the instances",
    },
    UnservedPaths {
        paths: &["/v1/exported-services/", "/v1/imported-services/", "/v1/peering/", "/v1/peerings"],
        reason: "clusters are not peered: a subscription may name a datacenter of consul.remote-datacenters",
    },
    UnservedPaths {
        paths: &["/v1/namespace/", "/v1/namespaces", "/v1/partition/", "/v1/partitions"],
        reason: "there is one namespace and one partition, both called default",
    },
    UnservedPaths {
        paths: &["/v1/coordinate/"],
        reason: "there are no network coordinates: answers are sorted by node and id, whatever ?near says",
    },
    UnservedPaths {
        paths: &["/v1/event/"],
        reason: "there are no user events: write a key and let others wait for it",
    },
    UnservedPaths {
        paths: &["/v1/query/"],
        reason: "there are no prepared queries: ask /v1/health/service/NAME with ?passing, ?tag and ?filter",
    },
    UnservedPaths {
        paths: &["/v1/snapshot"],
        reason: "backups are made by `headwater snapshot save` and restored by `headwater snapshot restore`",
    },
    UnservedPaths {
        paths: &["/v1/operator/raft/"],
        reason: "members are shown and changed by `headwater member`, and leadership moved by `headwater move-leader`",
    },
    UnservedPaths {
        paths: &["/v1/operator/"],
        reason: "a cluster is run with `headwater` (member, status, alarm) or etcd's tools",
    },
    UnservedPaths {
        paths: &["/v1/agent/join/", "/v1/agent/leave", "/v1/agent/force-leave/"],
        reason: "there is no gossip: members come and go by `headwater member`",
    },
    UnservedPaths {
        paths: &["/v1/agent/reload", "/v1/agent/host", "/v1/agent/monitor", "/v1/agent/profile"],
        reason: "a server is looked after by its own log, settings and flags",
    },
    UnservedPaths { paths: &["/v1/agent/metrics/"], reason: "metrics are at /metrics, in Prometheus's form" },
    UnservedPaths {
        paths: &["/v1/internal/"],
        reason: "it is for Consul's own programs, and there is no user interface",
    },
];

/// The reason why a path of Consul is not served, as a sentence. `None` for a path outside of the
/// table.
pub(super) fn reason(path: &str) -> Option<String> {
    let stands_for = |known: &str| match known.strip_suffix('/') {
        Some(head) => path.strip_prefix(head).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
        None => path == known,
    };
    let found = ABSENT.iter().flat_map(|absent| absent.paths.iter().map(move |known| (*known, absent.reason)));
    let (_, reason) = found.filter(|(known, _)| stands_for(known)).max_by_key(|(known, _)| known.len())?;
    Some(format!("{path} is not offered by Headwater: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::super::routes;
    use super::*;

    /// Paths of Consul's that are neither served nor below a served path.
    const OF_CONSUL: &[&str] = &[
        "/v1/acl/authorize",
        "/v1/agent/connect/authorize",
        "/v1/agent/connect/ca/leaf/web",
        "/v1/agent/connect/ca/roots",
        "/v1/agent/force-leave/n",
        "/v1/agent/host",
        "/v1/agent/join/10.0.0.1",
        "/v1/agent/leave",
        "/v1/agent/metrics",
        "/v1/agent/metrics/stream",
        "/v1/agent/monitor",
        "/v1/agent/profile",
        "/v1/agent/reload",
        "/v1/agent/token/default",
        "/v1/connect/ca/configuration",
        "/v1/connect/ca/roots",
        "/v1/connect/intentions",
        "/v1/connect/intentions/check",
        "/v1/connect/intentions/exact",
        "/v1/connect/intentions/match",
        "/v1/coordinate/datacenters",
        "/v1/coordinate/node/n",
        "/v1/coordinate/nodes",
        "/v1/coordinate/update",
        "/v1/discovery-chain/web",
        "/v1/event/fire/x",
        "/v1/event/list",
        "/v1/exported-services",
        "/v1/health/ingress/web",
        "/v1/imported-services",
        "/v1/internal/federation-states",
        "/v1/internal/service-virtual-ip",
        "/v1/internal/ui/services",
        "/v1/namespace",
        "/v1/namespace/x",
        "/v1/namespaces",
        "/v1/operator/area",
        "/v1/operator/autopilot/configuration",
        "/v1/operator/autopilot/health",
        "/v1/operator/autopilot/state",
        "/v1/operator/keyring",
        "/v1/operator/license",
        "/v1/operator/raft/configuration",
        "/v1/operator/raft/peer",
        "/v1/operator/raft/transfer-leader",
        "/v1/operator/segment",
        "/v1/operator/usage",
        "/v1/operator/utilization",
        "/v1/partition",
        "/v1/partitions",
        "/v1/peering/establish",
        "/v1/peering/token",
        "/v1/peerings",
        "/v1/query",
        "/v1/query/x",
        "/v1/query/x/execute",
        "/v1/query/x/explain",
        "/v1/snapshot",
    ];

    #[test]
    fn every_path_of_consuls_that_is_not_served_is_named() {
        for path in OF_CONSUL {
            assert!(routes::find(path).is_none(), "{path} is served");
            let text = reason(path).unwrap_or_else(|| panic!("{path} is not listed"));
            assert!(text.starts_with(&format!("{path} is not offered by Headwater: ")), "{text}");
        }
        for path in ["/v1", "/v1/nothing", "/v1/aclx", "/v1/snapshot/x", "/v1/agent", "/v1/catalog/nodes/x"] {
            assert_eq!(reason(path), None, "{path}");
        }
        assert!(reason("/v1/operator/raft/peer").unwrap().contains("headwater member"), "the longest one counts");
    }

    #[test]
    fn what_is_served_is_not_listed_as_absent() {
        for endpoint in routes::ENDPOINTS {
            assert_eq!(reason(endpoint.path), None, "{}", endpoint.path);
        }
    }

    #[test]
    fn the_page_lists_them_by_name() {
        let page = include_str!("../../../docs/consul.md");
        for path in ABSENT.iter().flat_map(|absent| absent.paths) {
            assert!(page.contains(&format!("`{path}`")), "docs/consul.md does not name {path}");
        }
    }
}
