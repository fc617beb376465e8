//! The public messages as [`write`](super::write) needs them: fields by number, names as JSON,
//! messages by their place in one table. Looking these up in descriptors, for every field of every
//! answer, would cost more than writing the answers.

use std::collections::HashMap;

use prost_reflect::{Cardinality, DescriptorPool, FieldDescriptor, MessageDescriptor};

use super::answer::{ANY, RESOURCE};

/// The package of the messages that the library writes: most have a form of their own in JSON, and
/// the others declare defaults.
const WELL_KNOWN: &str = "google.protobuf";

/// The layouts of all messages of a pool.
pub(super) struct Layouts {
    messages: Vec<Layout>,
    by_name: HashMap<String, Place>,
}

/// The place of a message in [`Layouts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(usize);

/// One message.
pub(super) struct Layout {
    pub(super) descriptor: MessageDescriptor,
    pub(super) form: Form,
    /// By number, ascending.
    fields: Vec<Field>,
}

/// The form of a message in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// An object of its fields.
    Fields,
    /// As `Fields`, but the field `data` is written by the type of the resource.
    Resource,
    /// `google.protobuf.Any`: `@type`, and the message inside.
    Any,
    /// Another message of [`WELL_KNOWN`].
    Own,
}

/// One field.
pub(super) struct Field {
    pub(super) number: u32,
    /// The name in the proto, quoted, with the colon after it.
    pub(super) name: String,
    pub(super) shape: Shape,
    pub(super) kind: Kind,
    /// The oneof to which the field belongs, as a number within the message.
    pub(super) oneof: Option<usize>,
}

/// How often a field occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// At most once. Without presence the default value is written as no field.
    Single {
        has_presence: bool,
    },
    List,
    /// A list of messages with a key, field 1, and a value, field 2.
    Map,
}

/// The type of the values of a field.
pub(super) enum Kind {
    Bool,
    Int32,
    Sint32,
    Uint32,
    Fixed32,
    Sfixed32,
    Float,
    Int64,
    Sint64,
    Uint64,
    Fixed64,
    Sfixed64,
    Double,
    String,
    Bytes,
    /// Quoted names by number.
    Enum(HashMap<i32, String>),
    Message(Place),
}

impl Layouts {
    /// The layouts of all messages of `pool`.
    pub(super) fn new(pool: &DescriptorPool) -> Self {
        let names = pool.all_messages().enumerate();
        let by_name: HashMap<_, _> =
            names.map(|(place, message)| (message.full_name().to_owned(), Place(place))).collect();
        let messages = pool.all_messages().map(|message| Layout::new(message, &by_name)).collect();
        Self { messages, by_name }
    }

    /// The place of the message with this full name.
    pub(super) fn find(&self, name: &str) -> Option<Place> {
        self.by_name.get(name).copied()
    }

    pub(super) fn get(&self, Place(place): Place) -> &Layout {
        &self.messages[place]
    }
}

impl Layout {
    fn new(descriptor: MessageDescriptor, places: &HashMap<String, Place>) -> Self {
        let form = match descriptor.full_name() {
            ANY => Form::Any,
            RESOURCE => Form::Resource,
            _ if descriptor.package_name() == WELL_KNOWN => Form::Own,
            _ => Form::Fields,
        };
        let mut fields: Vec<_> = descriptor.fields().map(|field| Field::new(&field, places)).collect();
        fields.sort_unstable_by_key(|field| field.number);
        Self { descriptor, form, fields }
    }

    /// The field with this number.
    pub(super) fn field(&self, number: u32) -> Option<&Field> {
        // The fields of most messages are numbered from 1 without a gap.
        let guess = self.fields.get((number as usize).wrapping_sub(1)).filter(|field| field.number == number);
        guess.or_else(|| {
            let at = self.fields.binary_search_by_key(&number, |field| field.number);
            at.ok().map(|at| &self.fields[at])
        })
    }
}

impl Field {
    fn new(field: &FieldDescriptor, places: &HashMap<String, Place>) -> Self {
        use prost_reflect::Kind as Known;
        let quoted = |name: &str| format!("\"{name}\"");
        let kind = match field.kind() {
            Known::Bool => Kind::Bool,
            Known::Int32 => Kind::Int32,
            Known::Sint32 => Kind::Sint32,
            Known::Uint32 => Kind::Uint32,
            Known::Fixed32 => Kind::Fixed32,
            Known::Sfixed32 => Kind::Sfixed32,
            Known::Float => Kind::Float,
            Known::Int64 => Kind::Int64,
            Known::Sint64 => Kind::Sint64,
            Known::Uint64 => Kind::Uint64,
            Known::Fixed64 => Kind::Fixed64,
            Known::Sfixed64 => Kind::Sfixed64,
            Known::Double => Kind::Double,
            Known::String => Kind::String,
            Known::Bytes => Kind::Bytes,
            Known::Enum(known) => {
                // Of several names of one number the first is the one that is written.
                let mut names = HashMap::new();
                for value in known.values() {
                    names.entry(value.number()).or_insert_with(|| quoted(value.name()));
                }
                Kind::Enum(names)
            }
            Known::Message(message) => Kind::Message(places[message.full_name()]),
        };
        let shape = match field.cardinality() {
            _ if field.is_map() => Shape::Map,
            Cardinality::Repeated => Shape::List,
            Cardinality::Optional | Cardinality::Required => Shape::Single { has_presence: field.supports_presence() },
        };
        let oneof = field.containing_oneof().and_then(|oneof| {
            let all = field.parent_message();
            all.oneofs().position(|other| other.full_name() == oneof.full_name())
        });
        Self { number: field.number(), name: format!("{}:", quoted(field.name())), shape, kind, oneof }
    }
}
