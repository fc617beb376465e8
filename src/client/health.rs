//! The instances of a service with their health, as a view.

use std::collections::BTreeMap;
use std::sync::Arc;

use headwater_proto::pb::pbservice::CheckServiceNode;
use headwater_proto::pb::subscribe::event::Payload;
use headwater_proto::pb::subscribe::subscribe_request::Subject;
use headwater_proto::pb::subscribe::{CatalogOp, NamedSubject, SubscribeRequest, Topic};

use super::topic::{Rejected, ViewTopic};

/// The topic of a view: the instances of one service, or of all. The view can be narrowed down to
/// some of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServiceHealth {
    /// Lower case, as the server compares names; `None` for all services.
    name: Option<String>,
    is_connect: bool,
    is_passing_only: bool,
    /// Tags that each shown instance must have, in lower case.
    tags: Vec<String>,
}

impl ServiceHealth {
    /// The instances of one service.
    #[must_use]
    pub fn of(name: &str) -> Self {
        Self { name: Some(name.to_ascii_lowercase()), is_connect: false, is_passing_only: false, tags: Vec::new() }
    }

    /// The instances of all services. Consul's servers refuse this subscription, Headwater's do
    /// not.
    #[must_use]
    pub fn of_all() -> Self {
        Self { name: None, is_connect: false, is_passing_only: false, tags: Vec::new() }
    }

    /// The instances through which a service is reached in the mesh.
    #[must_use]
    pub fn connect(name: &str) -> Self {
        Self { is_connect: true, ..Self::of(name) }
    }

    /// The instances through which any service is reached in the mesh. Consul's servers refuse this
    /// subscription, Headwater's do not.
    #[must_use]
    pub fn connect_all() -> Self {
        Self { is_connect: true, ..Self::of_all() }
    }

    /// Narrows the view to instances with only passing checks, those of their nodes included.
    #[must_use]
    pub fn passing_only(self) -> Self {
        Self { is_passing_only: true, ..self }
    }

    /// Narrows the view to instances with this tag, in upper or lower case, as well as all tags
    /// given before. In a view of the mesh, terminating gateways need no tag: they stand for
    /// services without having their tags.
    #[must_use]
    pub fn tagged(mut self, tag: &str) -> Self {
        self.tags.push(tag.to_lowercase());
        self.tags.sort_unstable();
        self.tags.dedup();
        self
    }

    fn shows(&self, instance: &CheckServiceNode) -> bool {
        let is_passing = || instance.checks.iter().all(|check| check.status == "passing");
        let Some(service) = &instance.service else { return false };
        // A gateway stands for a service without having its tags (spec: consul §3.6).
        let is_for_others = self.is_connect && service.kind == "terminating-gateway";
        let has = |wanted: &String| service.tags.iter().any(|tag| tag.to_lowercase() == *wanted);
        (!self.is_passing_only || is_passing()) && (is_for_others || self.tags.iter().all(has))
    }
}

/// Identity of an instance (spec: consul §4.6). Its order is the order of lists. The node's id is
/// no part of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceKey {
    /// Name of the node.
    pub node: String,
    /// Id of the instance, unique on its node.
    pub service_id: String,
    /// Partition of the instance; empty with Headwater.
    pub partition: String,
    /// Namespace of the instance; empty with Headwater.
    pub namespace: String,
    /// The cluster that the instance was imported from; empty with Headwater.
    pub peer: String,
}

impl InstanceKey {
    fn of(instance: &CheckServiceNode) -> Option<Self> {
        let (node, service) = (instance.node.as_ref()?, instance.service.as_ref()?);
        let units = service.enterprise_meta.as_ref();
        Some(Self {
            node: node.node.clone(),
            service_id: service.id.clone(),
            partition: node.partition.clone(),
            namespace: units.map(|units| units.namespace.clone()).unwrap_or_default(),
            peer: node.peer_name.clone(),
        })
    }
}

/// Instances, by node and then by id.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Instances(BTreeMap<InstanceKey, Arc<CheckServiceNode>>);

impl Instances {
    /// All of them, by node and then by id.
    pub fn instances(&self) -> impl ExactSizeIterator<Item = &Arc<CheckServiceNode>> {
        self.0.values()
    }

    /// The instance with this key, if the view shows it.
    #[must_use]
    pub fn get(&self, key: &InstanceKey) -> Option<&Arc<CheckServiceNode>> {
        self.0.get(key)
    }

    /// Number of instances.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no instance.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl ViewTopic for ServiceHealth {
    type State = Instances;
    type Change = (InstanceKey, Option<Arc<CheckServiceNode>>);

    fn request(&self) -> SubscribeRequest {
        let topic = if self.is_connect { Topic::ServiceHealthConnect } else { Topic::ServiceHealth };
        let subject = match &self.name {
            Some(name) => Subject::NamedSubject(NamedSubject { key: name.clone(), ..Default::default() }),
            None => Subject::WildcardSubject(true),
        };
        SubscribeRequest { topic: topic.into(), subject: Some(subject), ..Default::default() }
    }

    fn read(&self, payload: Payload) -> Result<Self::Change, Rejected> {
        let Payload::ServiceHealth(update) = payload else { return Err(Rejected("an event of another topic")) };
        let op = CatalogOp::try_from(update.op).map_err(|_| Rejected("an operation that is not known"))?;
        let instance = update.check_service_node.ok_or(Rejected("an update without an instance"))?;
        let key = InstanceKey::of(&instance).ok_or(Rejected("an instance without its node or itself"))?;
        // An instance that no longer matches is removed like a deregistered one.
        let is_shown = op == CatalogOp::Register && self.shows(&instance);
        Ok((key, is_shown.then(|| Arc::new(instance))))
    }

    fn apply(&self, state: &mut Instances, (key, instance): Self::Change) {
        match instance {
            Some(instance) => state.0.insert(key, instance),
            None => state.0.remove(&key),
        };
    }
}
