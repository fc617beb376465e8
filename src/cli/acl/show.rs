//! How tokens, policies, roles, methods and rules are printed: as lines of fields and values in the
//! manner of `consul acl`, or as JSON.

use std::io::Write;

use serde_json::{Map, Value};

use crate::error::CliError;
use crate::output::{WriteOut, print_json};

/// Fields that are printed before all others, in this order.
const FIRST: [&str; 6] = ["AccessorID", "SecretID", "ID", "Name", "TemplateName", "Description"];
/// Fields that are printed in JSON alone.
const LEFT_OUT: [&str; 3] = ["Hash", "CreateIndex", "ModifyIndex"];

/// Prints one object; nothing for any other value. As JSON, prints `value` itself.
pub(super) fn one(value: &Value, out: WriteOut) -> Result<(), CliError> {
    let mut stdout = std::io::stdout().lock();
    match out {
        WriteOut::Json => print_json(&mut stdout, value),
        WriteOut::Simple | WriteOut::Table => lines(&mut stdout, value.as_object().unwrap_or(&Map::new())),
    }
}

/// Prints an array of objects, or the values of an object, with an empty line between two. As JSON,
/// prints `value` itself.
pub(super) fn list(value: &Value, out: WriteOut) -> Result<(), CliError> {
    let mut stdout = std::io::stdout().lock();
    if out == WriteOut::Json {
        return print_json(&mut stdout, value);
    }
    let elements: Vec<&Value> = match value {
        Value::Array(elements) => elements.iter().collect(),
        Value::Object(members) => members.values().collect(),
        _ => Vec::new(),
    };
    for (number, element) in elements.into_iter().enumerate() {
        if number > 0 {
            writeln!(stdout)?;
        }
        lines(&mut stdout, element.as_object().unwrap_or(&Map::new()))?;
    }
    Ok(())
}

/// Prints `text`, which describes the completed change. As JSON, prints `true` instead.
pub(super) fn done(text: &str, out: WriteOut) -> Result<(), CliError> {
    let mut stdout = std::io::stdout().lock();
    match out {
        WriteOut::Json => print_json(&mut stdout, &true),
        WriteOut::Simple | WriteOut::Table => Ok(writeln!(stdout, "{text}")?),
    }
}

fn lines(out: &mut impl Write, members: &Map<String, Value>) -> Result<(), CliError> {
    let is_first = |name: &String| FIRST.contains(&name.as_str());
    let first = FIRST.iter().filter_map(|name| members.get_key_value(*name));
    let rest = members.iter().filter(|(name, _)| !is_first(name) && !LEFT_OUT.contains(&name.as_str()));
    for (name, value) in first.chain(rest) {
        match value {
            Value::Null => {}
            Value::Array(elements) => {
                writeln!(out, "{name}:")?;
                for element in elements {
                    writeln!(out, "   {}", short(element))?;
                }
            }
            Value::String(text) if text.contains('\n') => {
                writeln!(out, "{name}:")?;
                for line in text.lines() {
                    writeln!(out, "   {line}")?;
                }
            }
            value => writeln!(out, "{:<18} {}", format!("{name}:"), short(value))?,
        }
    }
    Ok(())
}

/// A value as a short text. An object with texts `ID` and `Name` (a link) is `ID - Name`; the parts
/// of other objects and of lists are separated by commas.
fn short(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Object(members) => match (members.get("ID"), members.get("Name")) {
            (Some(Value::String(id)), Some(Value::String(name))) => format!("{id} - {name}"),
            _ => {
                let pairs: Vec<_> = members.iter().map(|(name, value)| format!("{name}: {}", short(value))).collect();
                pairs.join(", ")
            }
        },
        Value::Array(elements) => elements.iter().map(short).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn members_are_lines_and_links_are_short() {
        let value = json!({
            "SecretID": "s", "AccessorID": "a", "Hash": "h", "Local": false, "Rules": "x {\n}",
            "Policies": [{"ID": "1", "Name": "p"}], "Nothing": null,
            "NodeIdentities": [{"NodeName": "n", "Datacenter": "dc1"}],
        });
        let mut out = Vec::new();
        lines(&mut out, value.as_object().unwrap()).unwrap();
        let wanted = "AccessorID:        a\nSecretID:          s\nLocal:             false\n\
                      NodeIdentities:\n   Datacenter: dc1, NodeName: n\nPolicies:\n   1 - p\nRules:\n   x {\n   }\n";
        assert_eq!(String::from_utf8(out).unwrap(), wanted);
    }
}
