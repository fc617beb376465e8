//! Tests of the rules of this layer, most of them by table, on a real database. Most files are
//! about one command, as in the code.

mod acl;
mod alarm;
mod auth;
mod bed;
mod catalog;
mod commit;
mod commit_keys;
mod commit_model;
mod commit_order;
mod compact;
mod consul;
mod cursor;
mod delete_range;
mod events;
mod invitation;
mod lease_attach;
mod lease_checkpoint;
mod lease_end;
mod lease_grant;
mod lease_txn;
mod leases;
pub mod model;
mod put;
mod range;
mod replay;
mod resource;
mod txn;
mod validate;
mod version;
