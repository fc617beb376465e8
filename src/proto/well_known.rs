//! Messages of `google.protobuf` that have a form of their own in JSON.

/// Whether the JSON of a `google.protobuf.Any` has the message with this full name as `value`,
/// beside `@type`. The fields of other messages stand beside `@type` themselves. (The mapping of
/// protobuf to JSON; the same messages as in the library that reads it.)
pub fn has_own_json(full_name: &str) -> bool {
    let Some(name) = full_name.strip_prefix("google.protobuf.") else { return false };
    matches!(
        name,
        "Any"
            | "BoolValue"
            | "BytesValue"
            | "DoubleValue"
            | "Duration"
            | "Empty"
            | "FieldMask"
            | "FloatValue"
            | "Int32Value"
            | "Int64Value"
            | "ListValue"
            | "StringValue"
            | "Struct"
            | "Timestamp"
            | "UInt32Value"
            | "UInt64Value"
            | "Value"
    )
}
