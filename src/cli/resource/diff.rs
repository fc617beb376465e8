//! The difference of two JSON values, field by field.

use serde_json::Value;

/// Longest value that is shown whole, characters.
const SHOWN_MAX: usize = 60;

/// One line for each field that differs, such as `~ data.genre: "GENRE_JAZZ" -> "GENRE_METAL"`. An
/// added field is marked `+`, a removed one `-`, a changed one `~`. Empty for equal values.
pub(super) fn diff(before: &Value, after: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    walk("", before, after, &mut lines);
    lines
}

fn walk(path: &str, before: &Value, after: &Value, lines: &mut Vec<String>) {
    match (before, after) {
        (Value::Object(old), Value::Object(new)) => {
            let mut names: Vec<_> = old.keys().chain(new.keys()).collect();
            names.sort();
            names.dedup();
            for name in names {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                step(&path, old.get(name), new.get(name), lines);
            }
        }
        (Value::Array(old), Value::Array(new)) => {
            for at in 0..old.len().max(new.len()) {
                step(&format!("{path}[{at}]"), old.get(at), new.get(at), lines);
            }
        }
        (old, new) if old == new => {}
        (old, new) => lines.push(format!("~ {path}: {} -> {}", shown(old), shown(new))),
    }
}

fn step(path: &str, before: Option<&Value>, after: Option<&Value>, lines: &mut Vec<String>) {
    match (before, after) {
        (Some(old), Some(new)) => walk(path, old, new, lines),
        (Some(old), None) => each(path, old, "-", lines),
        (None, Some(new)) => each(path, new, "+", lines),
        (None, None) => {}
    }
}

/// Adds a line for each leaf of an added or removed value. A single line for all of it could be
/// cut.
fn each(path: &str, value: &Value, sign: &str, lines: &mut Vec<String>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                each(&path, value, sign, lines);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (at, item) in items.iter().enumerate() {
                each(&format!("{path}[{at}]"), item, sign, lines);
            }
        }
        value => lines.push(format!("{sign} {path}: {}", shown(value))),
    }
}

fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}… ({} characters)", &text[..end], text.chars().count()),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_change_is_a_line() {
        for (before, after, wanted) in [
            (json!({"a": 1}), json!({"a": 1}), vec![]),
            (json!({"a": 1, "b": {"c": "x"}}), json!({"a": 2, "b": {"c": "x"}}), vec!["~ a: 1 -> 2"]),
            (json!({}), json!({"b": {"c": "x", "d": []}}), vec!["+ b.c: \"x\"", "+ b.d: []"]),
            (json!({"l": [1, 2]}), json!({"l": [1, 3, {"m": 4}]}), vec!["~ l[1]: 2 -> 3", "+ l[2].m: 4"]),
            (json!({"l": [1, 2]}), json!({"l": [1]}), vec!["- l[1]: 2"]),
            (json!({"a": {"b": 1}}), json!({"a": "b"}), vec!["~ a: {\"b\":1} -> \"b\""]),
        ] {
            assert_eq!(diff(&before, &after), wanted, "{before} {after}");
        }
        let long = diff(&json!({}), &json!({"a": "x".repeat(100)}));
        assert!(long[0].ends_with("… (102 characters)") && long[0].len() < 100, "{long:?}");
    }
}
