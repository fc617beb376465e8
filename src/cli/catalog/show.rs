//! How nodes, services and instances are printed.

use std::io::Write;

use serde_json::Value;

use crate::error::CliError;
use crate::notice;
use crate::output::{WriteOut, print_json, print_table};

/// Prints a list in one of three forms: `rows` as lines, `rows` as a table below `header`, or
/// `answer` unchanged as JSON.
fn print(
    answer: &Value,
    header: &[&str],
    rows: Vec<Vec<String>>,
    write_out: WriteOut,
    out: &mut impl Write,
) -> Result<(), CliError> {
    match write_out {
        WriteOut::Json => print_json(out, answer),
        WriteOut::Table => print_table(out, header, rows),
        WriteOut::Simple => {
            for row in rows {
                writeln!(out, "{}", row.join(", "))?;
            }
            Ok(())
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn words(value: &Value) -> String {
    list(value).iter().map(text).collect::<Vec<_>>().join(" ")
}

fn pairs(value: &Value) -> String {
    let pairs = value.as_object().into_iter().flatten();
    pairs.map(|(key, value)| format!("{key}={}", text(value))).collect::<Vec<_>>().join(" ")
}

pub(super) fn nodes(answer: &Value, write_out: WriteOut) -> Result<(), CliError> {
    let row = |node: &Value| vec![text(&node["Node"]), text(&node["Address"]), text(&node["ID"]), pairs(&node["Meta"])];
    let rows = list(answer).iter().map(row).collect();
    print(answer, &["NODE", "ADDRESS", "ID", "META"], rows, write_out, &mut std::io::stdout().lock())
}

pub(super) fn services(answer: &Value, write_out: WriteOut) -> Result<(), CliError> {
    let services = answer.as_object().into_iter().flatten();
    let rows = services.map(|(name, tags)| vec![name.clone(), words(tags)]).collect();
    print(answer, &["SERVICE", "TAGS"], rows, write_out, &mut std::io::stdout().lock())
}

pub(super) fn instances(answer: &Value, name: &str, write_out: WriteOut) -> Result<(), CliError> {
    if list(answer).is_empty() && write_out != WriteOut::Json {
        notice!("no instance of {name} is registered that is as you asked; `headwater services` lists the services");
    }
    let rows = list(answer).iter().map(instance_row).collect();
    let header = ["INSTANCE", "STATUS", "NODE", "ADDRESS", "TAGS", "CHECKS"];
    print(answer, &header, rows, write_out, &mut std::io::stdout().lock())
}

fn instance_row(instance: &Value) -> Vec<String> {
    let (node, service) = (&instance["Node"], &instance["Service"]);
    let own = text(&service["Address"]);
    let host = if own.is_empty() { text(&node["Address"]) } else { own };
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    let checks = list(&instance["Checks"]);
    let worst = ["critical", "warning", "passing"]
        .into_iter()
        .find(|status| checks.iter().any(|check| check["Status"] == *status))
        .unwrap_or("passing");
    let shown = |check: &Value| {
        let output = text(&check["Output"]);
        let output = output.lines().next().unwrap_or_default();
        let state = format!("{}={}", text(&check["CheckID"]), text(&check["Status"]));
        if output.is_empty() { state } else { format!("{state} ({output})") }
    };
    vec![
        text(&service["ID"]),
        worst.to_owned(),
        text(&node["Node"]),
        format!("{host}:{}", service["Port"]),
        words(&service["Tags"]),
        checks.iter().map(shown).collect::<Vec<_>>().join(" "),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_instance_stands_as_its_worst_check() {
        let row = instance_row(&json!({
            "Node": {"Node": "n1", "Address": "10.0.0.1"},
            "Service": {"ID": "web-1", "Address": "", "Port": 80, "Tags": ["a", "b"]},
            "Checks": [
                {"CheckID": "alive", "Status": "passing", "Output": ""},
                {"CheckID": "load", "Status": "warning", "Output": "high\nvery"},
            ],
        }));
        assert_eq!(row, ["web-1", "warning", "n1", "10.0.0.1:80", "a b", "alive=passing load=warning (high)"]);
        let bare = instance_row(&json!({
            "Node": {"Node": "n1", "Address": "10.0.0.1"}, "Service": {"ID": "w", "Address": "fe80::1", "Port": 1}, "Checks": [],
        }));
        assert_eq!(bare, ["w", "passing", "n1", "[fe80::1]:1", "", ""]);
    }

    #[test]
    fn lines_and_json_are_printed() {
        let answer = json!([{"Node": "n1"}]);
        let mut out = Vec::new();
        print(&answer, &["NODE"], vec![vec!["n1".into(), "x".into()]], WriteOut::Simple, &mut out).unwrap();
        print(&answer, &["NODE"], vec![], WriteOut::Json, &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "n1, x\n[{\"Node\":\"n1\"}]\n");
    }
}
