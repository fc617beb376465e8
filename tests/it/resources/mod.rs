//! Typed resources: one library of cases, run on every kind of member; the rules of the service;
//! children of deleted owners.

pub mod client;
mod conformance;
mod owners;
mod pages;
mod rights;
mod rules;
mod statuses;
mod tenancy;
mod topologies;
mod types;
mod watch;
