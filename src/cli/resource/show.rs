//! Resources as people and programs read them. YAML and JSON output is a manifest: it can be
//! applied.

use std::collections::BTreeMap;
use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::ValueEnum;
use serde::ser::{Error as _, SerializeMap};
use serde::{Serialize, Serializer};

use super::catalogue::Catalogue;
use crate::error::CliError;
use crate::output::{WriteOut, print_json, print_table};
use headwater_client::controller::wire;
use headwater_proto::pb::pbresource;
use headwater_schema::JsonData;
use headwater_types::resource::{Any, DELETION_TIMESTAMP, ResourceId, Tenancy};

/// Format of printed resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// YAML documents, which `headwater resource apply` accepts
    Yaml,
    /// JSON objects, one a line, which `headwater resource apply` accepts
    Json,
    /// One line for each resource
    Table,
}

impl Output {
    /// The format to print in: `asked` if it is given (`--output`), else that of `general`
    /// (`--write-out`). There, `simple` stands for `preferred`, the command's default.
    pub(super) fn choose(asked: Option<Self>, general: WriteOut, preferred: Self) -> Self {
        asked.unwrap_or(match general {
            WriteOut::Json => Self::Json,
            WriteOut::Table => Self::Table,
            WriteOut::Simple => preferred,
        })
    }
}

/// A resource in the form of a manifest.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Shown {
    #[serde(rename = "type")]
    type_: String,
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    uid: String,
    #[serde(skip_serializing_if = "Units::is_empty")]
    tenancy: Units,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<ShownId>,
    #[serde(skip_serializing_if = "String::is_empty")]
    version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    generation: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    metadata: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    status: BTreeMap<String, ShownStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Data>,
}

#[derive(Serialize)]
struct ShownId {
    #[serde(rename = "type")]
    type_: String,
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    uid: String,
    #[serde(skip_serializing_if = "Units::is_empty")]
    tenancy: Units,
}

#[derive(Serialize)]
struct Units {
    #[serde(skip_serializing_if = "String::is_empty")]
    partition: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    namespace: String,
}

impl Units {
    fn is_empty(&self) -> bool {
        self.partition.is_empty() && self.namespace.is_empty()
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownStatus {
    observed_generation: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    updated_at: String,
    conditions: Vec<ShownCondition>,
}

#[derive(Serialize)]
struct ShownCondition {
    #[serde(rename = "type")]
    type_: String,
    state: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource: Option<ShownId>,
}

/// The data of a resource as it is printed.
pub(crate) enum Data {
    /// Data as JSON, by its registered type.
    Known(JsonData),
    /// Data of a type that is not registered or cannot be used, or that does not fit the current
    /// registration.
    Opaque(Any),
}

impl Serialize for Data {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Known(data) => data.serialize(to),
            Self::Opaque(any) => {
                let mut map = to.serialize_map(Some(2))?;
                map.serialize_entry("@type", &any.type_url).map_err(S::Error::custom)?;
                map.serialize_entry("base64", &STANDARD.encode(&any.value)).map_err(S::Error::custom)?;
                map.end()
            }
        }
    }
}

impl Data {
    /// The data `any` of the resource `id`, read by the type that `catalogue` has for it.
    pub(crate) fn of(id: &ResourceId, any: Any, catalogue: &Catalogue) -> Self {
        let schema = catalogue.get(&id.type_).and_then(|known| known.schema().ok());
        match schema.map(|schema| schema.data_as_json(&any)) {
            Some(Ok(data)) => Self::Known(data),
            Some(Err(_)) | None => Self::Opaque(any),
        }
    }
}

impl Shown {
    pub(super) fn new(resource: &pbresource::Resource, catalogue: &Catalogue) -> Self {
        let id = wire::id_from_pb(resource.id.as_ref());
        let data = wire::data_from_pb(resource).map(|any| Data::of(&id, any, catalogue));
        Self {
            type_: id.type_.to_string(),
            name: id.name,
            uid: id.uid,
            tenancy: id.tenancy.into(),
            owner: resource.owner.as_ref().map(|owner| wire::id_from_pb(Some(owner)).into()),
            version: resource.version.clone(),
            generation: resource.generation.clone(),
            metadata: resource.metadata.clone(),
            status: resource.status.iter().map(|(key, status)| (key.clone(), status.into())).collect(),
            data,
        }
    }
}

impl From<Tenancy> for Units {
    fn from(it: Tenancy) -> Self {
        Self { partition: it.partition, namespace: it.namespace }
    }
}

impl From<ResourceId> for ShownId {
    fn from(id: ResourceId) -> Self {
        Self { type_: id.type_.to_string(), name: id.name, uid: id.uid, tenancy: id.tenancy.into() }
    }
}

impl From<&pbresource::Status> for ShownStatus {
    fn from(status: &pbresource::Status) -> Self {
        Self {
            observed_generation: status.observed_generation.clone(),
            updated_at: status.updated_at.as_ref().map(ToString::to_string).unwrap_or_default(),
            conditions: status.conditions.iter().map(Into::into).collect(),
        }
    }
}

impl From<&pbresource::Condition> for ShownCondition {
    fn from(condition: &pbresource::Condition) -> Self {
        let reference = |it: &pbresource::Reference| ShownId {
            type_: wire::type_from_pb(it.r#type.as_ref()).to_string(),
            name: it.name.clone(),
            uid: String::new(),
            tenancy: wire::tenancy_from_pb(it.tenancy.as_ref()).into(),
        };
        Self {
            type_: condition.r#type.clone(),
            state: condition.state().as_str_name().trim_start_matches("STATE_").to_ascii_lowercase(),
            reason: condition.reason.clone(),
            message: condition.message.clone(),
            resource: condition.resource.as_ref().map(reference),
        }
    }
}

/// Prints `value` as one YAML document.
pub(super) fn print_yaml(out: &mut impl Write, value: &impl Serialize) -> Result<(), CliError> {
    let text = serde_saphyr::to_string(value).map_err(CliError::other)?;
    Ok(out.write_all(text.as_bytes())?)
}

/// Prints resources one after the other: YAML and JSON at once, a table when it is finished.
pub(super) struct Printer<'a, W> {
    out: W,
    output: Output,
    catalogue: &'a Catalogue,
    printed: usize,
    rows: Vec<Vec<String>>,
}

impl<'a, W: Write> Printer<'a, W> {
    pub(super) fn new(out: W, output: Output, catalogue: &'a Catalogue) -> Self {
        Self { out, output, catalogue, printed: 0, rows: Vec::new() }
    }

    pub(super) fn print(&mut self, resource: &pbresource::Resource) -> Result<(), CliError> {
        match self.output {
            Output::Json => print_json(&mut self.out, &Shown::new(resource, self.catalogue))?,
            Output::Yaml => {
                if self.printed > 0 {
                    writeln!(self.out, "---")?;
                }
                print_yaml(&mut self.out, &Shown::new(resource, self.catalogue))?;
            }
            Output::Table => self.rows.push(row(resource)),
        }
        self.printed += 1;
        Ok(())
    }

    /// Flushes, and prints the table before if that is the format: it needs all rows for its column
    /// widths.
    pub(super) fn finish(mut self) -> Result<(), CliError> {
        if self.output == Output::Table {
            print_table(&mut self.out, HEADER, self.rows)?;
        }
        Ok(self.out.flush()?)
    }
}

const HEADER: &[&str] = &["TYPE", "PARTITION", "NAMESPACE", "NAME", "VERSION", "OWNER", "STATUS"];

pub(super) fn row(resource: &pbresource::Resource) -> Vec<String> {
    let id = wire::id_from_pb(resource.id.as_ref());
    let owner = resource.owner.as_ref().map(|owner| wire::id_from_pb(Some(owner)));
    vec![
        id.type_.to_string(),
        id.tenancy.partition,
        id.tenancy.namespace,
        id.name,
        resource.version.clone(),
        owner.map(|owner| format!("{} {}", owner.type_.kind, owner.name)).unwrap_or_default(),
        standing(resource),
    ]
}

/// The column STATUS: a mark for deletion, and the conditions that do not hold. Often empty.
fn standing(resource: &pbresource::Resource) -> String {
    let mut said = Vec::new();
    if resource.metadata.contains_key(DELETION_TIMESTAMP) {
        said.push("deleting".to_owned());
    }
    for status in resource.status.values() {
        for condition in &status.conditions {
            if condition.state() == pbresource::condition::State::False {
                said.push(format!("not {}", condition.r#type));
            }
        }
    }
    said.join(", ")
}
