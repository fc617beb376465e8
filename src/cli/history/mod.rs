//! The history of the store for people. `log` prints changes, `show` states at a point, `diff` the
//! differences between two points; `undo` goes back to a point.
//!
//! Owns points of time as people write them, and the form of states and changes on a terminal.
//! Knows the store's API alone.

pub(super) mod diff;
pub(super) mod log;
mod patch;
mod point;
mod refusal;
mod render;
pub(super) mod show;
pub(super) mod undo;

pub(super) use point::WHEN_HELP;

use super::connect::Cluster;
use super::error::CliError;
use headwater_client::Store;

/// The store's API at the user's endpoints.
fn store(cluster: &Cluster) -> Store {
    Store::new(cluster.endpoints().clone(), cluster.timeout())
}

/// `target` with everything below it; `None` is the whole store. A target with options (`?`) stays
/// as it is.
fn recursive(target: Option<&str>) -> String {
    match target {
        None => "/?recursive=true".to_owned(),
        Some(target) if target.contains('?') => target.to_owned(),
        Some(target) => format!("{target}?recursive=true"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_below_a_target_counts() {
        assert_eq!(recursive(None), "/?recursive=true");
        assert_eq!(recursive(Some("/kv/app")), "/kv/app?recursive=true");
        assert_eq!(recursive(Some("/kv/app?children=false")), "/kv/app?children=false");
    }
}
