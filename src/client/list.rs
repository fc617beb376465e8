//! The names of all services, as a view.

use std::collections::BTreeSet;

use headwater_proto::pb::subscribe::event::Payload;
use headwater_proto::pb::subscribe::subscribe_request::Subject;
use headwater_proto::pb::subscribe::{CatalogOp, SubscribeRequest, Topic};

use super::topic::{Rejected, ViewTopic};

/// The topic of a view: the names of services. A name appears with its first instance and
/// disappears with its last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ServiceList;

/// Names of services, in order.
pub type Names = BTreeSet<String>;

impl ViewTopic for ServiceList {
    type State = Names;
    type Change = (CatalogOp, String);

    fn request(&self) -> SubscribeRequest {
        let subject = Some(Subject::WildcardSubject(true));
        SubscribeRequest { topic: Topic::ServiceList.into(), subject, ..Default::default() }
    }

    fn read(&self, payload: Payload) -> Result<Self::Change, Rejected> {
        let Payload::Service(update) = payload else { return Err(Rejected("an event of another topic")) };
        let op = CatalogOp::try_from(update.op).map_err(|_| Rejected("an operation that is not known"))?;
        Ok((op, update.name))
    }

    fn apply(&self, state: &mut Names, (op, name): Self::Change) {
        match op {
            CatalogOp::Register => state.insert(name),
            CatalogOp::Deregister => state.remove(&name),
        };
    }
}
