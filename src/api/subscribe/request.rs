//! The subject of a request, and the refusals of invalid ones (spec: consul §1.2, §1.4, §1.11).

use thiserror::Error;

use headwater_node::CatalogSubject;
use headwater_proto::pb::subscribe::subscribe_request::Subject;
use headwater_proto::pb::subscribe::{NamedSubject, SubscribeRequest, Topic};

/// Name of the only partition and of the only namespace. An empty name means it, too.
const DEFAULT_UNIT: &str = "default";

/// The mistake in a request. The texts are for clients.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum Invalid {
    /// The topic is unknown.
    #[error("unknown topic: {0}")]
    UnknownTopic(i32),
    /// The topic is one of Consul's, but is not served.
    #[error("topic {0} is not served: subscribe to ServiceHealth, ServiceHealthConnect or ServiceList")]
    OtherTopic(&'static str),
    /// The subject of the request is neither a key nor the wildcard. A request without any subject
    /// and key means the whole topic instead.
    #[error(
        "either WildcardSubject or NamedSubject.Key is required: name a service, or ask for the whole topic by WildcardSubject \
         (or, without either of them, by an empty Key)"
    )]
    NoSubject,
    /// The request has a key, but the topic `ServiceList` can be subscribed to as a whole only.
    #[error(
        "topic ServiceList can only be consumed using WildcardSubject (or, in requests without it, an empty Key): it is the list \
         of all names"
    )]
    NamedList,
    /// The request is for a unit that does not exist.
    #[error("{what} {name:?} does not exist: there is only \"default\"")]
    Unit {
        /// Kind of the unit: `partition` or `namespace`.
        what: &'static str,
        /// The requested name.
        name: String,
    },
    /// The request is for a peered cluster. There are none.
    #[error("no cluster is peered under the name {0:?}")]
    Peer(String),
    /// The request is for a datacenter that is neither this one nor configured.
    #[error("no path to datacenter: {asked:?} is neither {here:?}, which is this one, nor configured")]
    Datacenter {
        /// Name of the requested datacenter.
        asked: String,
        /// The name of this datacenter.
        here: String,
    },
    /// The request has metadata that cannot be read.
    #[error("metadata {0} cannot be read")]
    Metadata(&'static str),
}

/// The subject that a request subscribes to.
pub(super) fn subject(request: &SubscribeRequest) -> Result<CatalogSubject, Invalid> {
    let topic = Topic::try_from(request.topic).map_err(|_| Invalid::UnknownTopic(request.topic))?;
    let named = match &request.subject {
        Some(Subject::WildcardSubject(true)) => None,
        Some(Subject::NamedSubject(named)) => Some((named.clone(), false)),
        // Older clients send no subject: without a key they mean the whole topic.
        None => Some((deprecated(request), true)),
        Some(Subject::WildcardSubject(false)) => Some((deprecated(request), false)),
    };
    let named = match named {
        None => None,
        Some((named, empty_is_all)) => {
            check_units(&named)?;
            match named.key.is_empty() {
                false => Some(named.key),
                true if empty_is_all => None,
                true => {
                    served(topic)?;
                    return Err(Invalid::NoSubject);
                }
            }
        }
    };
    match (topic, named) {
        (Topic::ServiceHealth, Some(name)) => Ok(CatalogSubject::service(&name)),
        (Topic::ServiceHealth, None) => Ok(CatalogSubject::EveryService),
        (Topic::ServiceHealthConnect, Some(name)) => Ok(CatalogSubject::connect(&name)),
        (Topic::ServiceHealthConnect, None) => Ok(CatalogSubject::EveryConnect),
        (Topic::ServiceList, None) => Ok(CatalogSubject::ServiceList),
        (Topic::ServiceList, Some(_)) => Err(Invalid::NamedList),
        (topic, _) => Err(served(topic).err().unwrap_or(Invalid::NoSubject)),
    }
}

/// Refuses a topic that is not served.
fn served(topic: Topic) -> Result<(), Invalid> {
    match topic {
        Topic::ServiceHealth | Topic::ServiceHealthConnect | Topic::ServiceList => Ok(()),
        Topic::Unknown => Err(Invalid::UnknownTopic(0)),
        Topic::MeshConfig
        | Topic::ServiceResolver
        | Topic::IngressGateway
        | Topic::ServiceIntentions
        | Topic::ServiceDefaults
        | Topic::ApiGateway
        | Topic::TcpRoute
        | Topic::HttpRoute
        | Topic::InlineCertificate
        | Topic::BoundApiGateway
        | Topic::IpRateLimit
        | Topic::SamenessGroup
        | Topic::JwtProvider
        | Topic::ExportedServices
        | Topic::FileSystemCertificate => Err(Invalid::OtherTopic(topic.as_str_name())),
    }
}

/// The subject in the deprecated fields, which older clients set.
#[expect(deprecated, reason = "older clients send them")]
fn deprecated(request: &SubscribeRequest) -> NamedSubject {
    NamedSubject {
        key: request.key.clone(),
        namespace: request.namespace.clone(),
        partition: request.partition.clone(),
        peer_name: request.peer_name.clone(),
    }
}

/// Refuses units that do not exist, and peers: nothing that a client asks for is ignored.
fn check_units(named: &NamedSubject) -> Result<(), Invalid> {
    for (what, name) in [("namespace", &named.namespace), ("partition", &named.partition)] {
        if !name.is_empty() && name != DEFAULT_UNIT {
            return Err(Invalid::Unit { what, name: name.clone() });
        }
    }
    if named.peer_name.is_empty() { Ok(()) } else { Err(Invalid::Peer(named.peer_name.clone())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(topic: Topic, key: &str) -> SubscribeRequest {
        let subject = Subject::NamedSubject(NamedSubject { key: key.to_owned(), ..Default::default() });
        SubscribeRequest { topic: topic.into(), subject: Some(subject), ..Default::default() }
    }

    fn wildcard(topic: Topic) -> SubscribeRequest {
        let subject = Some(Subject::WildcardSubject(true));
        SubscribeRequest { topic: topic.into(), subject, ..Default::default() }
    }

    #[expect(deprecated, reason = "older clients send them")]
    fn old(topic: Topic, key: &str) -> SubscribeRequest {
        SubscribeRequest { topic: topic.into(), key: key.to_owned(), ..Default::default() }
    }

    #[test]
    fn a_request_means_one_subject() {
        let web = CatalogSubject::service("web");
        let not_wildcard =
            |topic, key| SubscribeRequest { subject: Some(Subject::WildcardSubject(false)), ..old(topic, key) };
        for (request, wanted) in [
            (named(Topic::ServiceHealth, "web"), Ok(web.clone())),
            (named(Topic::ServiceHealth, "WEB"), Ok(web.clone())),
            (named(Topic::ServiceHealthConnect, "Web"), Ok(CatalogSubject::connect("web"))),
            (wildcard(Topic::ServiceHealth), Ok(CatalogSubject::EveryService)),
            (wildcard(Topic::ServiceList), Ok(CatalogSubject::ServiceList)),
            (wildcard(Topic::ServiceHealthConnect), Ok(CatalogSubject::EveryConnect)),
            (named(Topic::ServiceHealthConnect, ""), Err(Invalid::NoSubject)),
            (named(Topic::ServiceList, "web"), Err(Invalid::NamedList)),
            (named(Topic::ServiceHealth, ""), Err(Invalid::NoSubject)),
            (named(Topic::ServiceList, ""), Err(Invalid::NoSubject)),
            (old(Topic::ServiceHealth, "Web"), Ok(web.clone())),
            (old(Topic::ServiceHealth, ""), Ok(CatalogSubject::EveryService)),
            (old(Topic::ServiceHealthConnect, ""), Ok(CatalogSubject::EveryConnect)),
            (old(Topic::ServiceList, ""), Ok(CatalogSubject::ServiceList)),
            (not_wildcard(Topic::ServiceHealth, "web"), Ok(web.clone())),
            (not_wildcard(Topic::ServiceHealth, ""), Err(Invalid::NoSubject)),
            (wildcard(Topic::Unknown), Err(Invalid::UnknownTopic(0))),
            (named(Topic::Unknown, "web"), Err(Invalid::UnknownTopic(0))),
            (named(Topic::Unknown, ""), Err(Invalid::UnknownTopic(0))),
            (wildcard(Topic::MeshConfig), Err(Invalid::OtherTopic("MeshConfig"))),
            (named(Topic::IpRateLimit, "x"), Err(Invalid::OtherTopic("IPRateLimit"))),
            (SubscribeRequest { topic: 77, ..wildcard(Topic::Unknown) }, Err(Invalid::UnknownTopic(77))),
        ] {
            assert_eq!(subject(&request), wanted, "{request:?}");
        }
    }

    #[test]
    fn units_other_than_the_default_ones_are_refused() {
        let with = |namespace: &str, partition: &str, peer_name: &str| {
            let named = NamedSubject {
                key: "web".to_owned(),
                namespace: namespace.to_owned(),
                partition: partition.to_owned(),
                peer_name: peer_name.to_owned(),
            };
            subject(&SubscribeRequest {
                topic: Topic::ServiceHealth.into(),
                subject: Some(Subject::NamedSubject(named)),
                ..Default::default()
            })
        };
        assert!(with("default", "default", "").is_ok());
        assert!(matches!(with("team", "", ""), Err(Invalid::Unit { what: "namespace", .. })));
        assert!(matches!(with("", "eu", ""), Err(Invalid::Unit { what: "partition", .. })));
        assert_eq!(with("", "", "other"), Err(Invalid::Peer("other".to_owned())));
    }
}
