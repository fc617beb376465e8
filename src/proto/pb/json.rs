//! The well-known protobuf message `google.protobuf.Struct` as JSON.

/// 2^53: up to it a 64-bit float holds every whole number exactly.
const WHOLE_NUMBER_MAX: f64 = 9_007_199_254_740_992.0;

/// A `google.protobuf.Struct` as JSON. Whole numbers from -2^53 to 2^53 are written as `1`, not as
/// `1.0`: the JSON form of a message accepts `1` for every field of a number type, and `1.0` only
/// for some.
#[must_use]
pub fn struct_to_json(from: &prost_types::Struct) -> serde_json::Value {
    let fields = from.fields.iter().map(|(name, value)| (name.clone(), value_to_json(value)));
    serde_json::Value::Object(fields.collect())
}

fn value_to_json(from: &prost_types::Value) -> serde_json::Value {
    use prost_types::value::Kind;
    match &from.kind {
        None | Some(Kind::NullValue(_)) => serde_json::Value::Null,
        Some(Kind::BoolValue(it)) => (*it).into(),
        Some(Kind::StringValue(it)) => it.as_str().into(),
        Some(Kind::NumberValue(it)) if it.fract() == 0.0 && it.abs() <= WHOLE_NUMBER_MAX => (*it as i64).into(),
        Some(Kind::NumberValue(it)) => (*it).into(),
        Some(Kind::StructValue(it)) => struct_to_json(it),
        Some(Kind::ListValue(it)) => it.values.iter().map(value_to_json).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_struct_is_an_object() {
        use prost_types::value::Kind;
        let value = |kind| prost_types::Value { kind: Some(kind) };
        let inner = prost_types::Struct { fields: BTreeMap::from([("f".into(), value(Kind::NumberValue(0.5)))]) };
        let fields = [
            ("n", Kind::NumberValue(4.0)),
            ("large", Kind::NumberValue(9_007_199_254_740_991.0)),
            ("larger", Kind::NumberValue(1e16)),
            ("b", Kind::BoolValue(true)),
            ("s", Kind::StringValue("x".into())),
            ("z", Kind::NullValue(0)),
            ("l", Kind::ListValue(prost_types::ListValue { values: vec![value(Kind::NumberValue(-1.0))] })),
            ("m", Kind::StructValue(inner)),
        ];
        let fields = fields.into_iter().map(|(name, kind)| (name.to_owned(), value(kind))).collect();
        let text = struct_to_json(&prost_types::Struct { fields }).to_string();
        assert_eq!(
            text,
            r#"{"b":true,"l":[-1],"large":9007199254740991,"larger":1e+16,"m":{"f":0.5},"n":4,"s":"x","z":null}"#
        );
    }
}
