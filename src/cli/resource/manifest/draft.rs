//! One document, split into its fields, before its type is looked up.

use std::collections::BTreeMap;

use super::node::{Content, Location, Problem, YamlEntry, YamlNode};
use headwater_types::resource::Type;

/// Fields of a document.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) location: Location,
    pub(super) type_: TypeNode,
    /// `None` if the document has no name: a registration is then named after its type.
    pub(super) name: Option<(Location, String)>,
    pub(super) uid: String,
    pub(super) units: Units,
    pub(super) owner: Option<OwnerDraft>,
    pub(super) version: String,
    pub(super) metadata: BTreeMap<String, String>,
    pub(super) data: Option<YamlNode>,
}

/// The name of a type, not looked up yet: the text of the document, or `group.groupVersion.Kind`
/// for a map.
#[derive(Debug)]
pub(super) struct TypeNode {
    pub(super) location: Location,
    pub(super) name: String,
}

/// Units of tenancy, with their locations. `None` for a unit that the document leaves out.
#[derive(Debug, Default)]
pub(super) struct Units {
    pub(super) partition: Option<(Location, String)>,
    pub(super) namespace: Option<(Location, String)>,
}

/// Owner of the resource.
#[derive(Debug)]
pub(super) struct OwnerDraft {
    pub(super) location: Location,
    pub(super) type_: TypeNode,
    pub(super) name: (Location, String),
    pub(super) uid: String,
    pub(super) units: Units,
}

const MEMBERS: &str = "type, name, uid, tenancy, owner, version, metadata, data";

impl Draft {
    pub(super) fn read(document: YamlNode) -> Result<Self, Problem> {
        let location = document.location;
        let Content::Map(entries) = document.content else {
            return Err(Problem::at(
                location,
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
                // Protobuf's form: one member with all fields that name the resource.
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
        let type_ = id.type_.ok_or_else(|| Problem::at(location, "the resource has no type"))?;
        Ok(Self { location, type_, name: id.name, uid: id.uid, units: id.units, owner, version, metadata, data })
    }
}

impl OwnerDraft {
    fn read(from: &YamlNode) -> Result<Option<Self>, Problem> {
        if matches!(from.content, Content::Null) {
            return Ok(None);
        }
        let mut id = IdDraft::default();
        for entry in from.entries()? {
            if !id.take(entry)? {
                return Err(unknown(entry, "type, name, uid, tenancy"));
            }
        }
        let location = from.location;
        let type_ = id.type_.ok_or_else(|| Problem::at(location, "the owner has no type"))?;
        let name = id.name.ok_or_else(|| Problem::at(location, "the owner has no name"))?;
        Ok(Some(Self { location, type_, name, uid: id.uid, units: id.units }))
    }
}

/// The fields that name a resource.
#[derive(Default)]
struct IdDraft {
    type_: Option<TypeNode>,
    name: Option<(Location, String)>,
    uid: String,
    units: Units,
}

impl IdDraft {
    /// Takes a field that names the resource. `false` if the field is none of those.
    fn take(&mut self, entry: &YamlEntry) -> Result<bool, Problem> {
        let text = || entry.value.text().map(|text| (entry.value.location, text.to_owned()));
        match entry.key.as_str() {
            "type" => self.type_ = Some(TypeNode::read(&entry.value)?),
            "name" => self.name = Some(text()?),
            "uid" => self.uid = text()?.1,
            "tenancy" if matches!(entry.value.content, Content::Null) => {}
            "tenancy" => {
                for unit in entry.value.entries()? {
                    let value = Some((unit.value.location, unit.value.text()?.to_owned()));
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
    fn read(from: &YamlNode) -> Result<Self, Problem> {
        let location = from.location;
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
        Ok(Self { location, name })
    }
}

fn texts(from: &YamlNode) -> Result<BTreeMap<String, String>, Problem> {
    if matches!(from.content, Content::Null) {
        return Ok(BTreeMap::new());
    }
    from.entries()?.iter().map(|entry| Ok((entry.key.clone(), entry.value.text()?.to_owned()))).collect()
}

fn unknown(entry: &YamlEntry, known: &str) -> Problem {
    Problem::at(entry.location, format!("unknown member {:?}; there are {known}", entry.key))
}
