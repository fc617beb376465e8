//! The dependencies of the program as a CycloneDX document (version 1.5, JSON).
//!
//! Invariant: the document follows from the lock file, the packages and the platform alone. So it
//! has neither a time nor a serial number, and two of them can be compared.

use anyhow::Context;
use serde::Serialize;

use super::cargo::{Graph, LockFile, Node, PROGRAM, PackageId};
use super::licence::Expression;

/// Version of the format.
const SPEC_VERSION: &str = "1.5";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    bom_format: &'static str,
    spec_version: &'static str,
    version: u32,
    metadata: Metadata,
    components: Vec<Component>,
    dependencies: Vec<Dependency>,
}

#[derive(Serialize)]
struct Metadata {
    tools: Tools,
    component: Component,
    properties: Vec<Property>,
}

#[derive(Serialize)]
struct Tools {
    components: Vec<Tool>,
}

#[derive(Serialize)]
struct Tool {
    #[serde(rename = "type")]
    kind: &'static str,
    name: &'static str,
    version: &'static str,
}

#[derive(Serialize)]
struct Property {
    name: &'static str,
    value: String,
}

#[derive(Serialize)]
struct Component {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(rename = "bom-ref")]
    reference: String,
    name: String,
    version: String,
    /// `required` for a package that is linked into the program; `excluded` for one that only its
    /// build uses.
    scope: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hashes: Vec<Hash>,
    licenses: Vec<Licence>,
    /// `None` for the project's own packages, which no registry has.
    #[serde(skip_serializing_if = "Option::is_none")]
    purl: Option<String>,
}

#[derive(Serialize)]
struct Hash {
    alg: &'static str,
    content: String,
}

#[derive(Serialize)]
struct Licence {
    expression: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Dependency {
    #[serde(rename = "ref")]
    reference: String,
    depends_on: Vec<String>,
}

/// The document of the program on a platform.
pub(crate) fn of_program(target: &str) -> anyhow::Result<String> {
    let (lock, graph) = (LockFile::read()?, Graph::of_program(target)?);
    document(&lock, &graph, target)
}

/// The document of the packages in `graph`, with the checksums of `lock`.
pub(crate) fn document(lock: &LockFile, graph: &Graph, target: &str) -> anyhow::Result<String> {
    let checksums = lock.checksums();
    let component = |(id, node): (&PackageId, &Node)| {
        let (name, version) = id;
        let checksum = checksums.get(id).copied();
        let licence = Expression::parse(&node.licence).with_context(|| format!("{name} {version}"))?;
        Ok::<_, anyhow::Error>(Component {
            kind: if name == PROGRAM { "application" } else { "library" },
            reference: reference(id, checksum.is_some()),
            name: name.clone(),
            version: version.clone(),
            scope: if node.is_linked { "required" } else { "excluded" },
            hashes: checksum.map(|content| Hash { alg: "SHA-256", content: content.to_owned() }).into_iter().collect(),
            licenses: vec![Licence { expression: licence.to_string() }],
            purl: checksum.map(|_| purl(id)),
        })
    };
    let (program, others): (Vec<_>, Vec<_>) = graph.0.iter().partition(|((name, _), _)| name == PROGRAM);
    let program = *program.first().context("the program is not among its dependencies")?;
    let of = |id: &PackageId| reference(id, checksums.contains_key(id));
    let dependencies = graph
        .0
        .iter()
        .map(|(id, node)| Dependency { reference: of(id), depends_on: node.dependencies.iter().map(of).collect() });
    let document = Document {
        bom_format: "CycloneDX",
        spec_version: SPEC_VERSION,
        version: 1,
        metadata: Metadata {
            tools: Tools {
                components: vec![Tool {
                    kind: "application",
                    name: env!("CARGO_PKG_NAME"),
                    version: env!("CARGO_PKG_VERSION"),
                }],
            },
            component: component(program)?,
            properties: vec![Property { name: "headwater:target", value: target.to_owned() }],
        },
        components: others.into_iter().map(component).collect::<anyhow::Result<_>>()?,
        dependencies: dependencies.collect(),
    };
    Ok(serde_json::to_string_pretty(&document)?)
}

/// The name of a package within the document.
fn reference(id: &PackageId, is_of_registry: bool) -> String {
    if is_of_registry { purl(id) } else { format!("{}@{}", id.0, id.1) }
}

/// The package URL of a package of the registry. A plus in a version is written as `%2B`.
fn purl((name, version): &PackageId) -> String {
    format!("pkg:cargo/{name}@{}", version.replace('+', "%2B"))
}
