//! `headwater resource types`: lists the types.

use serde::Serialize;

use super::catalogue::{Catalogue, KnownType};
use super::show::{Output, print_yaml};
use crate::ClientArgs;
use crate::connect::Cluster;
use crate::error::CliError;
use crate::output::{print_json, print_table};

/// List the types that are registered, and those that are always there
#[derive(Clone, Debug, clap::Args)]
pub(super) struct TypesArgs {
    /// Format of the output
    #[arg(long, short, value_enum)]
    output: Option<Output>,
}

#[derive(Serialize)]
struct ShownType {
    #[serde(rename = "type")]
    type_: String,
    scope: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    rules: usize,
    #[serde(skip_serializing_if = "String::is_empty")]
    description: String,
}

pub(super) async fn run(args: TypesArgs, cluster: &Cluster, client: &ClientArgs) -> Result<(), CliError> {
    let catalogue = Catalogue::read(cluster, client.consistency).await?;
    let mut types: Vec<_> = catalogue.all().iter().map(shown).collect();
    types.sort_by(|a, b| a.type_.cmp(&b.type_));
    let mut out = std::io::stdout();
    match Output::choose(args.output, client.write_out, Output::Table) {
        Output::Yaml => print_yaml(&mut out, &types),
        Output::Json => types.iter().try_for_each(|it| print_json(&mut out, it)),
        Output::Table => {
            let row = |it: ShownType| vec![it.type_, it.scope, it.message, it.rules.to_string(), it.description];
            print_table(&mut out, &["TYPE", "SCOPE", "MESSAGE", "RULES", "DESCRIPTION"], types.into_iter().map(row))
        }
    }
}

fn shown(known: &KnownType) -> ShownType {
    let it = &known.registration;
    ShownType {
        type_: it.type_.to_string(),
        scope: it.scope.to_string(),
        message: it.message.clone(),
        rules: it.rules.len(),
        description: it.description.clone(),
    }
}
