//! The history of the store for people. `log` prints changes, `show` states at a point, `diff` the
//! differences between two points; `undo` goes back to a point.
//!
//! Owns points of time as people write them, and the form of states and changes on a terminal.
//! Knows the store's API alone.

pub(super) mod diff;
mod json;
pub(super) mod log;
mod patch;
mod point;
mod preview;
mod refusal;
mod render;
pub(super) mod show;
pub(super) mod undo;

pub(super) use point::WHEN_HELP;

use super::connect::Cluster;
use headwater_client::Store;
use headwater_proto::pb::headwater_v1 as pb;

/// The store's API at the user's endpoints.
fn store(cluster: &Cluster) -> Store {
    Store::new(cluster.endpoints().clone(), cluster.timeout())
}

/// The text for a time before the first change of the store, at which nothing existed. The date is
/// missing for a user without the right to the whole history.
async fn no_history_before(cluster: &Cluster) -> String {
    let request = pb::HistoryRequest { limit: 1, paths_only: true, ..Default::default() };
    let first = store(cluster).history(request).next().await.ok().flatten();
    let first = first.and_then(|message| message.commands.into_iter().next());
    let date = first.map(|command| point::time_text(command.unix_ms)).filter(|date| !date.is_empty());
    format!("the store has no history before {}", date.as_deref().unwrap_or("that time"))
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
