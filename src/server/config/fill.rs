//! Values of settings from their sources: files, variables and flags fill the draft.
//!
//! Owns the types of values. Knows neither defaults nor rules between settings.

use std::path::PathBuf;

use toml::Value;

use super::draft::Draft;
use super::settings::{Put, SETTINGS, Setting};
use super::{Problem, value};

impl Draft {
    /// Takes the settings of a file, with `origin` as its name in problems. Unknown keys and
    /// unreadable values are added to `problems`.
    pub(super) fn read_table(&mut self, table: &toml::Table, origin: &str, problems: &mut Vec<Problem>) {
        self.read_section("", table, origin, problems);
    }

    fn read_section(&mut self, section: &str, table: &toml::Table, origin: &str, problems: &mut Vec<Problem>) {
        for (name, value) in table {
            let key = if section.is_empty() { name.clone() } else { format!("{section}.{name}") };
            match (Setting::find(&key), value) {
                (Some(setting), value) => self.read(setting, value, origin, problems),
                (None, Value::Table(inner)) if SETTINGS.iter().any(|s| s.key.starts_with(&format!("{key}."))) => {
                    self.read_section(&key, inner, origin, problems);
                }
                (None, _) => problems.push(Problem {
                    origin: origin.to_owned(),
                    detail: value::unknown_key(&key, SETTINGS.iter().map(|setting| setting.key)),
                    key,
                }),
            }
        }
    }

    /// Takes the value of a flag or a variable: the text itself, or TOML if the type of the setting
    /// is not written as a text. An unreadable value is added to `problems`.
    pub(super) fn read_text(&mut self, setting: &Setting, text: &str, origin: &str, problems: &mut Vec<Problem>) {
        let value = if setting.is_text() {
            Value::String(text.to_owned())
        } else {
            match format!("value = {text}").parse::<toml::Table>().ok().and_then(|mut table| table.remove("value")) {
                Some(value) => value,
                None => {
                    let detail = format!("{text:?} is not a {}", setting.form);
                    problems.push(Problem { origin: origin.to_owned(), key: setting.key.to_owned(), detail });
                    return;
                }
            }
        };
        self.read(setting, &value, origin, problems);
    }

    fn read(&mut self, setting: &Setting, value: &Value, origin: &str, problems: &mut Vec<Problem>) {
        let outcome = match (setting.put, value) {
            (Put::Whole(put), Value::Integer(number)) if *number >= 0 => {
                put(self, number.unsigned_abs());
                Ok(())
            }
            (Put::Whole(_), other) => Err(value::wrong_type("a whole number", other)),
            (Put::Members(put), value) => match value::members(value) {
                Ok(members) => {
                    put(self, members);
                    Ok(())
                }
                Err(found) => {
                    problems.extend(found.into_iter().map(|(key, detail)| Problem {
                        origin: origin.to_owned(),
                        key,
                        detail,
                    }));
                    Ok(())
                }
            },
            (Put::Switch(put), Value::Boolean(on)) => {
                put(self, *on);
                Ok(())
            }
            (Put::Token(put), Value::String(text)) => value::token(text).map(|v| put(self, v)),
            (Put::Switch(_), other) => Err(value::wrong_type("true or false", other)),
            (Put::Endpoints(put), value) => value::endpoints(value).map(|v| put(self, v)),
            (Put::Text(put), Value::String(text)) => value::non_empty(text).map(|text| put(self, text)),
            (Put::PathOrOff(put), Value::String(text)) => {
                value::or_off(text, |text| value::non_empty(text).map(PathBuf::from)).map(|v| put(self, v))
            }
            (Put::PathOrOff(_), other) => Err(value::wrong_type("\"off\" or the path of a file", other)),
            (Put::ClientCertificates(put), Value::String(text)) => {
                value::client_certificates(text).map(|v| put(self, v))
            }
            (Put::MinVersion(put), Value::String(text)) => value::min_version(text).map(|v| put(self, v)),
            (Put::Path(put), Value::String(text)) => value::non_empty(text).map(|text| put(self, text.into())),
            (Put::Duration(put), Value::String(text)) => value::duration(text).map(|v| put(self, v)),
            (Put::DurationOrOff(put), Value::String(text)) => {
                value::or_off(text, value::duration).map(|v| put(self, v))
            }
            (Put::DurationOrOff(_), other) => Err(value::wrong_type("\"off\" or a string such as \"1h\"", other)),
            (Put::Size(put), Value::String(text)) => value::size(text).map(|v| put(self, v)),
            (Put::Quota(put), value) => value::quota(value).map(|v| put(self, v)),
            (Put::Bytes(put), value) => value::bytes(value).map(|v| put(self, v)),
            (Put::SocketOrOff(put), Value::String(text)) => value::or_off(text, value::socket).map(|v| put(self, v)),
            (Put::SocketOrOff(_), other) => {
                Err(value::wrong_type("\"off\" or a string such as \"unix:///run/headwater.sock\"", other))
            }
            (Put::Address(put), Value::String(text)) => value::address(text).map(|v| put(self, v)),
            (Put::AddressOrOff(put), Value::String(text)) => value::or_off(text, value::address).map(|v| put(self, v)),
            (Put::AddressOrOff(_), other) => {
                Err(value::wrong_type("\"off\" or a string such as \"127.0.0.1:8600\"", other))
            }
            (Put::Url(put), Value::String(text)) => value::url(text).map(|v| put(self, v)),
            (Put::Format(put), Value::String(text)) => value::log_format(text).map(|v| put(self, v)),
            (Put::Duration(_), other) => Err(value::wrong_type("a string with a unit, such as \"100ms\"", other)),
            (Put::Size(_), other) => Err(value::wrong_type("a string with a unit, such as \"64MiB\"", other)),
            (_, other) => Err(value::wrong_type("a string", other)),
        };
        if let Err(detail) = outcome {
            problems.push(Problem { origin: origin.to_owned(), key: setting.key.to_owned(), detail });
        }
    }
}
