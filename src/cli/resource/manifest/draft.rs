//! One document, taken apart, before it is known whether its type exists.

use std::collections::BTreeMap;

use super::node::{Content, Entry, Node, Place, Problem};
use headwater_types::resource::Type;

/// Content of a document.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) place: Place,
    pub(super) type_: TypeNode,
    /// `None` where a registration is named after its type.
    pub(super) name: Option<(Place, String)>,
    pub(super) uid: String,
    pub(super) units: Units,
    pub(super) owner: Option<OwnerDraft>,
    pub(super) version: String,
    pub(super) metadata: BTreeMap<String, String>,
    pub(super) data: Option<Node>,
}

/// A type as it was written.
#[derive(Debug)]
pub(super) struct TypeNode {
    pub(super) place: Place,
    pub(super) name: String,
}

/// Units of tenancy, with their places.
#[derive(Debug, Default)]
pub(super) struct Units {
    pub(super) partition: Option<(Place, String)>,
    pub(super) namespace: Option<(Place, String)>,
}

/// Owner of the resource.
#[derive(Debug)]
pub(super) struct OwnerDraft {
    pub(super) place: Place,
    pub(super) type_: TypeNode,
    pub(super) name: (Place, String),
    pub(super) uid: String,
    pub(super) units: Units,
}

const MEMBERS: &str = "type, name, uid, tenancy, owner, version, metadata, data";

impl Draft {
    pub(super) fn read(document: Node) -> Result<Self, Problem> {
        let place = document.place;
        let Content::Map(entries) = document.content else {
            return Err(Problem::at(
                place,
                format!("{} where a resource is wanted, a map of {MEMBERS}", document.kind()),
            ));
        };
        let mut id = IdDraft::default();
        let (mut owner, mut version, mut metadata, mut data) = (None, String::new(), BTreeMap::new(), None);
        for entry in entries {
            if id.take(&entry)? {
                continue;
            }
            match entry.key.as_str() {
                // As protobuf has it: everything that names the resource, in one member.
                "id" => {
                    for inner in entry.value.entries()? {
                        if !id.take(inner)? {
                            return Err(unknown(inner, "type, name, uid, tenancy"));
                        }
                    }
                }
                "owner" => owner = OwnerDraft::read(&entry.value)?,
                "version" => version = entry.value.text()?.to_owned(),
                "metadata" => metadata = texts(&entry.value)?,
                "data" => data = Some(entry.value).filter(|value| !matches!(value.content, Content::Null)),
                // Fields that `read` prints and only the server sets.
                "generation" | "status" => {}
                _ => return Err(unknown(&entry, MEMBERS)),
            }
        }
        let type_ = id.type_.ok_or_else(|| Problem::at(place, "the resource has no type"))?;
        Ok(Self { place, type_, name: id.name, uid: id.uid, units: id.units, owner, version, metadata, data })
    }
}

impl OwnerDraft {
    fn read(from: &Node) -> Result<Option<Self>, Problem> {
        if matches!(from.content, Content::Null) {
            return Ok(None);
        }
        let mut id = IdDraft::default();
        for entry in from.entries()? {
            if !id.take(entry)? {
                return Err(unknown(entry, "type, name, uid, tenancy"));
            }
        }
        let place = from.place;
        let type_ = id.type_.ok_or_else(|| Problem::at(place, "the owner has no type"))?;
        let name = id.name.ok_or_else(|| Problem::at(place, "the owner has no name"))?;
        Ok(Some(Self { place, type_, name, uid: id.uid, units: id.units }))
    }
}

/// Name of a resource.
#[derive(Default)]
struct IdDraft {
    type_: Option<TypeNode>,
    name: Option<(Place, String)>,
    uid: String,
    units: Units,
}

impl IdDraft {
    /// Takes a member that belongs to a name; whether it does.
    fn take(&mut self, entry: &Entry) -> Result<bool, Problem> {
        let text = || entry.value.text().map(|text| (entry.value.place, text.to_owned()));
        match entry.key.as_str() {
            "type" => self.type_ = Some(TypeNode::read(&entry.value)?),
            "name" => self.name = Some(text()?),
            "uid" => self.uid = text()?.1,
            "tenancy" if matches!(entry.value.content, Content::Null) => {}
            "tenancy" => {
                for unit in entry.value.entries()? {
                    let value = Some((unit.value.place, unit.value.text()?.to_owned()));
                    match unit.key.as_str() {
                        "partition" => self.units.partition = value,
                        "namespace" => self.units.namespace = value,
                        _ => return Err(unknown(unit, "partition, namespace")),
                    }
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

impl TypeNode {
    fn read(from: &Node) -> Result<Self, Problem> {
        let place = from.place;
        let name = match &from.content {
            Content::Map(entries) => {
                let mut type_ = Type::default();
                for entry in entries {
                    let text = entry.value.text()?.to_owned();
                    match entry.key.as_str() {
                        "group" => type_.group = text,
                        "groupVersion" | "group_version" => type_.group_version = text,
                        "kind" => type_.kind = text,
                        _ => return Err(unknown(entry, "group, groupVersion, kind")),
                    }
                }
                type_.to_string()
            }
            _ => from.text()?.to_owned(),
        };
        Ok(Self { place, name })
    }
}

fn texts(from: &Node) -> Result<BTreeMap<String, String>, Problem> {
    if matches!(from.content, Content::Null) {
        return Ok(BTreeMap::new());
    }
    from.entries()?.iter().map(|entry| Ok((entry.key.clone(), entry.value.text()?.to_owned()))).collect()
}

fn unknown(entry: &Entry, known: &str) -> Problem {
    Problem::at(entry.place, format!("unknown member {:?}; there are {known}", entry.key))
}
