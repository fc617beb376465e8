//! A document as a tree of nodes with locations. YAML, of which JSON is a subset.
//!
//! A node is a serde deserializer; its errors have the location in the file.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};
use serde_saphyr::{Options, Spanned};

/// Line and column in a file, each counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Location {
    pub(crate) line: u64,
    pub(crate) column: u64,
}

/// A value with its location.
#[derive(Clone, Debug)]
pub(crate) struct YamlNode {
    pub(crate) location: Location,
    pub(crate) content: Content,
}

/// Content of a value.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    Null,
    Bool(bool),
    Int(i64),
    UInt(u64),
    Float(f64),
    Text(String),
    List(Vec<YamlNode>),
    Map(Vec<YamlEntry>),
}

/// A key of a map with its value. The location is that of the key.
#[derive(Clone, Debug)]
pub(crate) struct YamlEntry {
    pub(crate) location: Location,
    pub(crate) key: String,
    pub(crate) value: YamlNode,
}

/// A mistake, and its location if that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) location: Option<Location>,
    pub(crate) text: String,
}

impl Problem {
    pub(crate) fn at(location: Location, text: impl Into<String>) -> Self {
        Self { location: Some(location), text: text.into() }
    }

    /// Sets the location if there is none yet: the innermost location, set first, is the exact one.
    pub(crate) fn or_at(mut self, location: Location) -> Self {
        self.location.get_or_insert(location);
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Problem {}

impl serde::de::Error for Problem {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self { location: None, text: text.to_string() }
    }
}

/// The documents of a file; empty ones are left out. An error is the first mistake in its syntax.
pub(crate) fn documents(text: &str) -> Result<Vec<YamlNode>, Problem> {
    let mut options = Options::default();
    // `yes` and `no` are texts, not booleans.
    options.strict_booleans = true;
    options.with_snippet = false;
    serde_saphyr::from_multiple_with_options::<YamlNode>(text, options).map_err(|error| {
        let location = error.location().map(|at| Location { line: at.line(), column: at.column() });
        let text = error.without_snippet().to_string();
        // Removes the position from the parser's text: all problems print it in one form.
        let text = match text.split_once(" at line ") {
            Some((text, _)) => text.to_owned(),
            None => text,
        };
        Problem { location, text }
    })
}

impl YamlNode {
    pub(crate) fn kind(&self) -> &'static str {
        match self.content {
            Content::Null => "nothing",
            Content::Bool(_) => "a boolean",
            Content::Int(_) | Content::UInt(_) | Content::Float(_) => "a number",
            Content::Text(_) => "a text",
            Content::List(_) => "a list",
            Content::Map(_) => "a map",
        }
    }

    pub(crate) fn wrong(&self, wanted: &str) -> Problem {
        Problem::at(self.location, format!("{} where {wanted} is wanted", self.kind()))
    }

    pub(crate) fn text(&self) -> Result<&str, Problem> {
        match &self.content {
            Content::Text(text) => Ok(text),
            Content::Bool(_) | Content::Int(_) | Content::UInt(_) | Content::Float(_) => {
                Err(Problem::at(self.location, format!("{} where a text is wanted: put it in quotes", self.kind())))
            }
            Content::Null | Content::List(_) | Content::Map(_) => Err(self.wanted_text()),
        }
    }

    fn wanted_text(&self) -> Problem {
        self.wrong("a text")
    }

    pub(crate) fn entries(&self) -> Result<&[YamlEntry], Problem> {
        match &self.content {
            Content::Map(entries) => Ok(entries),
            _ => Err(self.wrong("a map")),
        }
    }
}

impl<'de> Deserialize<'de> for YamlNode {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let read = Spanned::<Content>::deserialize(from)?;
        Ok(Self { location: location(&read), content: read.value })
    }
}

fn location<T>(read: &Spanned<T>) -> Location {
    Location { line: read.referenced.line(), column: read.referenced.column() }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ContentVisitor)
    }
}

struct ContentVisitor;

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = Content;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Content, E> {
        Ok(Content::Null)
    }

    fn visit_none<E>(self) -> Result<Content, E> {
        Ok(Content::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Content, D::Error> {
        from.deserialize_any(self)
    }

    fn visit_bool<E>(self, it: bool) -> Result<Content, E> {
        Ok(Content::Bool(it))
    }

    fn visit_i64<E>(self, it: i64) -> Result<Content, E> {
        Ok(Content::Int(it))
    }

    fn visit_u64<E>(self, it: u64) -> Result<Content, E> {
        Ok(Content::UInt(it))
    }

    fn visit_f64<E>(self, it: f64) -> Result<Content, E> {
        Ok(Content::Float(it))
    }

    fn visit_str<E>(self, it: &str) -> Result<Content, E> {
        Ok(Content::Text(it.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Content, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = from.next_element()? {
            items.push(item);
        }
        Ok(Content::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Content, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = from.next_key::<Spanned<String>>()? {
            entries.push(YamlEntry { location: location(&key), key: key.value, value: from.next_value()? });
        }
        Ok(Content::Map(entries))
    }
}

impl<'de> Deserializer<'de> for &'de YamlNode {
    type Error = Problem;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        let mut location = self.location;
        let read = match &self.content {
            Content::Null => visitor.visit_unit(),
            Content::Bool(it) => visitor.visit_bool(*it),
            Content::Int(it) => visitor.visit_i64(*it),
            Content::UInt(it) => visitor.visit_u64(*it),
            Content::Float(it) => visitor.visit_f64(*it),
            Content::Text(it) => visitor.visit_borrowed_str(it),
            Content::List(items) => visitor.visit_seq(Items { items: items.iter(), location: &mut location }),
            Content::Map(entries) => {
                visitor.visit_map(Entries { entries: entries.iter(), value: None, location: &mut location })
            }
        };
        read.map_err(|problem: Problem| problem.or_at(location))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        match self.content {
            Content::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// Iterator over the items of a list. Sets `location` to that of each item, so that a mistake found
/// after the item was read (an unknown name, a field given twice) is reported at that item.
struct Items<'de, 'p> {
    items: std::slice::Iter<'de, YamlNode>,
    location: &'p mut Location,
}

impl<'de> SeqAccess<'de> for Items<'de, '_> {
    type Error = Problem;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Problem> {
        let Some(item) = self.items.next() else { return Ok(None) };
        *self.location = item.location;
        seed.deserialize(item).map(Some)
    }
}

struct Entries<'de, 'p> {
    entries: std::slice::Iter<'de, YamlEntry>,
    value: Option<&'de YamlNode>,
    location: &'p mut Location,
}

impl<'de> MapAccess<'de> for Entries<'de, '_> {
    type Error = Problem;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Problem> {
        let Some(entry) = self.entries.next() else { return Ok(None) };
        *self.location = entry.location;
        self.value = Some(&entry.value);
        let key: serde::de::value::BorrowedStrDeserializer<'de, Problem> =
            serde::de::value::BorrowedStrDeserializer::new(&entry.key);
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Problem> {
        let value = self.value.take().ok_or_else(|| Problem::custom("a value without a key"))?;
        seed.deserialize(value)
    }
}

impl<'de> IntoDeserializer<'de, Problem> for &'de YamlNode {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> YamlNode {
        let mut documents = documents(text).unwrap();
        assert_eq!(documents.len(), 1);
        documents.remove(0)
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Song {
        #[allow(dead_code, reason = "only reading it counts")]
        title: String,
        #[serde(default)]
        #[allow(dead_code, reason = "only reading it counts")]
        seconds: Vec<u32>,
    }

    #[test]
    fn an_error_is_where_the_mistake_is() {
        for (text, line, column, wanted) in [
            ("title: x\nlength: 3\n", 2, 1, "unknown field `length`"),
            ("title: x\nseconds: [1,\n  two]\n", 3, 3, "invalid type: string \"two\""),
            ("seconds: []\ntitle: 7\n", 2, 8, "expected a string"),
            ("# nothing\n\nseconds: []\n", 3, 1, "missing field `title`"),
            ("{\n \"title\": \"x\",\n \"seconds\": [1, -2]\n}", 3, 17, "expected u32"),
        ] {
            let problem = Song::deserialize(&one(text)).unwrap_err();
            assert_eq!(problem.location, Some(Location { line, column }), "{text}: {problem}");
            assert!(problem.text.contains(wanted), "{text}: {problem}");
        }
        assert!(Song::deserialize(&one("title: x\nseconds: [1, 2]\n")).is_ok());
    }

    #[test]
    fn what_is_no_yaml_is_refused_with_its_line() {
        for (text, line, wanted) in [
            ("a: 1\nb: 2\na: 3\n", 3, "duplicate"),
            ("a: [1\nb: 2\n", 2, "illegal"),
            ("a:\n\t- b\n", 2, "tabs"),
            ("a: b: c\n", 1, "mapping values"),
            ("a: 1\n---\nb: {x: 1\n", 3, "unclosed"),
        ] {
            let problem = documents(text).unwrap_err();
            assert_eq!(problem.location.map(|location| location.line), Some(line), "{text}: {problem}");
            assert!(problem.text.contains(wanted) && !problem.text.contains('\n'), "{text}: {problem}");
        }
    }

    #[test]
    fn documents_that_say_nothing_are_left_out() {
        for (text, count) in
            [("", 0), ("# only\n", 0), ("---\n---\na: 1\n---\n", 1), ("a: 1\n---\nb: 2\n", 2), ("{\"a\": 1}", 1)]
        {
            assert_eq!(documents(text).unwrap().len(), count, "{text:?}");
        }
    }

    #[test]
    fn words_are_words() {
        let node = one("[yes, no, true, 1, 1.5, \"1\", ~, 2024-01-01, \"\\ud83d\\ude00\"]");
        let Content::List(items) = node.content else { panic!("a list") };
        let kinds: Vec<_> = items.iter().map(YamlNode::kind).collect();
        assert_eq!(
            kinds,
            ["a text", "a text", "a boolean", "a number", "a number", "a text", "nothing", "a text", "a text"]
        );
        assert_eq!(items[8].text(), Ok("😀"));
        assert!(items[3].text().unwrap_err().text.contains("put it in quotes"));
    }
}
