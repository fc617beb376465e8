//! Validation and defaults of a registration, before it is proposed (spec: consul §2.7, §8.3).

use std::net::IpAddr;

use thiserror::Error;

use super::{Deregistration, Registration, TerminatingGateway, Weights, canonical};
use crate::limits::{CATALOG_CHECKS_MAX, CATALOG_NAME_BYTES_MAX, GATEWAY_SERVICES_MAX};

/// Reason why a registration, a deregistration or the configuration of a gateway is refused. The
/// texts are for clients.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RegistrationProblem {
    /// The name of the node is missing.
    #[error("Must provide node")]
    NoNode,
    /// The node has no address, and `skip_node_update` is not set.
    #[error("Must provide address if SkipNodeUpdate is not set")]
    NoAddress,
    /// The node's id is not a UUID.
    #[error("Bad ID: {0:?} is no UUID")]
    BadNodeId(String),
    /// An instance has no name.
    #[error("Must provide service name (Service.Service) when service ID is provided")]
    NoServiceName,
    /// A gateway has no name.
    #[error("Must provide the name of the gateway (Name)")]
    NoGatewayName,
    /// The address of an instance is a wildcard, `0.0.0.0` or `::`.
    #[error("Invalid service address: {0} is no address that can be reached")]
    BadServiceAddress(String),
    /// The port does not lie between 0 and 65535.
    #[error("Invalid port {0}")]
    BadPort(i32),
    /// A weight is negative or does not fit the 16 bits of DNS, or only the weight of a passing
    /// instance is zero.
    #[error(
        "Invalid Weights: Passing {passing} must lie between 1 and 65535, and Warning {warning} between 0 and 65535; leave both \
         out, or at 0, for 1 and 1"
    )]
    BadWeight {
        /// The given weight while all checks pass.
        passing: i32,
        /// The given weight while a check warns.
        warning: i32,
    },
    /// An instance of kind `connect-proxy` names no destination service.
    #[error("Proxy.DestinationServiceName must be non-empty for kind connect-proxy")]
    NoDestination,
    /// An instance of kind `connect-proxy` is marked as native in the mesh.
    #[error("a proxy cannot also be Connect native")]
    NativeProxy,
    /// A check has neither id nor name.
    #[error("Must provide CheckID or Name of a check")]
    NoCheckId,
    /// Two checks of one registration have the same id.
    #[error("two checks have the id {0:?}")]
    CheckTwice(String),
    /// The registration has more than [`CATALOG_CHECKS_MAX`] checks.
    #[error("more than {CATALOG_CHECKS_MAX} checks in one registration")]
    TooManyChecks,
    /// A name or id is longer than [`CATALOG_NAME_BYTES_MAX`]. Holds a description of it, such as
    /// `the node's name`.
    #[error("{0} is longer than {CATALOG_NAME_BYTES_MAX} bytes")]
    TooLong(&'static str),
    /// A name or id has control characters, such as NUL. Holds a description of it, such as
    /// `the node's name`.
    #[error("{0} has control characters")]
    Control(&'static str),
    /// A gateway links the service of this name twice, or a service without a name.
    #[error("every linked service needs a name of its own: {0:?}")]
    BadLink(String),
    /// A terminating gateway links the service `*`, the wildcard.
    #[error("a terminating gateway for every service (\"*\") is not supported: name the services")]
    WildcardLink,
    /// A gateway links more than [`GATEWAY_SERVICES_MAX`] services.
    #[error("more than {GATEWAY_SERVICES_MAX} linked services")]
    TooManyLinks,
}

impl Registration {
    /// Id of the instance; empty if the registration has none.
    pub fn service_id(&self) -> &str {
        self.service.as_ref().map_or("", |service| &service.id)
    }

    /// Checks the registration, and fills in omitted fields (spec: consul §8.3). Idempotent.
    ///
    /// An instance or a check without an id gets its name as the id. The instance gets the node of
    /// the registration, and so does a check without a node. A check without a type gets that of
    /// its definition. Weights of 0 and 0 become 1 and 1. The node's id becomes lower case.
    ///
    /// # Errors
    ///
    /// [`RegistrationProblem`]; the registration may be changed in part, and must not be proposed.
    pub fn complete(&mut self) -> Result<(), RegistrationProblem> {
        let node = &mut self.node;
        if node.name.is_empty() {
            return Err(RegistrationProblem::NoNode);
        }
        if node.address.is_empty() && !self.skip_node_update {
            return Err(RegistrationProblem::NoAddress);
        }
        if !node.id.is_empty() && !is_uuid(&node.id) {
            return Err(RegistrationProblem::BadNodeId(node.id.clone()));
        }
        node.id.make_ascii_lowercase();
        bounded(&node.name, "the node's name")?;
        if let Some(service) = &mut self.service {
            if service.name.is_empty() {
                return Err(RegistrationProblem::NoServiceName);
            }
            if service.id.is_empty() {
                service.id.clone_from(&service.name);
            }
            bounded(&service.name, "the service's name")?;
            bounded(&service.id, "the service's id")?;
            bounded(&service.proxy.destination_service_name, "the name of the proxy's destination")?;
            if service.address.parse::<IpAddr>().is_ok_and(|address| address.is_unspecified()) {
                return Err(RegistrationProblem::BadServiceAddress(service.address.clone()));
            }
            if !(0..=i32::from(u16::MAX)).contains(&service.port) {
                return Err(RegistrationProblem::BadPort(service.port));
            }
            service.weights = complete_weights(service.weights)?;
            if service.kind == super::ServiceKind::ConnectProxy {
                if service.proxy.destination_service_name.is_empty() {
                    return Err(RegistrationProblem::NoDestination);
                }
                if service.connect.native {
                    return Err(RegistrationProblem::NativeProxy);
                }
            }
            service.node.clone_from(&self.node.name);
        }
        self.complete_checks()
    }

    fn complete_checks(&mut self) -> Result<(), RegistrationProblem> {
        if self.checks.len() > CATALOG_CHECKS_MAX {
            return Err(RegistrationProblem::TooManyChecks);
        }
        let mut ids = std::collections::BTreeSet::new();
        for check in &mut self.checks {
            if check.id.is_empty() {
                check.id.clone_from(&check.name);
            }
            if check.id.is_empty() {
                return Err(RegistrationProblem::NoCheckId);
            }
            bounded(&check.id, "the check's id")?;
            if check.node.is_empty() {
                check.node.clone_from(&self.node.name);
            }
            if check.type_.is_empty() {
                check.definition.type_name().clone_into(&mut check.type_);
            }
            if !ids.insert(check.id.clone()) {
                return Err(RegistrationProblem::CheckTwice(check.id.clone()));
            }
        }
        Ok(())
    }
}

impl Deregistration {
    /// Checks that the deregistration names a node.
    ///
    /// # Errors
    ///
    /// [`RegistrationProblem::NoNode`] if it names none.
    pub fn check(&self) -> Result<(), RegistrationProblem> {
        if self.node.is_empty() { Err(RegistrationProblem::NoNode) } else { Ok(()) }
    }
}

impl TerminatingGateway {
    /// Checks the gateway's name, and the names and the number of the linked services.
    ///
    /// # Errors
    ///
    /// [`RegistrationProblem`] if the configuration must not be stored.
    pub fn check(&self) -> Result<(), RegistrationProblem> {
        if self.name.is_empty() {
            return Err(RegistrationProblem::NoGatewayName);
        }
        bounded(&self.name, "the gateway's name")?;
        if self.services.len() > GATEWAY_SERVICES_MAX {
            return Err(RegistrationProblem::TooManyLinks);
        }
        let mut names = std::collections::BTreeSet::new();
        for service in &self.services {
            bounded(&service.name, "a linked service's name")?;
            if service.name == "*" {
                return Err(RegistrationProblem::WildcardLink);
            }
            if service.name.is_empty() || !names.insert(canonical(&service.name)) {
                return Err(RegistrationProblem::BadLink(service.name.clone()));
            }
        }
        Ok(())
    }
}

/// Refuses a name or id that is too long, or that has control characters. `what` describes it.
fn bounded(text: &str, what: &'static str) -> Result<(), RegistrationProblem> {
    if text.len() > CATALOG_NAME_BYTES_MAX {
        Err(RegistrationProblem::TooLong(what))
    } else if text.chars().any(char::is_control) {
        Err(RegistrationProblem::Control(what))
    } else {
        Ok(())
    }
}

/// Whether a text has the form of a UUID: 36 characters, hexadecimal but for four hyphens.
fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

/// Checks weights: `passing` is 1 to 65535, `warning` 0 to 65535. Two zeros become the default:
/// clients that cannot omit the fields send zeros.
fn complete_weights(given: Weights) -> Result<Weights, RegistrationProblem> {
    let Weights { passing, warning } = given;
    let most = i32::from(u16::MAX);
    match (passing, warning) {
        (0, 0) => Ok(Weights::default()),
        _ if (1..=most).contains(&passing) && (0..=most).contains(&warning) => Ok(given),
        _ => Err(RegistrationProblem::BadWeight { passing, warning }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{CatalogNode, Check, CheckDefinition, LinkedService, Proxy, Service, ServiceKind};

    fn node() -> CatalogNode {
        CatalogNode { name: "n".to_owned(), address: "10.0.0.1".to_owned(), ..CatalogNode::default() }
    }

    fn with_service(service: Service) -> Registration {
        Registration { node: node(), service: Some(service), ..Registration::default() }
    }

    fn named(name: &str) -> Service {
        Service { name: name.to_owned(), ..Service::default() }
    }

    #[test]
    fn what_was_left_out_is_filled_in() {
        let check = |check: Check| Registration { checks: vec![check], ..with_service(named("web")) };
        let mut registration = check(Check {
            name: "alive".to_owned(),
            definition: CheckDefinition { ttl_ns: 5, ..CheckDefinition::default() },
            ..Check::default()
        });
        registration.complete().unwrap();
        let once = registration.clone();
        registration.complete().unwrap();
        assert_eq!(registration, once, "idempotent");
        let service = registration.service.unwrap();
        assert_eq!((service.id.as_str(), service.node.as_str(), service.weights.passing), ("web", "n", 1));
        let check = &registration.checks[0];
        assert_eq!((check.id.as_str(), check.node.as_str(), check.type_.as_str()), ("alive", "n", "ttl"));
        assert_eq!(check.status, super::super::CheckStatus::Critical);
        assert_eq!(check.name, "alive");
    }

    #[test]
    fn what_cannot_be_registered_is_told() {
        use RegistrationProblem as Problem;
        let of = |node: CatalogNode| Registration { node, ..Registration::default() };
        let long = "x".repeat(CATALOG_NAME_BYTES_MAX + 1);
        let checks = |count: usize, same: bool| Registration {
            checks: (0..count)
                .map(|at| Check { id: if same { "c".to_owned() } else { format!("c{at}") }, ..Check::default() })
                .collect(),
            ..of(node())
        };
        let cases: [(Registration, Result<(), Problem>); 21] = [
            (of(CatalogNode::default()), Err(Problem::NoNode)),
            (of(CatalogNode { address: String::new(), ..node() }), Err(Problem::NoAddress)),
            (Registration { skip_node_update: true, ..of(CatalogNode { address: String::new(), ..node() }) }, Ok(())),
            (of(CatalogNode { id: "7".to_owned(), ..node() }), Err(Problem::BadNodeId("7".to_owned()))),
            (of(CatalogNode { id: "0F0F0F0F-0000-0000-0000-00000000000a".to_owned(), ..node() }), Ok(())),
            (of(CatalogNode { name: long.clone(), ..node() }), Err(Problem::TooLong("the node's name"))),
            (of(CatalogNode { name: long[1..].to_owned(), ..node() }), Ok(())),
            (of(CatalogNode { name: "n\0".to_owned(), ..node() }), Err(Problem::Control("the node's name"))),
            (of(CatalogNode { name: "n\u{85}".to_owned(), ..node() }), Err(Problem::Control("the node's name"))),
            (with_service(named("w\0b")), Err(Problem::Control("the service's name"))),
            (with_service(Service { id: "\n".to_owned(), ..named("w") }), Err(Problem::Control("the service's id"))),
            (
                Registration { checks: vec![Check { name: "\0".to_owned(), ..Check::default() }], ..of(node()) },
                Err(Problem::Control("the check's id")),
            ),
            (of(CatalogNode { name: "nö de".to_owned(), ..node() }), Ok(())),
            (with_service(Service { id: "1".to_owned(), ..Service::default() }), Err(Problem::NoServiceName)),
            (
                with_service(Service { address: "::".to_owned(), ..named("w") }),
                Err(Problem::BadServiceAddress("::".to_owned())),
            ),
            (with_service(Service { port: 65_536, ..named("w") }), Err(Problem::BadPort(65_536))),
            (with_service(Service { kind: ServiceKind::ConnectProxy, ..named("w") }), Err(Problem::NoDestination)),
            (
                with_service(Service {
                    kind: ServiceKind::ConnectProxy,
                    proxy: Proxy { destination_service_name: "web".to_owned(), ..Proxy::default() },
                    ..named("w")
                }),
                Ok(()),
            ),
            (Registration { checks: vec![Check::default()], ..of(node()) }, Err(Problem::NoCheckId)),
            (checks(2, true), Err(Problem::CheckTwice("c".to_owned()))),
            (checks(CATALOG_CHECKS_MAX + 1, false), Err(Problem::TooManyChecks)),
        ];
        for (mut registration, wanted) in cases {
            assert_eq!(registration.complete(), wanted, "{registration:?}");
        }
        checks(CATALOG_CHECKS_MAX, false).complete().unwrap();
    }

    #[test]
    fn weights_are_what_dns_can_say() {
        for (given, wanted) in [
            ((0, 0), Some((1, 1))),
            ((1, 0), Some((1, 0))),
            ((5, 2), Some((5, 2))),
            ((65_535, 65_535), Some((65_535, 65_535))),
            ((0, 1), None),
            ((-1, 1), None),
            ((1, -1), None),
            ((65_536, 1), None),
            ((1, 65_536), None),
        ] {
            let weights = Weights { passing: given.0, warning: given.1 };
            let mut registration = with_service(Service { weights, ..named("web") });
            let done = registration.complete();
            let stored = registration.service.unwrap().weights;
            match wanted {
                Some(wanted) => assert_eq!((done, (stored.passing, stored.warning)), (Ok(()), wanted), "{given:?}"),
                None => {
                    let problem = RegistrationProblem::BadWeight { passing: given.0, warning: given.1 };
                    assert_eq!(done, Err(problem), "{given:?}");
                }
            }
        }
    }

    #[test]
    fn gateways_name_each_service_once() {
        let gateway = |names: &[&str]| TerminatingGateway {
            name: "gw".to_owned(),
            services: names
                .iter()
                .map(|name| LinkedService { name: (*name).to_owned(), ..Default::default() })
                .collect(),
            ..TerminatingGateway::default()
        };
        assert_eq!(gateway(&["a", "b"]).check(), Ok(()));
        assert_eq!(gateway(&["a", "A"]).check(), Err(RegistrationProblem::BadLink("A".to_owned())));
        assert_eq!(gateway(&[""]).check(), Err(RegistrationProblem::BadLink(String::new())));
        assert_eq!(gateway(&["a\0"]).check(), Err(RegistrationProblem::Control("a linked service's name")));
        assert_eq!(gateway(&["*"]).check(), Err(RegistrationProblem::WildcardLink));
        let many: Vec<String> = (0..=GATEWAY_SERVICES_MAX).map(|at| at.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(gateway(&many).check(), Err(RegistrationProblem::TooManyLinks));
        assert_eq!(gateway(&many[1..]).check(), Ok(()));
    }
}
