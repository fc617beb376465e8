//! Tests of registrations that are accepted and refused, of validation, and of bounds on the time
//! of both.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use prost::Message;
use prost_reflect::{DynamicMessage, MessageDescriptor, ReflectMessage};
use serde_json::json;

use super::{SchemaError, TypeSchema, Violation};
use headwater_types::limits;
use headwater_types::resource::{Any, Resource, ResourceId, ResourceType, Rule, Scope, Tenancy, Type};

const PROTO: &str = r#"
    syntax = "proto3";
    package demo.v2;
    import "google/protobuf/duration.proto";
    import "google/protobuf/timestamp.proto";
    import "google/protobuf/wrappers.proto";

    message Artist {
      string name = 1;
      Genre genre = 2;
      int32 members = 3;
      optional bool active = 4;
      Label label = 5;
      repeated Album albums = 6;
      map<string, int64> charts = 7;
      oneof origin { string city = 8; string country = 9; }
      google.protobuf.Timestamp since = 10;
      google.protobuf.StringValue nickname = 11;
      repeated string tags = 12;
      uint64 plays = 13;
      Artist mentor = 14;
      bytes photo = 15;
      google.protobuf.Duration offset = 16;
    }
    message Label { string name = 1; int32 founded = 2; }
    message Album { string title = 1; int32 year = 2; repeated string tracks = 3; }
    enum Genre { GENRE_UNSPECIFIED = 0; GENRE_JAZZ = 1; GENRE_METAL = 2; }
"#;

/// The encoded descriptors of one file, with or without the files that it imports.
pub(crate) fn descriptors(proto: &str, with_imports: bool) -> Vec<u8> {
    let file = protox::file::File::from_source("demo.proto", proto).unwrap();
    let mut resolver = protox::file::ChainFileResolver::new();
    resolver.add(One(file));
    resolver.add(protox::file::GoogleFileResolver::new());
    let mut compiler = protox::Compiler::with_file_resolver(resolver);
    compiler.include_imports(with_imports).open_file("demo.proto").unwrap();
    compiler.encode_file_descriptor_set()
}

struct One(protox::file::File);

impl protox::file::FileResolver for One {
    fn open_file(&self, name: &str) -> Result<protox::file::File, protox::Error> {
        if name == "demo.proto" { Ok(self.0.clone()) } else { Err(protox::Error::file_not_found(name)) }
    }
}

fn registration(rules: &[(&str, &str)], defaults: &str) -> ResourceType {
    ResourceType {
        type_: Type::new("demo", "v2", "Artist"),
        scope: Scope::Namespace,
        message: "demo.v2.Artist".to_owned(),
        descriptor_set: descriptors(PROTO, false).into(),
        defaults_json: defaults.to_owned(),
        rules: rules
            .iter()
            .map(|(expression, message)| Rule { expression: (*expression).into(), message: (*message).into() })
            .collect(),
        dont_map_http: false,
        description: String::new(),
    }
}

fn schema(rules: &[(&str, &str)], defaults: &str) -> TypeSchema {
    TypeSchema::compile(&registration(rules, defaults)).unwrap()
}

fn data(schema: &TypeSchema, json: serde_json::Value) -> Any {
    schema.read_data(json).unwrap()
}

/// The result of completing and validating a copy of the data.
fn complete(schema: &TypeSchema, data: &Any) -> Result<(), Violation> {
    schema.complete(&mut data.clone(), &resource())
}

fn to_json(schema: &TypeSchema, any: &Any) -> serde_json::Value {
    serde_json::to_value(schema.data_as_json(any).unwrap()).unwrap()
}

fn resource() -> Resource {
    let metadata = BTreeMap::from([("team".to_owned(), "core".to_owned())]);
    let id = ResourceId { name: "korn".into(), tenancy: Tenancy::new("default", "music"), ..Default::default() };
    Resource { id, metadata, ..Default::default() }
}

fn judge(rule: &str, json: serde_json::Value) -> Result<(), Violation> {
    let schema = schema(&[(rule, "no")], "");
    let data = data(&schema, json);
    complete(&schema, &data)
}

#[test]
fn rules_see_data_as_its_author_thinks_of_it() {
    let artist = json!({
        "name": "Korn", "genre": "GENRE_METAL", "members": 5, "label": {"name": "Immortal"},
        "albums": [{"title": "Issues", "year": 1999, "tracks": ["Dead", "Falling Away from Me"]}],
        "charts": {"us": "1"}, "city": "Bakersfield", "since": "1993-05-01T00:00:00Z", "tags": ["a", "b"], "plays": "7",
        "photo": "AAE="
    });
    for (rule, wanted) in [
        ("data.name == 'Korn'", true),
        ("data.name.startsWith('K') && data.name.size() == 4", true),
        ("size(data.name) > 4", false),
        ("data.name.matches('^[A-Z][a-z]+$')", true),
        ("matches(data.name, 'x')", false),
        ("data.genre == Genre.GENRE_METAL", true),
        ("data.genre == demo.v2.Genre.GENRE_JAZZ", false),
        ("data.genre in [Genre.GENRE_JAZZ, Genre.GENRE_METAL]", true),
        ("data.members < 4", false),
        ("data.label.name == 'Immortal' && data.label.founded == 0", true),
        ("has(data.label)", true),
        ("has(data.mentor)", false),
        ("data.mentor.mentor.name == ''", true),
        ("has(data.active)", false),
        ("data.active", false),
        ("has(data.city)", true),
        ("has(data.country)", false),
        ("data.nickname == null", true),
        ("has(data.charts.us) && !has(data.charts.uk)", true),
        ("'us' in data.charts && data.charts['us'] == 1", true),
        ("data.albums.all(a, a.year > 1990 && a.tracks.exists(t, t == 'Dead'))", true),
        ("data.albums.map(a, a.title) == ['Issues']", true),
        ("data.albums.filter(a, a.year > 2000).size() == 0", true),
        ("data.tags.exists_one(t, t == 'a')", true),
        ("data.albums[0].title == 'Issues'", true),
        ("data.charts.all(c, c.size() == 2)", true),
        ("data.since < timestamp('2000-01-01T00:00:00Z')", true),
        ("data.since.getFullYear() == 1993", true),
        ("data.plays > 6u", true),
        ("data.photo == b'\\x00\\x01'", true),
        ("data.albums == data.albums && data.label != data.mentor", true),
        ("resource.name == 'korn' && resource.namespace == 'music' && resource.partition == 'default'", true),
        ("resource.metadata.team == 'core' && !has(resource.metadata.owner)", true),
        ("has(data.name) ? true : false", true),
        ("[1, 2].all(i, i > 0) && type(1) == int", true),
        ("{'a': [data.name]}['a'][0] + '!' == 'Korn!'", true),
    ] {
        let found = judge(rule, artist.clone());
        let wanted = if wanted { Ok(()) } else { Err(Violation::Broken(vec!["no".into()])) };
        assert_eq!(found, wanted, "{rule}");
    }
}

#[test]
fn a_negative_duration_keeps_its_fraction() {
    for (offset, rule) in [
        ("1.5s", "data.offset == duration('1500ms')"),
        ("-0.5s", "data.offset == duration('-500ms')"),
        ("-1.5s", "data.offset == duration('-1500ms')"),
        ("-2s", "data.offset == duration('-2s')"),
        ("-0.000000001s", "data.offset < duration('0s')"),
    ] {
        assert_eq!(judge(rule, json!({"offset": offset})), Ok(()), "{offset}");
    }
}

#[test]
fn every_broken_rule_is_said() {
    let schema = schema(&[("data.name != ''", "artist.name required"), ("data.members > 0", ""), ("true", "x")], "");
    let empty = data(&schema, json!({}));
    let error = complete(&schema, &empty).unwrap_err();
    assert_eq!(error.to_string(), "artist.name required; this must hold: data.members > 0");
    assert_eq!(complete(&schema, &data(&schema, json!({"name": "x", "members": 1}))), Ok(()));
}

#[test]
fn a_rule_without_an_answer_refuses() {
    for (rule, why) in [
        ("data.tags[3] == 'x'", "out of bounds"),
        ("1 / data.members == 1", "Division by zero"),
        ("data.charts['uk'] == 1", "uk"),
        ("data.name == 'x' ? true : data.label.name + 1 == 2", "add"),
    ] {
        match judge(rule, json!({})) {
            Err(Violation::RuleFailed { why: found, .. }) => assert!(found.contains(why), "{rule}: {found}"),
            other => panic!("{rule}: {other:?}"),
        }
    }
}

#[test]
fn what_would_fail_later_is_refused_at_once() {
    for (rule, why) in [
        ("data.nmae == ''", "demo.v2.Artist has no field nmae; it has name, genre"),
        ("data.label.nmae == ''", "demo.v2.Label has no field nmae"),
        ("data.albums.all(a, a.artist == '')", "demo.v2.Album has no field artist"),
        ("has(data.nmae)", "has no field nmae"),
        ("data.name.first == ''", "string has no fields"),
        ("self.name == ''", "self is not known; there are data and resource"),
        ("resource.uid == ''", "resource has no uid"),
        ("data.genre == Genre.GENRE_POP", "Genre is not known"),
        ("data.name.lower() == 'x'", "there is no function lower()"),
        ("data.name", "it is string, not true or false"),
        ("data.members + 1 == 2 && data.name", "string is neither true nor false"),
        ("data.members.all(m, true)", "int has no elements"),
        ("data.name.matches(data.city)", "must be a literal"),
        ("data.name.matches('(')", "cannot be used"),
        ("data.name.matches('(((a{100}){100}){100})')", "size limit"),
        ("data.?name == optional.none()", "unsupported syntax"),
        ("demo.v2.Label{name: 'x'} == data.label", "cannot be made in a rule"),
        ("data.name == ", "line 1, column 14"),
        ("", "line 1"),
        ("@cost(data.name)", "line 1, column 1"),
    ] {
        match TypeSchema::compile(&registration(&[("true", ""), (rule, "")], "")) {
            Err(SchemaError::Rule { number: 2, why: found, .. }) => assert!(found.contains(why), "{rule}: {found}"),
            other => panic!("{rule}: {other:?}"),
        }
    }
}

#[test]
fn registrations_that_cannot_be_used_are_refused() {
    let good = || registration(&[], "");
    let with = |change: &dyn Fn(&mut ResourceType)| {
        let mut bad = good();
        change(&mut bad);
        TypeSchema::compile(&bad).map(|_| ()).unwrap_err().to_string()
    };
    let dangling = descriptors(PROTO, false);
    // Replaces the name of the first import by an unknown one of the same length.
    let at = dangling.windows(31).position(|w| w == b"google/protobuf/timestamp.proto").unwrap();
    let mut unresolved = dangling.clone();
    unresolved[at..at + 6].copy_from_slice(b"gooogl");
    for (error, why) in [
        (with(&|it| it.type_.kind = "artist".into()), "kind is \"artist\", but it must be Pascal case"),
        (with(&|it| it.type_.group = "Demo".into()), "group is \"Demo\""),
        (with(&|it| it.type_.group_version = "2".into()), "group_version is \"2\""),
        (with(&|it| it.message = "demo.v2.Painter".into()), "no message \"demo.v2.Painter\"; it has demo.v2.Artist, "),
        (with(&|it| it.message = "demo.v2.Artist.ChartsEntry".into()), "no message"),
        (with(&|it| it.message = String::new()), "descriptors need a message"),
        (with(&|it| it.descriptor_set = b"\xff\xff".as_slice().into()), "the descriptor set cannot be used"),
        (with(&|it| it.descriptor_set = Default::default()), "it is empty"),
        (with(&|it| it.descriptor_set = unresolved.clone().into()), "gooogl/protobuf/timestamp.proto"),
        (with(&|it| it.descriptor_set = it.descriptor_set.slice(..it.descriptor_set.len() - 3)), "cannot be used"),
        (with(&|it| it.defaults_json = "[]".into()), "the defaults are not demo.v2.Artist as JSON"),
        (with(&|it| it.defaults_json = r#"{"nmae": 1}"#.into()), "unrecognized field name 'nmae'"),
        (with(&|it| it.defaults_json = r#"{"members": "many"}"#.into()), "invalid digit"),
        (with(&|it| it.defaults_json = r#"{"genre": "GENRE_POP"}"#.into()), "GENRE_POP"),
        (with(&|it| it.defaults_json = r#"{} {}"#.into()), "trailing"),
    ] {
        assert!(error.contains(why), "{error}");
    }
    let no_data = ResourceType { message: String::new(), descriptor_set: Default::default(), ..good() };
    assert!(TypeSchema::compile(&no_data).is_ok());
    let rules = vec![Rule { expression: "true".into(), message: String::new() }];
    let error = TypeSchema::compile(&ResourceType { rules, ..no_data.clone() }).unwrap_err();
    assert_eq!(error, SchemaError::NoMessage("rules"));
    let error = TypeSchema::compile(&ResourceType { defaults_json: "{}".into(), ..no_data }).unwrap_err();
    assert_eq!(error, SchemaError::NoMessage("defaults"));
}

#[test]
fn limits_hold_to_the_byte() {
    let padded = |length: usize| format!("true{}", " ".repeat(length - 4));
    let compile = |it: &ResourceType| TypeSchema::compile(it).map(|_| ());
    let too_large = |it: &ResourceType| match compile(it) {
        Err(SchemaError::TooLarge { size, max, .. }) => assert_eq!(size, max + 1),
        other => panic!("{other:?}"),
    };
    assert_eq!(compile(&registration(&[(&padded(limits::TYPE_RULE_BYTES_MAX), "")], "")), Ok(()));
    too_large(&registration(&[(&padded(limits::TYPE_RULE_BYTES_MAX + 1), "")], ""));
    let text = "x".repeat(limits::TYPE_RULE_TEXT_BYTES_MAX + 1);
    assert_eq!(compile(&registration(&[("true", &text[1..])], "")), Ok(()));
    too_large(&registration(&[("true", &text)], ""));
    let many = vec![("true", ""); limits::TYPE_RULES_MAX + 1];
    assert_eq!(compile(&registration(&many[1..], "")), Ok(()));
    too_large(&registration(&many, ""));
    let defaults = |length: usize| format!("{{}}{}", " ".repeat(length - 2));
    assert_eq!(compile(&registration(&[], &defaults(limits::TYPE_DEFAULTS_BYTES_MAX))), Ok(()));
    too_large(&registration(&[], &defaults(limits::TYPE_DEFAULTS_BYTES_MAX + 1)));
    // The comparison and the first number are two more nodes of the deepest path.
    let chain = |operators: usize| format!("0 < 1{}", "+1".repeat(operators));
    let longest = chain(limits::TYPE_RULE_TREE_DEPTH_MAX - 2);
    assert_eq!(judge(&longest, json!({})), Ok(()));
    let too_long = compile(&registration(&[(&chain(limits::TYPE_RULE_TREE_DEPTH_MAX - 1), "")], ""));
    assert!(matches!(too_long, Err(SchemaError::Rule { .. })), "{too_long:?}");
    let nested = |depth: usize| format!("{}true{}", "(".repeat(depth), ")".repeat(depth));
    assert_eq!(judge(&nested(limits::TYPE_RULE_DEPTH_MAX), json!({})), Ok(()));
    assert!(compile(&registration(&[(&nested(limits::TYPE_RULE_DEPTH_MAX + 1), "")], "")).is_err());
    let set = vec![0; limits::DESCRIPTOR_SET_BYTES_MAX + 1];
    too_large(&ResourceType { descriptor_set: set.into(), ..registration(&[], "") });
}

#[test]
fn descriptors_may_come_with_what_they_import() {
    let it = ResourceType { descriptor_set: descriptors(PROTO, true).into(), ..registration(&[], "") };
    let schema = TypeSchema::compile(&it).unwrap();
    assert_eq!(schema.message().unwrap().full_name(), "demo.v2.Artist");
    assert!(data(&schema, json!({"since": "1993-05-01T00:00:00Z"})).value.len() > 2);
}

#[test]
fn defaults_fill_what_is_unset() {
    let schema = schema(
        &[],
        r#"{"members": 4, "active": true, "label": {"name": "Indie", "founded": 1980}, "tags": ["new"], "city": "here",
            "since": "1993-05-01T00:00:01.5Z"}"#,
    );
    for (given, wanted) in [
        (
            json!({}),
            json!({"members": 4, "active": true, "label": {"name": "Indie", "founded": 1980}, "tags": ["new"],
                   "city": "here", "since": "1993-05-01T00:00:01.500Z"}),
        ),
        (
            json!({"name": "x", "active": false, "label": {"name": "Immortal"}, "tags": ["old"], "country": "US",
                   "since": "1993-05-01T00:00:00Z", "members": 1}),
            json!({"name": "x", "active": false, "label": {"name": "Immortal", "founded": 1980}, "tags": ["old"],
                   "country": "US", "since": "1993-05-01T00:00:00Z", "members": 1}),
        ),
    ] {
        let mut any = data(&schema, given);
        schema.complete(&mut any, &resource()).unwrap();
        assert_eq!(to_json(&schema, &any), wanted);
        // A second completion changes nothing.
        let before = any.clone();
        schema.complete(&mut any, &resource()).unwrap();
        assert_eq!(any, before);
    }
}

#[test]
fn fields_that_nobody_knows_survive_defaults() {
    let schema = schema(&[], r#"{"members": 4}"#);
    let mut any = data(&schema, json!({"name": "x"}));
    // Field 900, a varint.
    any.value = [any.value.as_ref(), &[0xa0, 0x38, 7]].concat().into();
    schema.complete(&mut any, &resource()).unwrap();
    let has = |bytes: &[u8]| any.value.windows(bytes.len()).any(|window| window == bytes);
    assert!(has(&[0xa0, 0x38, 7]) && has(&[0x18, 4]), "{:?}", any.value);
}

#[test]
fn data_of_another_kind_is_refused() {
    let schema = schema(&[("true", "")], "{}");
    let wrong = Any { type_url: "type.googleapis.com/demo.v2.Label".into(), value: Default::default() };
    let text = "resource.data is of wrong type: \"demo.v2.Label\", but the type's data is \"demo.v2.Artist\"";
    assert_eq!(complete(&schema, &wrong).unwrap_err().to_string(), text);
    let broken = Any { type_url: "type.googleapis.com/demo.v2.Artist".into(), value: b"\x0a\xff".as_slice().into() };
    assert!(matches!(complete(&schema, &broken), Err(Violation::Malformed { .. })));
    let no_data = ResourceType { message: String::new(), descriptor_set: Default::default(), ..registration(&[], "") };
    let no_data = TypeSchema::compile(&no_data).unwrap();
    assert!(matches!(complete(&no_data, &wrong), Err(Violation::NoDataWanted { .. })));
    assert!(no_data.read_data(json!({})).is_err());
}

#[test]
fn data_nested_too_deep_is_refused_and_not_followed() {
    let schema = schema(&[("data.mentor.name == ''", "")], "");
    let mut value = Vec::new();
    for _ in 0..100_000 {
        let mut outer = vec![0x72];
        prost::encoding::encode_varint(value.len() as u64, &mut outer);
        if outer.len() + value.len() > limits::REQUEST_BYTES_MAX {
            break;
        }
        outer.extend_from_slice(&value);
        value = outer;
        if value.len() > 20_000 {
            break;
        }
    }
    let deep = Any { type_url: "type.googleapis.com/demo.v2.Artist".into(), value: value.into() };
    assert!(matches!(complete(&schema, &deep), Err(Violation::Malformed { .. })));
}

#[test]
fn messages_of_any_type_are_not_followed_without_a_limit() {
    let proto = r#"
        syntax = "proto3";
        package demo.v2;
        import "google/protobuf/any.proto";
        message Artist { repeated google.protobuf.Any any = 1; Artist mentor = 2; }
    "#;
    let registration = ResourceType { descriptor_set: descriptors(proto, true).into(), ..registration(&[], "") };
    let schema = TypeSchema::compile(&registration).unwrap();
    // Each is within the limit of the library, which begins anew with the next.
    let in_turn = (0..8).fold(Vec::new(), |inner, _| {
        let any = prost_types::Any { type_url: "x/demo.v2.Artist".to_owned(), value: inner };
        let mut artist = Vec::new();
        prost::encoding::message::encode(1, &any, &mut artist);
        (0..90).fold(artist, |mentor, _| {
            let mut pupil = Vec::new();
            prost::encoding::bytes::encode(2, &mentor, &mut pupil);
            pupil
        })
    });
    let in_turn = Any { type_url: "type.googleapis.com/demo.v2.Artist".into(), value: in_turn.into() };
    assert!(matches!(complete(&schema, &in_turn), Err(Violation::Malformed { .. })));
    assert!(schema.data_as_json(&in_turn).is_err());
    let nested = |count: usize| {
        let any = |name: &str, value: Vec<u8>| prost_types::Any { type_url: format!("x/{name}"), value };
        let inner = (1..count).fold(any("demo.v2.Artist", Vec::new()), |inner, _| {
            any("google.protobuf.Any", prost::Message::encode_to_vec(&inner))
        });
        let mut value = Vec::new();
        prost::encoding::message::encode(1, &inner, &mut value);
        Any { type_url: "type.googleapis.com/demo.v2.Artist".into(), value: value.into() }
    };
    let most = nested(limits::TYPE_ANY_DEPTH_MAX);
    assert_eq!(complete(&schema, &most), Ok(()));
    assert_eq!(to_json(&schema, &most)["any"][0]["@type"], "x/google.protobuf.Any");
    for count in [limits::TYPE_ANY_DEPTH_MAX + 1, 3_000] {
        let refused = complete(&schema, &nested(count)).unwrap_err();
        assert!(
            matches!(&refused, Violation::Malformed { why, .. } if why.contains("google.protobuf.Any")),
            "{refused}"
        );
        assert!(schema.data_as_json(&nested(count)).is_err());
    }
}

/// Time limit of each case, generous for a busy machine. Without the budget each case takes minutes
/// at least.
const SOON: Duration = Duration::from_secs(60);

#[test]
fn a_bomb_among_the_rules_is_put_out() {
    let many: Vec<String> = (0..3000).map(|number| format!("tag-{number}")).collect();
    let long = "x".repeat(200_000);
    let artist = json!({"name": long, "tags": many});
    let nested = "data.tags.all(a, data.tags.all(b, data.tags.all(c, a != b || b != c || size(c) > 0)))";
    // Doubles a text fourteen times.
    let doubling = (0..7).fold("data.name".to_owned(), |inner, _| format!("[{inner}].map(x, x + x + x + x)[0]"));
    for bomb in [
        nested.to_owned(),
        "data.tags.map(a, data.tags.map(b, data.tags)).size() >= 0".to_owned(),
        "data.tags.map(a, data).size() >= 0 && data.tags.map(a, data.tags.map(b, data.name)).size() > 0".to_owned(),
        "data.tags.all(a, data.tags.all(b, data.name != data.name + a))".to_owned(),
        "data.tags.all(a, data.tags.all(b, !data.name.matches('.*.*.*y')))".to_owned(),
        "data.tags.all(a, !data.name.matches('(x?x?){60}(x|y|z){90}[xy]{60}q'))".to_owned(),
        "data.tags.exists(a, data.tags.exists(b, data.name + 1 == a))".to_owned(),
        "data.tags.all(a, data.tags.all(b, data.name < data.name + b))".to_owned(),
        "data.tags.all(a, data.tags.all(b, !data.name.contains(b + 'z')))".to_owned(),
        "data.tags.all(a, data.tags.all(b, [data.name] != [b]))".to_owned(),
        "data.tags.all(a, data.tags.all(b, {'k': data.name}.k != b))".to_owned(),
        format!("{doubling} != ''"),
    ] {
        let schema = schema(&[(&bomb, "no")], "");
        let any = data(&schema, artist.clone());
        let began = Instant::now();
        let found = complete(&schema, &any);
        assert!(began.elapsed() < SOON, "{bomb}: {:?}", began.elapsed());
        assert!(matches!(found, Err(Violation::TooCostly { .. })), "{bomb}: {found:?}");
        // Each call has its own budget.
        assert_ne!(complete(&schema, &data(&schema, json!({}))), found);
    }
}

#[test]
fn an_expression_that_is_hard_to_read_is_refused_soon() {
    let wide = limits::TYPE_RULE_BYTES_MAX;
    for (name, bomb) in [
        ("brackets", format!("{}true{}", "(".repeat(wide / 2 - 2), ")".repeat(wide / 2 - 2))),
        ("open brackets", "(".repeat(wide)),
        ("lists", format!("{}1{} == []", "[".repeat(900), "]".repeat(900))),
        ("maps", "{1:".repeat(wide / 3)),
        ("nots", format!("{}true", "!".repeat(wide - 4))),
        ("minuses", format!("1 == {}1", "-".repeat(wide - 6))),
        ("conditions", "true?".repeat(wide / 5)),
        ("conditions that end", format!("{}true", "true ? true : ".repeat(140))),
        ("calls", format!("{}1{} == 1", "int(".repeat(500), ")".repeat(500))),
        ("ors", format!("true{}", "||true".repeat(wide / 6 - 1))),
        ("sums", format!("0 <= 1{}", "+1".repeat(wide / 2 - 6))),
        ("selections", format!("data{} == 1", ".a".repeat(1000))),
        ("indices", format!("data.tags{} == 1", "[0]".repeat(600))),
        ("loops", format!("{}true{}", "data.tags.all(a,".repeat(120), ")".repeat(120))),
        ("garbage", "?:&&||".repeat(wide / 6)),
    ] {
        let began = Instant::now();
        let compiled = TypeSchema::compile(&registration(&[(&bomb, "")], "")).map(|_| ());
        assert!(began.elapsed() < SOON, "{name}: {:?}", began.elapsed());
        if let Ok(()) = compiled {
            let schema = schema(&[(&bomb, "")], "");
            let began = Instant::now();
            assert_eq!(complete(&schema, &data(&schema, json!({}))), Ok(()), "{name}");
            assert!(began.elapsed() < SOON, "{name}: {:?}", began.elapsed());
        }
    }
}

#[test]
fn numbers_and_times_past_their_ends_are_answers_too() {
    let artist = json!({"name": "x", "members": -1, "since": "9999-12-31T23:59:59Z", "plays": "18446744073709551615"});
    for rule in [
        "-9223372036854775808 == -(-9223372036854775808)",
        "9223372036854775807 + 1 > 0",
        "-9223372036854775808 / data.members > 0",
        "-9223372036854775808 % data.members == 0",
        "9223372036854775807 * 2 > 0",
        "data.plays + 1u > 0u",
        "0u - 1u > 0u",
        "9223372036854775808 > 0",
        "99999999999999999999999 > 0",
        "0xFFFFFFFFFFFFFFFFFF == 1",
        "1e400 > 0.0",
        "int(1e300) > 0",
        "uint(-1.0) > 0u",
        "int(data.plays) > 0",
        "string(1e300).size() > 0",
        "data.tags[-1] == ''",
        "data.tags[9223372036854775807] == ''",
        "'\\ud800' == ''",
        "'\\U00110000' == ''",
        "b'\\xff' == b''",
        "string(b'\\xff') == ''",
        "'\\x' == ''",
        "timestamp('9999-12-31T23:59:59Z') + duration('999999999999s') > data.since",
        "data.since + duration('9223372036s') > data.since",
        "data.since - timestamp('0001-01-01T00:00:00Z') > duration('1s')",
        "duration('9223372036854775807s') > duration('1s')",
        "duration('999999999999999999999h') > duration('1s')",
        "timestamp(9223372036854775807) > data.since",
        "timestamp('x') > data.since",
        "data.since.getHours('Nowhere/Zone') == 1",
        "data.since.getHours('+99:99') == 1",
        "data.since.getHours('-') == 1",
    ] {
        let compiled = TypeSchema::compile(&registration(&[(rule, "no")], ""));
        // Any result is accepted; only a panic fails the test.
        if let Ok(schema) = compiled {
            let judged = complete(&schema, &data(&schema, artist.clone()));
            assert!(!matches!(judged, Err(Violation::TooCostly { .. })), "{rule}");
        }
    }
}

#[test]
fn an_ordinary_load_stays_far_below_the_budget() {
    let schema = schema(
        &[
            ("data.albums.all(a, a.title.matches('^[A-Z]') && a.tracks.all(t, t.size() < 100))", "titles"),
            ("data.tags.all(a, data.tags.exists_one(b, a == b))", "tags are unique"),
        ],
        "",
    );
    let tags: Vec<_> = (0..100).map(|number| format!("tag-{number}")).collect();
    let tracks: Vec<_> = (0..20).map(|number| format!("track {number}")).collect();
    let albums: Vec<_> = (0..200).map(|_| json!({"title": "An album", "tracks": tracks})).collect();
    let any = data(&schema, json!({"tags": tags, "albums": albums}));
    assert_eq!(complete(&schema, &any), Ok(()));
}

#[test]
fn json_goes_in_and_comes_out() {
    let schema = schema(&[], "");
    let given = json!({"name": "Korn", "genre": "GENRE_METAL", "plays": "7", "albums": [{"title": "Issues"}]});
    let any = data(&schema, given.clone());
    assert_eq!(any.type_url, "type.googleapis.com/demo.v2.Artist");
    assert_eq!(to_json(&schema, &any), given);
    let error = schema.read_data(json!({"nmae": "x"})).unwrap_err();
    assert!(error.to_string().contains("unrecognized field name 'nmae'"), "{error}");
    let descriptor: &MessageDescriptor = schema.message().unwrap();
    let decoded = DynamicMessage::decode(descriptor.clone(), any.value.clone()).unwrap();
    assert_eq!(decoded.encode_to_vec(), any.value);
    assert_eq!(decoded.descriptor().full_name(), "demo.v2.Artist");
}
