//! DNS over real sockets: the answers follow the catalog, on every member.

mod answers;
pub mod client;
mod overload;
mod tls;
