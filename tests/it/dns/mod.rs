//! DNS over real sockets: what a resolver finds follows the catalog, on every member.

mod answers;
mod client;
mod overload;
