//! Typed resources: cases that run on every kind of member, the rules of the service, and the
//! deletion of children after their owners.

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
