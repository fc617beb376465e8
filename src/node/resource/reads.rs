//! Read one, list a type, list what is owned (spec: consul §5.5, §5.11, §5.12).
//!
//! A list is one view, and so are all its pages: a page names the index of the first one's state, which history still has
//! until it is compacted.

use bytes::Bytes;

use super::error::ResourceError;
use super::prepare::{Wildcards, complete_tenancy};
use crate::fsm;
use crate::node::{Consistency, Node, NodeError, Read, RequestContext};
use crate::storage::state::{NEWEST, StateReader, Table, Version};
use crate::storage::{ReadView, StorageError};
use crate::types::limits::{RESOURCE_LIST_BYTES_MAX, RESOURCE_PAGE_MAX};
use crate::types::resource::{Resource, ResourceId, ResourceRefusal, Selector, Tenancy, Type, resource_key};
use crate::types::{LogIndex, Refusal, StoreEpoch};

/// Records that are loaded together, count.
const BATCH: usize = 1024;

/// What to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceQuery {
    /// The resources; empty units are the default ones.
    pub selector: Selector,
    /// At most so many; zero is no bound but that of an answer.
    pub page_size: usize,
    /// Where to go on.
    pub page: Option<PageToken>,
}

/// Where a list goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageToken {
    /// The lineage in which the index means something.
    pub epoch: StoreEpoch,
    /// The state that all pages show.
    pub at: LogIndex,
    /// Key of the last resource of the page before.
    pub after: Bytes,
}

/// A list, or a page of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// By partition, namespace and name.
    pub resources: Vec<Resource>,
    /// Where to go on, if there is more.
    pub next: Option<PageToken>,
}

type Found<T> = Result<Result<T, ResourceError>, StorageError>;

impl Node {
    /// Reads one resource; with a uid, only that life of it.
    ///
    /// # Errors
    ///
    /// [`ResourceError::NotFound`], [`ResourceError::GroupVersion`]; those of the read path.
    pub async fn read_resource(
        &self,
        ctx: &RequestContext,
        consistency: Consistency,
        mut id: ResourceId,
    ) -> Result<Read<Resource>, ResourceError> {
        self.ready_to_read(ctx, consistency).await?;
        let known = self.resolve(ctx, &id.type_).await?;
        id.tenancy = complete_tenancy(&known, std::mem::take(&mut id.tenancy), Wildcards::Refused)?;
        let scope = known.scope;
        let read = self.read(true, ctx.deadline, move |view| {
            if let Err(Refusal::Resource(refusal)) = fsm::unit_is_marked(view, scope, &id.tenancy)? {
                return Ok(Ok(Err(ResourceError::NotFound(refusal))));
            }
            read_one(view, &id).map(Ok)
        });
        flat(read.await?)
    }

    /// Lists resources of one type.
    ///
    /// # Errors
    ///
    /// [`ResourceError::PageExpired`] and [`ResourceError::ListTooLong`]; those of the read path.
    pub async fn list_resources(
        &self,
        ctx: &RequestContext,
        consistency: Consistency,
        query: ResourceQuery,
    ) -> Result<Read<Listed>, ResourceError> {
        let mut ctx = ctx.clone();
        if let Some(page) = &query.page {
            ctx.min_index = ctx.min_index.max(Some(page.at));
        }
        self.ready_to_read(&ctx, consistency).await?;
        let selector = self.complete_selector(&ctx, query.selector).await?;
        let (page, size) = (query.page, query.page_size);
        let listed = self.read(false, ctx.deadline, move |view| list(view, &selector, page, size).map(Ok));
        flat(listed.await?)
    }

    /// Lists what one life of a resource owns, whatever its type.
    ///
    /// # Errors
    ///
    /// [`ResourceError::ListTooLong`]; those of the read path.
    pub async fn list_resources_by_owner(
        &self,
        ctx: &RequestContext,
        mut owner: ResourceId,
    ) -> Result<Read<Vec<Resource>>, ResourceError> {
        self.ready_to_read(ctx, Consistency::Serializable).await?;
        let known = self.resolve(ctx, &owner.type_).await?;
        // A wildcard is no unit, but whoever asks for one is told so by its name, not by its scope.
        owner.tenancy = complete_tenancy(&known, std::mem::take(&mut owner.tenancy), Wildcards::Allowed)?;
        let listed = self.read(false, ctx.deadline, move |view| owned(view, &owner).map(Ok));
        flat(listed.await?)
    }

    /// Fills in the units of a selector.
    pub(super) async fn complete_selector(
        &self,
        ctx: &RequestContext,
        mut selector: Selector,
    ) -> Result<Selector, ResourceError> {
        let known = self.resolve(ctx, &selector.type_).await?;
        selector.tenancy = complete_tenancy(&known, std::mem::take(&mut selector.tenancy), Wildcards::Allowed)?;
        Ok(selector)
    }
}

fn flat<T>(read: Read<Result<T, ResourceError>>) -> Result<Read<T>, ResourceError> {
    Ok(Read { index: read.index, revision: read.revision, value: read.value? })
}

fn read_one(view: &ReadView<'_>, id: &ResourceId) -> Found<Resource> {
    let not_found = || Ok(Err(ResourceError::NotFound(ResourceRefusal::NotFound)));
    let Some((_, resource)) = view.resource(&resource_key(id))? else { return not_found() };
    if !id.uid.is_empty() && id.uid != resource.id.uid {
        return not_found();
    }
    if id.type_ != resource.id.type_ {
        let (requested, stored) = (id.type_.group_version.clone(), resource.id.type_.group_version);
        return Ok(Err(ResourceError::GroupVersion { requested, stored }));
    }
    Ok(Ok(resource))
}

fn list(view: &ReadView<'_>, selector: &Selector, page: Option<PageToken>, size: usize) -> Found<Listed> {
    let epoch = view.head().epoch.unwrap_or_default();
    let (at, range) = match &page {
        None => (view.applied(), selector.range()),
        Some(page) if page.epoch != epoch => return Ok(Err(ResourceError::PageExpired)),
        Some(page) if page.at < view.head().compacted_index() => return Ok(Err(ResourceError::PageExpired)),
        Some(page) if page.at > view.applied() || !selector.range().contains(&page.after) => {
            return Ok(Err(ResourceError::PageToken));
        }
        Some(page) => (page.at, selector.range_after(&page.after)),
    };
    // What is remembered of the newest state serves only whoever asks for that.
    let point = if at == view.applied() { NEWEST } else { at };
    let limit = if size == 0 { usize::MAX } else { size.min(RESOURCE_PAGE_MAX) };
    let mut listed = Listed::default();
    let mut bytes = 0;
    let done = each(view, &range, point, |key, version, resource| {
        if !selector.matches(&resource.id) {
            return true;
        }
        if listed.resources.len() == limit || bytes > RESOURCE_LIST_BYTES_MAX {
            return false;
        }
        bytes += version.value_len as usize;
        listed.resources.push(resource);
        if listed.resources.len() == limit {
            listed.next = Some(PageToken { epoch, at, after: Bytes::copy_from_slice(key) });
        }
        true
    })?;
    if done {
        // Nothing came after what filled the page.
        listed.next = None;
    } else if bytes > RESOURCE_LIST_BYTES_MAX && listed.resources.len() < limit {
        return Ok(Err(ResourceError::ListTooLong(RESOURCE_LIST_BYTES_MAX)));
    }
    Ok(Ok(listed))
}

/// Goes through resources in the order of their keys, until `visit` answers false; tells whether it came to the end.
pub(super) fn each(
    view: &ReadView<'_>,
    range: &crate::types::KeyRange,
    at: LogIndex,
    mut visit: impl FnMut(&[u8], &Version, Resource) -> bool,
) -> Result<bool, StorageError> {
    let mut scan = view.scan(Table::Resource, range, at)?;
    let mut batch: Vec<Version> = Vec::with_capacity(BATCH);
    loop {
        batch.clear();
        while batch.len() < BATCH {
            match scan.next()? {
                Some((_, version)) => batch.push(version),
                None => break,
            }
        }
        let is_last = batch.len() < BATCH;
        for (version, record) in batch.iter().zip(view.load(&batch)?) {
            let resource = record.resource(version.index)?;
            if !visit(&record.kv.key, version, resource) {
                return Ok(false);
            }
        }
        if is_last {
            return Ok(true);
        }
    }
}

fn owned(view: &ReadView<'_>, owner: &ResourceId) -> Found<Vec<Resource>> {
    let (mut found, mut bytes) = (Vec::new(), 0);
    let mut after = Bytes::new();
    loop {
        let keys = view.owned(owner, &after, BATCH)?;
        for key in &keys {
            if let Some((version, resource)) = view.resource(key)? {
                bytes += version.value_len as usize;
                found.push(resource);
            }
        }
        if bytes > RESOURCE_LIST_BYTES_MAX {
            return Ok(Err(ResourceError::ListTooLong(RESOURCE_LIST_BYTES_MAX)));
        }
        match keys.last() {
            Some(last) if keys.len() == BATCH => after.clone_from(last),
            Some(_) | None => return Ok(Ok(found)),
        }
    }
}

impl Node {
    /// The resources of a type that live in some units, a bounded number: for what the leader does by itself.
    pub(super) async fn some_resources(
        &self,
        ctx: &RequestContext,
        type_: Type,
        tenancy: Tenancy,
        count: usize,
        wanted: fn(&Resource) -> bool,
    ) -> Result<Vec<Resource>, NodeError> {
        let selector = Selector { type_, tenancy, name_prefix: String::new() };
        let read = self.read(false, ctx.deadline, move |view| {
            let mut found = Vec::new();
            each(view, &selector.range(), NEWEST, |_, _, resource| {
                if selector.matches(&resource.id) && wanted(&resource) {
                    found.push(resource);
                }
                found.len() < count
            })?;
            Ok(Ok(found))
        });
        Ok(read.await?.value)
    }
}
