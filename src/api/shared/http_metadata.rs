//! HTTP headers as gRPC metadata and back, named as in etcd's gateway: `Grpc-Metadata-NAME` is
//! metadata `name`.

use http::{HeaderMap, HeaderName};
use tonic::metadata::MetadataMap;

const PREFIX: &str = "grpc-metadata-";

/// Metadata for a service: credentials and `Grpc-Timeout` under their own names, and prefixed
/// headers without the prefix. Names of gRPC itself are left out.
pub fn incoming(headers: &HeaderMap) -> MetadataMap {
    let mut metadata = HeaderMap::new();
    for (name, value) in headers {
        let name = match name.as_str() {
            // The gateway enforces the timeout too, but the service can abandon its work.
            name @ ("authorization" | "grpc-timeout" | "token" | "x-consul-token") => name,
            name => match name.strip_prefix(PREFIX) {
                Some(rest) if !is_transport(rest) => rest,
                _ => continue,
            },
        };
        if let Ok(name) = HeaderName::from_bytes(name.as_bytes()) {
            metadata.append(name, value.clone());
        }
    }
    MetadataMap::from_headers(metadata)
}

/// Adds `metadata` of a service's answer to the client's `headers`, each name with the prefix.
/// Leaves out names that begin with `grpc-`.
pub fn outgoing(metadata: &HeaderMap, headers: &mut HeaderMap) {
    for (name, value) in metadata {
        if name.as_str().starts_with("grpc-") {
            continue;
        }
        if let Ok(name) = HeaderName::from_bytes(format!("{PREFIX}{name}").as_bytes()) {
            headers.append(name, value.clone());
        }
    }
}

/// Whether gRPC itself uses a name: a client of the gateway must not set it.
fn is_transport(name: &str) -> bool {
    name.is_empty() || name.starts_with("grpc-") || matches!(name, "content-type" | "te" | "user-agent")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn only_what_is_meant_for_a_service_reaches_it() {
        let given = headers(&[
            ("Authorization", "token"),
            ("Token", "a.1"),
            ("X-Consul-Token", "s"),
            ("Grpc-Timeout", "1S"),
            ("Grpc-Metadata-HasLeader", "true"),
            ("grpc-metadata-headwater-min-index", "7"),
            ("grpc-metadata-", "x"),
            ("grpc-metadata-grpc-timeout", "9H"),
            ("grpc-metadata-te", "x"),
            ("hasleader", "true"),
            ("content-type", "application/json"),
            ("cookie", "x"),
        ]);
        let wanted = headers(&[
            ("authorization", "token"),
            ("token", "a.1"),
            ("x-consul-token", "s"),
            ("grpc-timeout", "1S"),
            ("hasleader", "true"),
            ("headwater-min-index", "7"),
        ]);
        assert_eq!(incoming(&given).into_headers(), wanted);
    }

    #[test]
    fn what_a_service_says_has_the_prefix() {
        let mut metadata = HeaderMap::new();
        outgoing(&headers(&[("headwater-index", "7"), ("grpc-status", "0")]), &mut metadata);
        assert_eq!(metadata, headers(&[("grpc-metadata-headwater-index", "7")]));
    }
}
