//! Reads of the catalog that can wait for a change, and the parameters that narrow their answers
//! (`?tag`, `?node-meta`, `?passing`).

use std::future::Future;
use std::sync::Arc;

use serde::Serialize;

use super::answer::{Answer, Meta, Refusal};
use super::blocking::{self, Found};
use super::call::{Call, Freshness};
use super::filter::Filter;
use headwater_node::{CatalogSubject, Consistency, Node, NodeError, Read, RequestContext};
use headwater_types::catalog::{CheckServiceNode, CheckStatus, Indexed, ServiceKind};

/// The result of a look-up, with the consistency of its read.
pub(super) struct LookUp<T> {
    freshness: Freshness,
    pub(super) found: Found<T>,
}

impl<T> LookUp<T> {
    /// The answer `value`, as JSON, with the headers of this read.
    pub(super) fn answer(&self, call: &Call, value: &impl Serialize) -> Answer {
        call.answer(value).meta(self.meta())
    }

    /// The values of the headers of this read.
    pub(super) fn meta(&self) -> Meta {
        self.found.meta(&self.freshness)
    }
}

/// Calls `read` once; with `?index`, again after each change of one of the subjects, until the
/// query index is above that index or the wait ends. The wait ends with a refusal when the token is
/// not valid any more.
pub(super) async fn look_up<T, Reading>(
    call: &Call,
    subjects: Vec<CatalogSubject>,
    read: impl Fn(Node, RequestContext, Consistency) -> Reading,
) -> Result<LookUp<T>, Refusal>
where
    Reading: Future<Output = Result<Read<Indexed<T>>, NodeError>>,
{
    look_up_while(call, subjects, || call.authorizer().map(drop), read).await
}

/// As [`look_up`], but `still_permitted` replaces the check of the token. It is called when the
/// wait begins and after each change of rights. The wait ends with its refusal.
pub(super) async fn look_up_while<T, Reading>(
    call: &Call,
    subjects: Vec<CatalogSubject>,
    still_permitted: impl Fn() -> Result<(), Refusal>,
    read: impl Fn(Node, RequestContext, Consistency) -> Reading,
) -> Result<LookUp<T>, Refusal>
where
    Reading: Future<Output = Result<Read<Indexed<T>>, NodeError>>,
{
    let freshness = call.freshness()?;
    let node = call.node();
    let read = |ctx, consistency| {
        let reading = read(node.clone(), ctx, consistency);
        async move {
            let Read { index: seen, value: Indexed { index, value }, .. } = reading.await?;
            Ok(Found { index, seen, value })
        }
    };
    let changed = |after, deadline| blocking::catalog_changed(node, &subjects, after, deadline);
    let found = blocking::query(call, &freshness, read, changed, still_permitted).await?;
    Ok(LookUp { found, freshness })
}

/// The way in which the instances of a service are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// Clients connect to the instances themselves.
    Direct,
    /// Clients connect in the mesh: to sidecars, gateways, or instances that speak its protocol.
    Connect,
}

/// The instances of the path's service that the request may see, narrowed by `?passing`, `?tag`,
/// `?node-meta` and the filter; with [`Reach::Connect`], a terminating gateway is narrowed by
/// `?passing` alone. `json` gives the form of an instance that the filter tests.
pub(super) async fn instances(
    call: &Call,
    reach: Reach,
    filter: &Filter,
    json: impl Fn(&CheckServiceNode) -> serde_json::Value,
) -> Result<LookUp<Vec<Arc<CheckServiceNode>>>, Refusal> {
    let name = call.rest("Missing service name")?.to_owned();
    let only_passing = call.query.switch("passing")?;
    let narrow = InstanceFilter::of(call);
    let subject = match reach {
        Reach::Direct => CatalogSubject::service(&name),
        Reach::Connect => CatalogSubject::connect(&name),
    };
    let mut look_up = look_up(call, vec![subject], |node, ctx, consistency| {
        let name = name.clone();
        async move {
            match reach {
                Reach::Direct => node.catalog().instances(&ctx, consistency, name).await,
                Reach::Connect => node.catalog().connect_instances(&ctx, consistency, name).await,
            }
        }
    })
    .await?;
    let visibility = call.visibility()?;
    visibility.keep(&mut look_up.found.value, |instance| visibility.sees_instance(instance));
    look_up.found.value.retain(|instance| {
        // A terminating gateway stands in for a service and does not have its tags
        // (spec: consul §3.6).
        let is_for_others = reach == Reach::Connect && instance.service.kind == ServiceKind::TerminatingGateway;
        (!only_passing || is_passing(instance))
            && (is_for_others || narrow.matches(instance) && (filter.takes_all() || filter.takes(&json(instance))))
    });
    Ok(look_up)
}

/// Whether all checks of the instance and of its node are passing.
pub(super) fn is_passing(instance: &CheckServiceNode) -> bool {
    instance.worst() == CheckStatus::Passing
}

/// The conditions `?tag` and `?node-meta`, both repeatable. An instance must match all of them.
#[derive(Debug)]
pub(super) struct InstanceFilter {
    tags: Vec<String>,
    meta: Vec<(String, String)>,
}

impl InstanceFilter {
    pub(super) fn of(call: &Call) -> Self {
        let pair = |text: &str| match text.split_once(':') {
            Some((key, value)) => (key.to_owned(), value.to_owned()),
            None => (text.to_owned(), String::new()),
        };
        Self {
            // An empty tag asks for nothing: clients send `?tag=`.
            tags: call.query.all("tag").filter(|tag| !tag.is_empty()).map(str::to_lowercase).collect(),
            meta: call.query.all("node-meta").filter(|text| !text.is_empty()).map(pair).collect(),
        }
    }

    /// Whether the request has a condition on nodes (`?node-meta`).
    pub(super) fn has_meta(&self) -> bool {
        !self.meta.is_empty()
    }

    /// Whether the node's metadata has all pairs of `?node-meta`.
    pub(super) fn matches_node(&self, node: &headwater_types::catalog::CatalogNode) -> bool {
        self.meta.iter().all(|(key, value)| node.meta.get(key) == Some(value))
    }

    /// Whether the instance has all tags, compared without letter case, and its node all pairs of
    /// `?node-meta`.
    pub(super) fn matches(&self, instance: &CheckServiceNode) -> bool {
        let has = |tag: &String| instance.service.tags.iter().any(|it| it.to_lowercase() == *tag);
        self.tags.iter().all(has) && self.matches_node(&instance.node)
    }
}
