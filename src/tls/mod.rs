//! TLS of all ports and of all outgoing connections, by rustls.
//!
//! Owns certificates, keys, trusted authorities and revocation lists: reads them, renews them
//! without a restart, and makes them. Knows neither members nor services. Invariant: nothing here
//! turns verification off, and if changed files cannot be loaded, the last valid ones stay in use.

mod connector;
mod error;
mod identity;
mod material;
mod server;

pub mod authority;

pub use connector::{ClientStream, ClientTls, Connector, Dialer};
pub use error::TlsError;
pub use identity::Identity;
pub use material::{CertificateFiles, ClientCertificates, MinVersion};
pub use server::{HANDSHAKE_TIMEOUT, Protocols, ServerStream, ServerTls};
