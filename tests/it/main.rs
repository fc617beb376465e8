//! Tests of whole clusters in this process, also through crashes, restarts and snapshots.

// A test binary exports nothing; `pub` here means "used by the other modules".
#![allow(unreachable_pub)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod access;
mod acl;
mod alarms;
mod auth;
mod availability;
mod backup;
mod certs;
mod cluster;
mod commits;
mod console;
mod consul_http;
mod consul_kv;
mod contests;
mod damage;
mod descriptors;
mod disasters;
mod dns;

mod etcd_kv;
mod fairness;
mod forwarding;
mod gateway;
mod invitations;
mod leader_end;
mod lease_oracle;
mod leases;
mod limits;
mod membership;
mod metrics;
mod metrics_port;
mod no_leader;
mod peer_port;
mod real_clients;
mod recovery;
mod requests;
mod resource_tools;
mod resources;
mod revocation;
mod settings;
mod slow_readers;
mod snapshots;
mod sockets;
mod store;
mod subscribe;
mod tls;
mod url_authority;
mod versions;
mod waits;
mod watch;
mod watcher;
