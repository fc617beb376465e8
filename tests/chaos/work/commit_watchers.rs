//! Watchers of the workload `commit`: on each node one of the keys, one of the resources, and views
//! of the services. Each must deliver every commit completely, at the commit's index or revision.

use std::time::Duration;

use headwater_client::{Endpoints, MaterializedView, ServiceHealth};
use headwater_proto::pb::etcdserverpb as pb;
use headwater_proto::pb::etcdserverpb::watch_request::RequestUnion;
use headwater_proto::pb::pbresource;
use headwater_proto::pb::pbresource::watch_event::Event;
use tokio::task::JoinSet;

use super::Lab;
use super::watch::{FIRST, UNKNOWN_TOKEN};
use crate::client::{Target, prefix_end};
use crate::commit::{self, CommitFace, GROUPS, WatchedCommit};
use crate::login::Login;

/// Pause before a stream is opened again.
const AGAIN: Duration = Duration::from_millis(100);
/// Longest wait for a change of a view, in one query.
const SILENCE: Duration = Duration::from_secs(60);

/// Starts the watchers; they end when the run stops.
pub(super) fn start(lab: &Lab, tasks: &mut JoinSet<()>) {
    for target in &lab.targets {
        spawn(lab, tasks, watch_keys(lab.clone(), target.apart()));
        spawn(lab, tasks, watch_resources(lab.clone(), target.apart()));
        for group in 0..GROUPS {
            spawn(lab, tasks, view_service(lab.clone(), target.apart(), group));
        }
    }
}

fn spawn(lab: &Lab, tasks: &mut JoinSet<()>, watcher: impl Future<Output = ()> + Send + 'static) {
    let stop = lab.stop.clone();
    tasks.spawn(async move {
        tokio::select! {
            () = watcher => {}
            () = stop.cancelled() => {}
        }
    });
}

/// Watches the keys of all groups at one node, from the first revision on. Never returns.
async fn watch_keys(lab: Lab, target: Target) {
    let mut next = FIRST;
    loop {
        // Every end of a stream is followed by another one.
        let _end = watch_keys_once(&lab, &target, &mut next).await;
        target.forget();
        tokio::time::sleep(AGAIN).await;
    }
}

/// Follows one stream; `None` once it has ended.
async fn watch_keys_once(lab: &Lab, target: &Target, next: &mut i64) -> Option<()> {
    let mut client = target.watch().await.ok()?;
    let create = pb::WatchCreateRequest {
        key: commit::PREFIX.into(),
        range_end: prefix_end(commit::PREFIX).into(),
        start_revision: *next,
        ..Default::default()
    };
    let create = pb::WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
    // The stream of requests stays open for as long as the watch.
    let requests = futures::StreamExt::chain(tokio_stream::iter([create]), tokio_stream::pending());
    let mut answers = client.watch(requests).await.ok()?.into_inner();
    while let Some(answer) = answers.message().await.ok()? {
        if answer.canceled {
            *next = answer.compact_revision.max(*next);
            // A restarted node does not know the tokens that it gave before.
            if let Some(login) = target.login().filter(|_| answer.cancel_reason.contains(UNKNOWN_TOKEN)) {
                login.renew();
            }
            return None;
        }
        for command in answer.events.chunk_by(|one, other| revision(one) == revision(other)) {
            let told = WatchedCommit {
                face: CommitFace::Keys,
                node: target.node,
                point: revision(&command[0]).cast_unsigned(),
                values: command.iter().map(value).collect(),
            };
            *next = revision(&command[0]) + 1;
            lab.commits.keep_watched(told);
        }
    }
    None
}

fn revision(event: &headwater_proto::pb::mvccpb::Event) -> i64 {
    event.kv.as_ref().map_or(0, |kv| kv.mod_revision)
}

fn value(event: &headwater_proto::pb::mvccpb::Event) -> String {
    event.kv.as_ref().map_or_else(String::new, |kv| String::from_utf8_lossy(&kv.value).into_owned())
}

/// Watches the resources of all groups at one node.
async fn watch_resources(lab: Lab, target: Target) {
    loop {
        let _end = watch_resources_once(&lab, &target).await;
        target.forget();
        tokio::time::sleep(AGAIN).await;
    }
}

/// Follows one stream until it ends; returns `None` then. Resources that existed when the stream
/// began come without an index, and are not recorded.
async fn watch_resources_once(lab: &Lab, target: &Target) -> Option<()> {
    let mut client = target.resources().await.ok()?;
    let mut answers = client.watch_list(commit::watch_list()).await.ok()?.into_inner();
    while let Some(pbresource::WatchEvent { event, headwater_index }) = answers.message().await.ok()? {
        let Some(Event::Upsert(pbresource::watch_event::Upsert { resource: Some(resource) })) = event else { continue };
        if headwater_index > 0 {
            let values = commit::value_of_resource(&resource).into_iter().collect();
            let told = WatchedCommit { face: CommitFace::Resources, node: target.node, point: headwater_index, values };
            lab.commits.keep_watched(told);
        }
    }
    None
}

/// Keeps a view of a group's service by one node, and records the values that it shows.
async fn view_service(lab: Lab, target: Target, group: u64) {
    let endpoints = Endpoints::by(&[target.name()], target.dialer()).expect("invariant: the rig makes the address");
    let endpoints = endpoints.as_user(target.login().map(Login::credentials));
    let view = MaterializedView::start(ServiceHealth::of(&commit::service(group)), endpoints);
    let mut index = 0;
    loop {
        let Ok(shown) = view.query(index, SILENCE).await else {
            tokio::time::sleep(AGAIN).await;
            continue;
        };
        index = shown.index;
        for instance in shown.state.instances() {
            let Some((value, changed)) = commit::value_of_instance(instance) else { continue };
            let values = vec![value];
            lab.commits.keep_watched(WatchedCommit {
                face: CommitFace::Services,
                node: target.node,
                point: changed,
                values,
            });
        }
    }
}
