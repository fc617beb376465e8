//! Turns documents into resources that can be written, or into the list of all problems.

use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;

use super::draft::{Draft, TypeNode, Units};
use super::node::{Location, Problem, YamlNode, documents};
use super::{Located, Source, registration};
use crate::resource::catalogue::{Catalogue, KnownType};
use headwater_client::controller::wire;
use headwater_types::resource::{Any, Resource, ResourceId, Scope, Tenancy, Type, TypeName, check_name};

/// A resource that a document of a file describes.
#[derive(Debug)]
pub(in crate::resource) struct Planned {
    file: Rc<str>,
    location: Location,
    pub(in crate::resource) resource: Resource,
    /// The version that the stored resource must have; empty for any.
    pub(in crate::resource) version: String,
}

impl Planned {
    /// `FILE:LINE` of the document that describes it.
    pub(in crate::resource) fn at(&self) -> String {
        format!("{}:{}", self.file, self.location.line)
    }
}

/// The resources of all files in the order in which they can be written: types first, then units of
/// tenancy, then owners before their children. The catalogue gets the types that the files
/// register. An error has the problems that were found, in the order of the files; the catalogue
/// may have changed all the same.
pub(in crate::resource) fn plan(sources: &[Source], catalogue: &mut Catalogue) -> Result<Vec<Planned>, Vec<Located>> {
    let mut problems = Vec::new();
    let mut drafts = Vec::new();
    for source in sources {
        let file: Rc<str> = source.name.as_str().into();
        match documents(&source.text) {
            Ok(found) => {
                for document in found {
                    match Draft::read(document) {
                        Ok(draft) => drafts.push((Rc::clone(&file), source, draft)),
                        Err(problem) => problems.push(Located { file: Rc::clone(&file), problem }),
                    }
                }
            }
            Err(problem) => problems.push(Located { file, problem }),
        }
    }
    // Registrations come first: documents of every file may be of these types.
    let mut registered = HashMap::new();
    for (at, (file, source, draft)) in drafts.iter().enumerate() {
        let is_registration = Catalogue::builtin().resolve(&draft.type_.name).is_ok_and(is_registration);
        let Some(data) = draft.data.as_ref().filter(|_| is_registration) else { continue };
        match registration::read(data, source.folder.as_deref()) {
            Ok((any, used)) => {
                catalogue.add(used.clone());
                registered.insert(at, (any, used));
            }
            Err(problem) => problems.push(Located { file: Rc::clone(file), problem }),
        }
    }
    let has_bad_types = !problems.is_empty();
    let mut planned: Vec<Planned> = Vec::new();
    for (at, (file, _, draft)) in drafts.into_iter().enumerate() {
        let known = match catalogue.resolve(&draft.type_.name) {
            Ok(known) => known,
            // The type may be one of the registrations that could not be read.
            Err(_) if has_bad_types => continue,
            Err(text) => {
                problems.push(Located { file, problem: Problem::at(draft.type_.location, text) });
                continue;
            }
        };
        if is_registration(known) && draft.data.is_some() && !registered.contains_key(&at) {
            continue;
        }
        match resource(&draft, known, catalogue, registered.remove(&at)) {
            Ok(resource) => match planned.iter().find(|other| wire::is_same_resource(&other.resource.id, &resource.id))
            {
                Some(other) => {
                    let text = format!("{} is in {} already", wire::name(&resource.id), other.at());
                    problems.push(Located { file, problem: Problem::at(draft.location, text) });
                }
                None => planned.push(Planned { file, location: draft.location, resource, version: draft.version }),
            },
            Err(problem) => problems.push(Located { file, problem }),
        }
    }
    if problems.is_empty() {
        return order(planned);
    }
    let file_at = |located: &Located| sources.iter().position(|source| *source.name == *located.file);
    problems.sort_by_key(|located| (file_at(located), located.problem.location));
    Err(problems)
}

/// The resource that one document describes, with the version that the stored one must have; empty
/// for any. `folder` is that of the document's file. If the document registers a type, the
/// catalogue gets it.
pub(crate) fn plan_one(
    document: YamlNode,
    folder: Option<&Path>,
    catalogue: &mut Catalogue,
) -> Result<(Resource, String), Problem> {
    let draft = Draft::read(document)?;
    let is_of_type = Catalogue::builtin().resolve(&draft.type_.name).is_ok_and(is_registration);
    let registered = match draft.data.as_ref().filter(|_| is_of_type) {
        Some(data) => {
            let (any, used) = registration::read(data, folder)?;
            catalogue.add(used.clone());
            Some((any, used))
        }
        None => None,
    };
    let known = catalogue.resolve(&draft.type_.name).map_err(|text| Problem::at(draft.type_.location, text))?;
    Ok((resource(&draft, known, catalogue, registered)?, draft.version))
}

/// The id that one document names, with the version that the stored resource must have; empty for
/// any. Data in the document is ignored.
pub(crate) fn named(document: YamlNode, catalogue: &Catalogue) -> Result<(ResourceId, String), Problem> {
    let draft = Draft { data: None, ..Draft::read(document)? };
    let known = catalogue.resolve(&draft.type_.name).map_err(|text| Problem::at(draft.type_.location, text))?;
    Ok((resource(&draft, known, catalogue, None)?.id, draft.version))
}

fn is_registration(known: &KnownType) -> bool {
    *known.type_() == Type::resource_type()
}

fn resource(
    draft: &Draft,
    known: &KnownType,
    catalogue: &Catalogue,
    registered: Option<(Any, headwater_types::resource::ResourceType)>,
) -> Result<Resource, Problem> {
    let derived = registered.as_ref().map(|(_, used)| TypeName::of(&used.type_).0);
    let name = match (&draft.name, &derived) {
        (Some((location, name)), Some(wanted)) if name != wanted => {
            let text = format!("this registration must be called {wanted}, after its type; the name may be left out");
            return Err(Problem::at(*location, text));
        }
        (None, Some(derived)) => derived.clone(),
        (None, None) => return Err(Problem::at(draft.location, "the resource has no name")),
        (Some((location, name)), _) => {
            check_name(name).map_err(|problem| Problem::at(*location, format!("the name {problem}")))?;
            name.clone()
        }
    };
    let id = ResourceId {
        uid: draft.uid.clone(),
        name,
        type_: known.type_().clone(),
        tenancy: tenancy(&draft.units, known)?,
    };
    let owner = draft.owner.as_ref().map(|owner| {
        let known = owner_type(&owner.type_, catalogue)?;
        check_name(&owner.name.1)
            .map_err(|problem| Problem::at(owner.name.0, format!("the owner's name {problem}")))?;
        // The owner is in the child's units by default, as far as the owner's scope has them.
        let mut tenancy = tenancy(&owner.units, known)?;
        if owner.units.partition.is_none() && known.scope().has_partition() && !id.tenancy.partition.is_empty() {
            tenancy.partition.clone_from(&id.tenancy.partition);
        }
        if owner.units.namespace.is_none() && known.scope().has_namespace() && !id.tenancy.namespace.is_empty() {
            tenancy.namespace.clone_from(&id.tenancy.namespace);
        }
        let type_ = known.type_().clone();
        Ok((owner.location, ResourceId { uid: owner.uid.clone(), name: owner.name.1.clone(), type_, tenancy }))
    });
    let owner = owner.transpose()?;
    if let Some((location, owner)) = owner.as_ref().filter(|(_, owner)| wire::is_same_resource(owner, &id)) {
        return Err(Problem::at(*location, format!("{} cannot own itself", wire::name(owner))));
    }
    let mut resource =
        Resource { id, owner: owner.map(|(_, owner)| owner), metadata: draft.metadata.clone(), ..Default::default() };
    resource.data = match (registered, &draft.data) {
        (Some((any, _)), _) => Some(any),
        (None, None) => None,
        (None, Some(data)) => {
            let schema = known.schema().map_err(|error| Problem::at(draft.type_.location, error.to_string()))?;
            let read: Result<Any, Problem> = schema.read_data(data);
            let mut any = read.map_err(|problem| problem.or_at(data.location))?;
            let judged = schema.complete(&mut any, &resource);
            judged.map_err(|violation| Problem::at(data.location, violation.to_string()))?;
            Some(any)
        }
    };
    Ok(resource)
}

fn owner_type<'a>(type_: &TypeNode, catalogue: &'a Catalogue) -> Result<&'a KnownType, Problem> {
    catalogue.resolve(&type_.name).map_err(|text| Problem::at(type_.location, text))
}

fn tenancy(units: &Units, known: &KnownType) -> Result<Tenancy, Problem> {
    let scope = known.scope();
    for (unit, is_there, given) in [
        ("partition", scope.has_partition() || scope == Scope::Undefined, &units.partition),
        ("namespace", scope.has_namespace() || scope == Scope::Undefined, &units.namespace),
    ] {
        if let Some((location, given)) = given {
            if given.is_empty() {
                continue;
            }
            if !is_there {
                let text = format!("{} has {scope} scope, so it cannot have a {unit}", known.type_());
                return Err(Problem::at(*location, text));
            }
            check_name(given).map_err(|problem| Problem::at(*location, format!("the {unit} {problem}")))?;
        }
    }
    let given = |unit: &Option<(Location, String)>| unit.clone().map(|(_, name)| name).filter(|name| !name.is_empty());
    let (partition, namespace) = (given(&units.partition), given(&units.namespace));
    Ok(wire::default_tenancy(scope, partition.as_deref(), namespace.as_deref()))
}

/// Sorts by class (types, partitions, namespaces, others), then by the number of owners above a
/// resource, then by the order of the files. A resource that owns itself through others is an
/// error.
fn order(mut planned: Vec<Planned>) -> Result<Vec<Planned>, Vec<Located>> {
    let owners: Vec<Option<usize>> = planned
        .iter()
        .map(|it| {
            let owner = it.resource.owner.as_ref()?;
            planned.iter().position(|other| wire::is_same_resource(&other.resource.id, owner))
        })
        .collect();
    let mut ranks = Vec::with_capacity(planned.len());
    for (at, it) in planned.iter().enumerate() {
        let mut depth = 0;
        let mut owner = owners[at];
        while let Some(next) = owner {
            depth += 1;
            if depth > planned.len() {
                let text = format!("{} owns itself, through others", wire::name(&it.resource.id));
                let problem = Problem::at(it.location, text);
                return Err(vec![Located { file: Rc::clone(&it.file), problem }]);
            }
            owner = owners[next];
        }
        let type_ = &it.resource.id.type_;
        let class = if *type_ == Type::resource_type() {
            0
        } else if *type_ == Type::partition() {
            1
        } else if *type_ == Type::namespace() {
            2
        } else {
            3
        };
        ranks.push((class, depth, at));
    }
    let mut slots: Vec<Option<Planned>> = planned.drain(..).map(Some).collect();
    ranks.sort_unstable();
    Ok(ranks.into_iter().filter_map(|(_, _, at)| slots[at].take()).collect())
}
