//! Read one, list a type, list a resource's dependents (spec: consul §5.5, §5.11, §5.12).
//!
//! A list comes from one view. All its pages show the state at one index, which the page token
//! names. That state can be read until it is compacted.

use bytes::Bytes;

use super::TypedResources;
use super::error::ResourceError;
use super::prepare::{Wildcards, complete_tenancy};
use super::rights::ResourceRights;
use crate::position::Position;
use crate::{Consistency, NodeError, Read, RequestContext};
use headwater_storage::state::{NEWEST, StateReader, Table, Version};
use headwater_storage::{ReadView, StorageError};
use headwater_types::limits::{RESOURCE_LIST_BYTES_MAX, RESOURCE_PAGE_MAX};
use headwater_types::resource::{Resource, ResourceId, ResourceRefusal, Selector, Tenancy, Type, resource_key};
use headwater_types::{Access, KeyRange, LogIndex, Refusal, Space, StoreEpoch};

/// Most records that one step of a list loads, count.
const BATCH: usize = 1024;
/// Bytes of records at which a load is full; its last record may exceed them.
const BATCH_BYTES: usize = 4 * 1024 * 1024;

/// The resources, page size and start of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceQuery {
    /// The resources to list; empty units are the default ones.
    pub selector: Selector,
    /// Most resources of a page, count; a number above `RESOURCE_PAGE_MAX` counts as that. Zero for
    /// a list without pages, bounded by the size of an answer.
    pub page_size: usize,
    /// The page to return, as [`Listed::next`] of the page before gave it; `None` for the first.
    pub page: Option<PageToken>,
}

/// The cursor at which a further page of a list begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageToken {
    /// The lineage of the index.
    pub epoch: StoreEpoch,
    /// Log index of the state that all pages of the list show.
    pub at: LogIndex,
    /// Key of the last resource of the page before.
    pub after: Bytes,
}

/// A list, or a page of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// The resources, in the order of partition, namespace and name.
    pub resources: Vec<Resource>,
    /// The cursor of the next page; `None` if there is none.
    pub next: Option<PageToken>,
}

pub(super) type Found<T> = Result<Result<T, ResourceError>, StorageError>;

impl TypedResources<'_> {
    /// Reads one resource. If `id` has a uid, the stored resource must have the same one.
    ///
    /// # Errors
    ///
    /// [`ResourceError::NotFound`], [`ResourceError::GroupVersion`]; [`ResourceError::TypeUnknown`]
    /// and [`ResourceError::Scope`] for an invalid id; [`ResourceError::Node`], also without the
    /// right.
    pub async fn read(
        self,
        ctx: &RequestContext,
        consistency: Consistency,
        mut id: ResourceId,
    ) -> Result<Read<Resource>, ResourceError> {
        self.node.ready_to_read(ctx, consistency).await?;
        loop {
            let (known, rights) = self.resolve_for(ctx, &id.type_, Access::READ).await?;
            id.tenancy = complete_tenancy(&known, std::mem::take(&mut id.tenancy), Wildcards::Refused)?;
            ctx.note_read(Space::Resource, &KeyRange::One(resource_key(&id)));
            rights.permit(&id, Access::READ)?;
            let (scope, id) = (known.scope, id.clone());
            let read = self.node.read(true, ctx, move |view| {
                if let Err(Refusal::Resource(refusal)) = headwater_fsm::unit_is_marked(view, scope, &id.tenancy)? {
                    return Ok(Ok(Err(ResourceError::NotFound(refusal))));
                }
                read_one(view, &id).map(Ok)
            });
            let read = read.await?;
            if !self.is_outdated(&rights) {
                return flat(read);
            }
        }
    }

    /// Lists the resources of one type that the query selects and the principal may read.
    ///
    /// # Errors
    ///
    /// [`ResourceError::PageExpired`], [`ResourceError::PageToken`] and
    /// [`ResourceError::ListTooLong`]; [`ResourceError::TypeUnknown`] and [`ResourceError::Scope`]
    /// for an invalid selector; [`ResourceError::Node`], also if none of it may be read.
    pub async fn list(
        self,
        ctx: &RequestContext,
        consistency: Consistency,
        query: ResourceQuery,
    ) -> Result<Read<Listed>, ResourceError> {
        let mut ctx = ctx.clone();
        if let Some(page) = &query.page {
            // An index of another lineage is not waited for: this store may never reach it.
            let position = Position { index: page.at, epoch: Some(page.epoch) };
            if self.node.is_of_another_lineage(&ctx, position).await? {
                return Err(ResourceError::PageExpired);
            }
            ctx.min_index = ctx.min_index.max(Some(page.at));
        }
        self.node.ready_to_read(&ctx, consistency).await?;
        let selector = self.complete_selector(&ctx, query.selector).await?;
        ctx.note_read(Space::Resource, &selector.range());
        loop {
            let rights = self.rights_to(&ctx, &selector)?;
            let (page, size) = (query.page.clone(), query.page_size);
            let (selector, shown) = (selector.clone(), rights.clone());
            let work =
                move |view: &ReadView<'_>| list(view, &selector, &shown, page, size, RESOURCE_LIST_BYTES_MAX).map(Ok);
            let listed = self.node.read(false, &ctx, work).await?;
            if !self.is_outdated(&rights) {
                return flat(listed);
            }
        }
    }

    /// Lists the resources of all types that `owner`, with its uid, owns, as far as they may be
    /// read. The owner need not exist.
    ///
    /// # Errors
    ///
    /// [`ResourceError::OwnsTooMuch`]; [`ResourceError::TypeUnknown`] and [`ResourceError::Scope`]
    /// for an invalid owner; [`ResourceError::Node`], also if the owner may not be read.
    pub async fn list_by_owner(
        self,
        ctx: &RequestContext,
        mut owner: ResourceId,
    ) -> Result<Read<Vec<Resource>>, ResourceError> {
        self.node.ready_to_read(ctx, Consistency::Serializable).await?;
        let (known, _) = self.resolve_for(ctx, &owner.type_, Access::READ).await?;
        // The face refuses wildcards with an error of its own: here they must pass.
        owner.tenancy = complete_tenancy(&known, std::mem::take(&mut owner.tenancy), Wildcards::Allowed)?;
        loop {
            let rights = self.rights(ctx)?;
            rights.permit(&owner, Access::READ)?;
            let (owner, shown) = (owner.clone(), rights.clone());
            let listed = self.node.read(false, ctx, move |view| owned(view, &owner, &shown).map(Ok)).await?;
            if !self.is_outdated(&rights) {
                return flat(listed);
            }
        }
    }

    /// Looks up the selector's type, and completes its tenancy by the type's scope
    /// ([`complete_tenancy`]). Wildcards are allowed.
    pub(super) async fn complete_selector(
        self,
        ctx: &RequestContext,
        mut selector: Selector,
    ) -> Result<Selector, ResourceError> {
        let (known, _) = self.resolve_for(ctx, &selector.type_, Access::READ).await?;
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

/// Reads one page, or the whole list if `size` is 0. A page ends with the resource that reaches
/// `size` or exceeds `bytes_max`, and names the next page if more follow. A whole list that exceeds
/// `bytes_max` is an error.
fn list(
    view: &ReadView<'_>,
    selector: &Selector,
    rights: &ResourceRights,
    page: Option<PageToken>,
    size: usize,
    bytes_max: usize,
) -> Found<Listed> {
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
    // The cache of the newest state serves only reads at `NEWEST`.
    let point = if at == view.applied() { NEWEST } else { at };
    let limit = if size == 0 { usize::MAX } else { size.min(RESOURCE_PAGE_MAX) };
    let mut listed = Listed::default();
    let mut bytes = 0;
    // One resource more than the page holds shows that another page follows.
    let done = each(view, &range, point, limit.saturating_add(1), |key, version, resource| {
        if !selector.matches(&resource.id) || !rights.shows(key) {
            return true;
        }
        if listed.next.is_some() {
            return false;
        }
        bytes += version.value_len as usize;
        listed.resources.push(resource);
        if listed.resources.len() == limit || bytes > bytes_max {
            listed.next = Some(PageToken { epoch, at, after: Bytes::copy_from_slice(key) });
        }
        true
    })?;
    if done {
        // Nothing follows the resource that filled the page.
        listed.next = None;
    } else if size == 0 {
        return Ok(Err(ResourceError::ListTooLong(bytes_max)));
    }
    Ok(Ok(listed))
}

/// Visits resources in the order of their keys, until `visit` returns false. Returns true if
/// `visit` never returned false. `wanted` is the likely number of visits: the size of the first
/// load.
pub(super) fn each(
    view: &ReadView<'_>,
    range: &KeyRange,
    at: LogIndex,
    wanted: usize,
    mut visit: impl FnMut(&[u8], &Version, Resource) -> bool,
) -> Result<bool, StorageError> {
    let mut scan = view.scan(Table::Resource, range, at)?;
    let mut batches = Batches::new(wanted);
    loop {
        let batch = batches.next(|| Ok::<_, StorageError>(scan.next()?.map(|(_, version)| version)))?;
        if batch.is_empty() {
            return Ok(true);
        }
        for (version, record) in batch.iter().zip(view.load(&batch)?) {
            let resource = record.resource(version.index)?;
            if !visit(&record.kv.key, version, resource) {
                return Ok(false);
            }
        }
    }
}

/// Sizes of loads: the wanted count first, then twice the size before, up to [`BATCH`].
struct Batches {
    count: usize,
    is_over: bool,
}

impl Batches {
    fn new(wanted: usize) -> Self {
        Self { count: wanted.clamp(1, BATCH), is_over: false }
    }

    /// The versions of the next load; empty after the last.
    fn next<E>(&mut self, mut scan: impl FnMut() -> Result<Option<Version>, E>) -> Result<Vec<Version>, E> {
        let (mut batch, mut bytes) = (Vec::with_capacity(self.count), 0);
        while !self.is_over && batch.len() < self.count && bytes < BATCH_BYTES {
            let Some(version) = scan()? else {
                self.is_over = true;
                break;
            };
            bytes += version.value_len as usize;
            batch.push(version);
        }
        self.count = (2 * self.count).min(BATCH);
        Ok(batch)
    }
}

/// The resources of `owner` that `rights` may read.
fn owned(view: &ReadView<'_>, owner: &ResourceId, rights: &ResourceRights) -> Found<Vec<Resource>> {
    let (mut found, mut bytes) = (Vec::new(), 0);
    let mut after = Bytes::new();
    loop {
        let keys = view.owned(owner, &after, BATCH)?;
        for key in keys.iter().filter(|key| rights.shows(key)) {
            if let Some((version, resource)) = view.resource(key)? {
                bytes += version.value_len as usize;
                found.push(resource);
            }
            if bytes > RESOURCE_LIST_BYTES_MAX {
                return Ok(Err(ResourceError::OwnsTooMuch(RESOURCE_LIST_BYTES_MAX)));
            }
        }
        match keys.last() {
            Some(last) if keys.len() == BATCH => after.clone_from(last),
            Some(_) | None => return Ok(Ok(found)),
        }
    }
}

impl TypedResources<'_> {
    /// At most `count` resources of a type that match `wanted`, for the leader's own tasks.
    pub(super) async fn some(
        self,
        ctx: &RequestContext,
        type_: Type,
        tenancy: Tenancy,
        count: usize,
        wanted: fn(&Resource) -> bool,
    ) -> Result<Vec<Resource>, NodeError> {
        let selector = Selector { type_, tenancy, name_prefix: String::new() };
        let read = self.node.read_by_itself(ctx.deadline, move |view| {
            let mut found = Vec::new();
            each(view, &selector.range(), NEWEST, count, |_, _, resource| {
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

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use headwater_storage::state::{AppliedState, StateOptions, StateStore};
    use headwater_types::Term;
    use headwater_types::resource::Any;

    const VALUE_BYTES: usize = 1000;

    pub(in super::super) fn store(names: &[&str]) -> (tempfile::TempDir, StateStore) {
        let dir = tempfile::tempdir().unwrap();
        let store = StateStore::open(dir.path(), &StateOptions::default()).unwrap();
        let db = store.current();
        let mut txn = store.begin(&db).unwrap();
        for (at, name) in names.iter().enumerate() {
            let index = LogIndex(at as u64 + 1);
            txn.begin_command(index, 0);
            let data = Any { type_url: String::new(), value: vec![0; VALUE_BYTES].into() };
            let id = ResourceId { name: (*name).to_owned(), type_: type_(), ..ResourceId::default() };
            txn.put_resource(Resource { id, data: Some(data), ..Resource::default() }, None).unwrap();
            txn.end_command();
            txn.set_applied(&AppliedState { term: Term(1), index, membership: None });
        }
        txn.commit().unwrap();
        drop(db);
        (dir, store)
    }

    pub(in super::super) fn type_() -> Type {
        Type::new("demo", "v1", "Thing")
    }

    fn names(listed: &Listed) -> Vec<&str> {
        listed.resources.iter().map(|resource| resource.id.name.as_str()).collect()
    }

    #[test]
    fn a_page_that_is_too_heavy_ends_early_and_says_where_to_go_on() {
        let (_dir, store) = store(&["a", "b", "c", "d", "e"]);
        let db = store.current();
        let view = db.view().unwrap();
        let selector = Selector::everywhere(type_());
        let all = ResourceRights::all();
        let list = |page, size, bytes_max| list(&view, &selector, &all, page, size, bytes_max).unwrap();
        // Each resource takes a little more than its data: the third one exceeds the limit.
        let bytes_max = 2 * VALUE_BYTES + VALUE_BYTES / 2;
        let first = list(None, 100, bytes_max).unwrap();
        assert_eq!(names(&first), ["a", "b", "c"]);
        let second = list(first.next, 100, bytes_max).unwrap();
        assert_eq!((names(&second), second.next.is_none()), (vec!["d", "e"], true));
        // Without pages, all or an error. A count ends a page as well.
        assert_eq!(list(None, 0, bytes_max), Err(ResourceError::ListTooLong(bytes_max)));
        assert_eq!(names(&list(None, 0, 10 * VALUE_BYTES).unwrap()), ["a", "b", "c", "d", "e"]);
        let first = list(None, 4, 10 * VALUE_BYTES).unwrap();
        assert_eq!(names(&first), ["a", "b", "c", "d"]);
        let second = list(first.next, 1, 10 * VALUE_BYTES).unwrap();
        assert_eq!((names(&second), second.next.is_none()), (vec!["e"], true));
    }

    #[test]
    fn no_more_is_loaded_than_is_wanted_or_fits() {
        let sizes = |value_len: u32, wanted: usize, there: usize| {
            let mut batches = Batches::new(wanted);
            let mut left = there;
            let mut scan = || {
                let version = (left > 0).then(|| Version { value_len, ..Version::default() });
                left = left.saturating_sub(1);
                Ok::<_, ()>(version)
            };
            let mut sizes = Vec::new();
            loop {
                match batches.next(&mut scan).unwrap().len() {
                    0 => return sizes,
                    size => sizes.push(size),
                }
            }
        };
        assert_eq!(sizes(10, 2, 20), [2, 4, 8, 6], "a page of few loads few");
        assert_eq!(sizes(10, BATCH, 3000), [1024, 1024, 952]);
        let mebibyte = 1024 * 1024;
        assert_eq!(sizes(mebibyte, BATCH, 10), [4, 4, 2]);
        assert_eq!(sizes(5 * mebibyte, BATCH, 2), [1, 1], "one always is");
    }
}
