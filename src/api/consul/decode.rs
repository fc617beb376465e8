//! Bodies of requests: JSON. Letter case and underscores in names of members do not matter; unknown
//! members are ignored.
//!
//! Go matches names without regard to case, and Consul's agent takes `enable_tag_override` for
//! `EnableTagOverride`; so case and underscores do not count here. Unlike Consul, unknown members
//! are ignored: clients send members that only newer servers know (spec: consul §8.1). Invariant: a
//! member of the wrong type refuses the request, and the text names it.

use std::collections::BTreeMap;
use std::time::Duration;

use http::StatusCode;
use serde_json::{Map, Value};

use super::answer::Refusal;
use headwater_api_shared::duration;

/// Reads a body that is one JSON value. Refused (400) if it is none.
pub(super) fn json(body: &[u8]) -> Result<Value, Refusal> {
    serde_json::from_slice(body).map_err(|error| failed(&error.to_string()))
}

/// The refusal of an unreadable body (400), with the reason `why`.
pub(super) fn failed(why: &str) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, format!("Request decode failed: {why}"))
}

/// The members of a JSON object, and the object's path in the body, which refusals name.
#[derive(Clone, Debug)]
pub(super) struct Object<'a> {
    at: String,
    members: &'a Map<String, Value>,
}

impl<'a> Object<'a> {
    /// The members of `value`, a whole body: their paths are their names alone. Refused (400) if it
    /// is not an object.
    pub(super) fn of(value: &'a Value) -> Result<Self, Refusal> {
        match value {
            Value::Object(members) => Ok(Self { at: String::new(), members }),
            other => Err(failed(&format!("wanted an object, got {}", kind(other)))),
        }
    }

    /// The value of the member `name`. `None` if it is missing or null. An exact name wins over a
    /// name in another spelling.
    pub(super) fn get(&self, name: &str) -> Option<&'a Value> {
        let found = self
            .members
            .get(name)
            .or_else(|| self.members.iter().find(|(written, _)| is_same_name(written, name)).map(|(_, value)| value));
        found.filter(|value| !value.is_null())
    }

    fn path_of(&self, name: &str) -> String {
        if self.at.is_empty() { name.to_owned() } else { format!("{}.{name}", self.at) }
    }

    fn wrong(&self, name: &str, wanted: &str, got: &Value) -> Refusal {
        failed(&format!("{}: wanted {wanted}, got {}", self.path_of(name), kind(got)))
    }

    /// The member `name`, a text; empty if it is missing or null.
    pub(super) fn text(&self, name: &str) -> Result<String, Refusal> {
        match self.get(name) {
            None => Ok(String::new()),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(other) => Err(self.wrong(name, "a text", other)),
        }
    }

    /// The member `name`, a list of texts; empty if it is missing or null.
    pub(super) fn texts(&self, name: &str) -> Result<Vec<String>, Refusal> {
        let text = |value: &Value| match value {
            Value::String(text) => Ok(text.clone()),
            other => Err(self.wrong(name, "texts", other)),
        };
        match self.get(name) {
            None => Ok(Vec::new()),
            Some(Value::Array(values)) => values.iter().map(text).collect(),
            Some(other) => Err(self.wrong(name, "a list of texts", other)),
        }
    }

    /// The member `name`, a map of texts; empty if it is missing or null.
    pub(super) fn text_map(&self, name: &str) -> Result<BTreeMap<String, String>, Refusal> {
        let Some(members) = self.map(name)? else { return Ok(BTreeMap::new()) };
        let text = |(key, value): (&String, &Value)| match value {
            Value::String(text) => Ok((key.clone(), text.clone())),
            other => Err(self.wrong(&format!("{name}[{key}]"), "a text", other)),
        };
        members.iter().map(text).collect()
    }

    /// The members of the object `name`, unchanged. `None` if it is missing or null.
    pub(super) fn map(&self, name: &str) -> Result<Option<&'a Map<String, Value>>, Refusal> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Object(members)) => Ok(Some(members)),
            Some(other) => Err(self.wrong(name, "an object", other)),
        }
    }

    /// The member `name`, an object. `None` if it is missing or null.
    pub(super) fn object(&self, name: &str) -> Result<Option<Object<'a>>, Refusal> {
        Ok(self.map(name)?.map(|members| Object { at: self.path_of(name), members }))
    }

    /// The objects of the list `name`, without nulls; an empty list if the member is missing or
    /// null.
    pub(super) fn objects(&self, name: &str) -> Result<Vec<Object<'a>>, Refusal> {
        let object = |(number, value): (usize, &'a Value)| match value {
            Value::Object(members) => Ok(Object { at: format!("{}[{number}]", self.path_of(name)), members }),
            other => Err(self.wrong(name, "objects", other)),
        };
        match self.get(name) {
            None => Ok(Vec::new()),
            Some(Value::Array(values)) => {
                values.iter().enumerate().filter(|(_, it)| !it.is_null()).map(object).collect()
            }
            Some(other) => Err(self.wrong(name, "a list of objects", other)),
        }
    }

    /// The member `name`, a map of objects, in the order of their names; empty if the member is
    /// missing or null.
    pub(super) fn object_map(&self, name: &str) -> Result<Vec<(&'a str, Object<'a>)>, Refusal> {
        let Some(members) = self.map(name)? else { return Ok(Vec::new()) };
        let object = |(key, value): (&'a String, &'a Value)| {
            let at = format!("{}[{key}]", self.path_of(name));
            match value {
                Value::Object(members) => Ok((key.as_str(), Object { at, members })),
                other => Err(self.wrong(&format!("{name}[{key}]"), "an object", other)),
            }
        };
        members.iter().map(object).collect()
    }

    /// The member `name`, a whole number; 0 if it is missing or null. Refused outside the range of
    /// `N`, and above the largest 64-bit signed integer.
    pub(super) fn number<N: TryFrom<i64> + Default>(&self, name: &str) -> Result<N, Refusal> {
        match self.get(name) {
            None => Ok(N::default()),
            Some(value) => value
                .as_i64()
                .and_then(|number| N::try_from(number).ok())
                .ok_or_else(|| self.wrong(name, "a whole number within bounds", value)),
        }
    }

    /// The member `name`, a boolean; false if it is missing or null.
    pub(super) fn flag(&self, name: &str) -> Result<bool, Refusal> {
        match self.get(name) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(other) => Err(self.wrong(name, "true or false", other)),
        }
    }

    /// The member `name`, a duration: a text in Go's form (`10s`), or a number of nanoseconds. Zero
    /// if the member is missing, null or empty. A negative one is refused.
    pub(super) fn duration(&self, name: &str) -> Result<Duration, Refusal> {
        match self.get(name) {
            None => Ok(Duration::ZERO),
            Some(Value::String(text)) if text.is_empty() => Ok(Duration::ZERO),
            Some(Value::String(text)) => duration::parse(text).ok_or_else(|| {
                failed(&format!(
                    "{}: {text:?} is no duration; write a number and a unit, such as 10s",
                    self.path_of(name)
                ))
            }),
            Some(value) => match value.as_u64() {
                Some(ns) => Ok(Duration::from_nanos(ns)),
                None => Err(self.wrong(name, "a duration such as \"10s\"", value)),
            },
        }
    }
}

/// Whether `written` is `name`, without regard to case and underscores. `name` must not have
/// underscores.
pub(super) fn is_same_name(written: &str, name: &str) -> bool {
    // Called for every member of an object for each name that is missing, so it allocates nothing.
    fn folded(text: &str) -> impl Iterator<Item = u8> {
        text.bytes().filter(|byte| *byte != b'_').map(|byte| byte.to_ascii_lowercase())
    }
    written.len() >= name.len() && folded(written).eq(folded(name))
}

fn kind(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => format!("{:?}", text.chars().take(40).collect::<String>()),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn members_are_found_whatever_their_case() {
        let body = json!({
            "service_id": "web-1", "NAME": "web", "tags": ["a"], "Port": 80, "Meta": null, "enableTagOverride": true,
            "weights": {"passing": 10}, "TTL": "10s", "Interval": 5_000_000_000_u64, "checks": [{"checkid": "c"}, null],
            "extra": {"is": "ignored"}
        });
        let object = Object::of(&body).unwrap();
        assert_eq!(object.text("ServiceID").unwrap(), "web-1");
        assert_eq!(object.text("Name").unwrap(), "web");
        assert_eq!(object.text("Address").unwrap(), "");
        assert_eq!(object.texts("Tags").unwrap(), ["a"]);
        assert_eq!(object.number::<u16>("Port").unwrap(), 80);
        assert!(object.text_map("Meta").unwrap().is_empty());
        assert!(object.flag("EnableTagOverride").unwrap());
        assert_eq!(object.object("Weights").unwrap().unwrap().number::<i32>("Passing").unwrap(), 10);
        assert_eq!(object.duration("TTL").unwrap(), Duration::from_secs(10));
        assert_eq!(object.duration("interval").unwrap(), Duration::from_secs(5));
        let checks = object.objects("Checks").unwrap();
        assert_eq!(checks.len(), 1);
        assert_eq!(checks[0].text("CheckID").unwrap(), "c");
    }

    #[test]
    fn a_member_of_another_type_is_refused_by_its_place() {
        let body = json!({"Service": {"Port": "80", "Tags": "a", "Checks": [{"TTL": "soon"}], "Meta": {"a": 1}}});
        let service = Object::of(&body).unwrap().object("Service").unwrap().unwrap();
        for (refused, wanted) in [
            (service.number::<u16>("Port").unwrap_err(), "Request decode failed: Service.Port: wanted a whole number"),
            (service.texts("Tags").unwrap_err(), "Service.Tags: wanted a list of texts, got \"a\""),
            (service.text_map("Meta").unwrap_err(), "Service.Meta[a]: wanted a text, got 1"),
            (service.objects("Checks").unwrap()[0].duration("TTL").unwrap_err(), "Service.Checks[0].TTL: \"soon\""),
            (json(b"{").unwrap_err(), "Request decode failed: "),
            (Object::of(&json!([])).unwrap_err(), "wanted an object, got a list"),
        ] {
            assert_eq!(refused.status, StatusCode::BAD_REQUEST);
            assert!(refused.text.contains(wanted), "{}", refused.text);
        }
    }
}
