//! The errors of requests about the catalog.

use thiserror::Error;

use crate::NodeError;
use headwater_types::Refusal;
use headwater_types::catalog::{CatalogRefusal, RegistrationProblem};

/// The reason for which a request about the catalog failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CatalogError {
    /// The registration, the deregistration or the gateway is invalid: a field is missing or has an
    /// illegal value, or two fields contradict each other. Nothing was proposed.
    #[error(transparent)]
    Invalid(#[from] RegistrationProblem),
    /// A rule of the catalog forbids the request; nothing changed.
    #[error(transparent)]
    Refused(CatalogRefusal),
    /// Any other error of the node.
    #[error(transparent)]
    Node(NodeError),
}

impl From<NodeError> for CatalogError {
    fn from(error: NodeError) -> Self {
        match error {
            NodeError::Refused(Refusal::Catalog(refusal)) => Self::Refused(refusal),
            error => Self::Node(error),
        }
    }
}
