//! Tests of manifests: accepted documents, and positions of mistakes.

use std::path::PathBuf;

use super::*;
use crate::resource::catalogue::Catalogue;

fn examples() -> Vec<Source> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    let mut commits = Vec::new();
    let sources = read_without(&[folder.to_owned()], |commit| commits.push(commit.to_owned())).unwrap();
    assert_eq!(commits, [format!("{folder}/move.yaml")]);
    sources
}

fn source(text: &str) -> Source {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples"));
    Source { name: "m.yaml".to_owned(), folder: Some(folder), text: text.to_owned() }
}

/// A catalogue that has the types of the examples.
fn catalogue() -> Catalogue {
    let mut catalogue = Catalogue::builtin();
    plan(&examples(), &mut catalogue).unwrap();
    catalogue
}

fn problems(text: &str) -> Vec<String> {
    let problems = plan(&[source(text)], &mut catalogue()).unwrap_err();
    problems.iter().map(ToString::to_string).collect()
}

#[test]
fn the_examples_are_in_order() {
    let mut catalogue = Catalogue::builtin();
    let planned = plan(&examples(), &mut catalogue).unwrap();
    let names: Vec<_> = planned.iter().map(|it| it.resource.id.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "demo-v1-artist",
            "demo-v1-album",
            "demo-v1-recordlabel",
            "demo-v1-executive",
            "demo-v1-concept",
            "demo-v2-artist",
            "demo-v2-album",
            "immortal",
            "korn",
            "boss",
            "nu-metal",
            "issues",
            "follow-the-leader",
        ]
    );
    let korn = &planned[8].resource;
    assert_eq!((korn.id.tenancy.partition.as_str(), korn.id.tenancy.namespace.as_str()), ("default", "default"));
    let schema = catalogue.resolve("demo.v2.Artist").unwrap().schema().unwrap();
    let json = serde_json::to_value(schema.data_as_json(korn.data.as_ref().unwrap()).unwrap()).unwrap();
    assert_eq!(json["active"], true, "the default is there");
    assert_eq!(planned[7].resource.id.tenancy.namespace, "", "a record label lives in a partition");
    assert_eq!(planned[9].resource.id.tenancy.partition, "", "an executive lives in the cluster");
    assert_eq!(planned[11].resource.owner.as_ref().unwrap().name, "korn");
}

#[test]
fn a_mistake_is_said_with_its_line_and_column() {
    for (text, wanted) in [
        ("type: v2.Artist\nname: x\ndata:\n  nmae: x\n", "m.yaml:4:3: unrecognized field name 'nmae'"),
        ("type: v2.Artist\nname: x\ndata: {name: x, genre: GENRE_NONE}\n", "m.yaml:3:24: unrecognized enum value"),
        ("type: v2.Artist\nname: x\ndata:\n  name: 7\n", "m.yaml:4:9: invalid type: integer `7`"),
        ("type: v2.Album\nname: x\ndata:\n  title: x\n  tracks:\n    - a\n    - [b]\n", "m.yaml:7:7: invalid type"),
        ("type: v2.Album\nname: x\ndata:\n  title: x\n  yearOfRelease: 1850\n", "m.yaml:4:3: nobody recorded"),
        ("type: v2.Artist\nname: x\ndata: {}\n", "m.yaml:3:7: artist.name required"),
        ("type: Artist\nname: x\n", "m.yaml:1:7: several types are called Artist: write demo.v1.Artist or"),
        ("type: Painter\nname: x\n", "m.yaml:1:7: there is no type Painter"),
        ("type: Concept\nname: X\n", "m.yaml:2:7: the name must consist of lower case"),
        ("type: Concept\n", "m.yaml:1:1: the resource has no name"),
        ("name: x\n", "m.yaml:1:1: the resource has no type"),
        ("type: Concept\nname: x\nlabels: {}\n", "m.yaml:3:1: unknown member \"labels\"; there are type, name"),
        ("type: Concept\nname: x\nmetadata: {a: 1}\n", "m.yaml:3:15: a number where a text is wanted: put it in quo"),
        ("type: Concept\nname: x\nmetadata: [a]\n", "m.yaml:3:11: a list where a map is wanted"),
        ("type: Concept\nname: x\ntenancy: {region: x}\n", "m.yaml:3:11: unknown member \"region\""),
        ("type: Concept\nname: x\ntenancy: {namespace: X}\n", "m.yaml:3:22: the namespace must consist"),
        (
            "type: RecordLabel\nname: x\ntenancy:\n  namespace: y\n",
            "m.yaml:4:14: demo.v1.RecordLabel has partition scope, so it cannot have a namespace",
        ),
        (
            "type: Executive\nname: x\ntenancy: {partition: y}\n",
            "m.yaml:3:22: demo.v1.Executive has cluster scope, so it cannot have a partition",
        ),
        ("type: Concept\nname: x\ndata: {a: 1}\n", "m.yaml:3:7: resource.data is of wrong type"),
        ("type: Concept\nname: x\nowner: {type: Concept}\n", "m.yaml:3:8: the owner has no name"),
        ("type: Concept\nname: x\nowner: {name: x}\n", "m.yaml:3:8: the owner has no type"),
        ("type: Concept\nname: x\nowner: {type: Concept, name: x}\n", "m.yaml:3:8: demo.v1.Concept x cannot own"),
        ("type: Concept\nname: x\n---\ntype: Concept\nname: x\n", "m.yaml:4:1: demo.v1.Concept x is in m.yaml:1 alr"),
        ("type: Concept\nname: x\n---\n- a\n", "m.yaml:4:1: a list where a resource is wanted"),
        ("type: Concept\nname: x\nname: y\n", "m.yaml:3:1: duplicate"),
        ("type: Concept\n  name: x\n", "m.yaml:2:7: "),
        ("{\"type\": \"Concept\",\n \"name\": \"x\",\n \"data\": 7}", "m.yaml:3:10: "),
    ] {
        let found = problems(text);
        assert!(found.len() == 1 && found[0].starts_with(wanted), "{text}\n{found:#?}\nwanted: {wanted}");
    }
}

#[test]
fn a_mistake_in_a_registration_is_where_it_is() {
    let type_ = |rest: &str| {
        format!("type: ResourceType\ndata:\n  group: demo\n  groupVersion: v3\n  kind: Song\n  scope: cluster\n{rest}")
    };
    for (text, wanted) in [
        (type_("  message: a.B\n  protoFile: no.proto\n"), "m.yaml:8:14: there is no file "),
        (
            type_("  message: demo.v1.Song\n  protoFile: protos/demo_v1.proto\n"),
            "m.yaml:7:12: the descriptor set has no",
        ),
        (
            type_(
                "  message: S\n  proto: |\n    syntax = \"proto3\";\n    message S {\n      strin name = 1;\n    }\n",
            ),
            "m.yaml:11:",
        ),
        (
            type_(
                "  message: S\n  proto: 'syntax = \"proto3\"; message S { string name = 1; }'\n  rules:\n    - expression: 'true'\n    - expression: data.nmae == ''\n",
            ),
            "m.yaml:11:19: rule 2 cannot be used: S has no field nmae",
        ),
        (
            type_(
                "  message: S\n  proto: 'syntax = \"proto3\"; message S { string name = 1; }'\n  defaults: {nmae: x}\n",
            ),
            "m.yaml:9:13: the defaults are not S as JSON",
        ),
        (type_("  sope: x\n"), "m.yaml:7:3: unrecognized field name 'sope'"),
        (type_("  descriptorSet: AAAA\n  proto: ''\n"), "m.yaml:8:3: the descriptors are given twice"),
        (type_("").replace("Song", "song"), "m.yaml:5:9: kind is \"song\", but it must be Pascal case"),
        (type_("").replace("v3", "three"), "m.yaml:4:17: group_version is \"three\""),
        (type_("").replace("scope: cluster", "scope: everywhere"), "m.yaml:6:10: unrecognized enum value"),
        (type_("").replace("  scope: cluster\n", ""), "m.yaml:3:3: scope must be cluster, partition or namespace"),
        (
            type_("").replace("data:", "name: my-song\ndata:"),
            "m.yaml:2:7: this registration must be called demo-v3-song",
        ),
        ("type: ResourceType\nname: x\ndata: 7\n".to_owned(), "m.yaml:3:7: a number where a map is wanted"),
    ] {
        let found = problems(&text);
        assert!(found.len() == 1 && found[0].starts_with(wanted), "{text}\n{found:#?}\nwanted: {wanted}");
    }
}

#[test]
fn all_mistakes_are_said_at_once() {
    let found = problems("type: Concept\nname: X\n---\ntype: v2.Artist\nname: y\ndata: {nmae: y}\n---\nname: z\n");
    assert_eq!(found.len(), 3, "{found:#?}");
    for (problem, line) in found.iter().zip(["m.yaml:2:7", "m.yaml:6:8", "m.yaml:8:1"]) {
        assert!(problem.starts_with(line), "{found:#?}");
    }
}

#[test]
fn what_is_of_a_type_that_could_not_be_read_is_not_blamed() {
    let text = "type: ResourceType\ndata: {group: demo, groupVersion: v9, kind: Song}\n---\ntype: v9.Song\nname: x\n";
    let found = problems(text);
    assert!(found.len() == 1 && found[0].contains("scope"), "{found:#?}");
}

#[test]
fn a_type_may_be_used_in_the_file_that_registers_it() {
    let text = concat!(
        "type: v1.Song\nname: x\ndata: {title: Hey}\n---\n",
        "type: headwater.v1.ResourceType\nname: music-v1-song\ndata:\n  group: music\n  group_version: v1\n",
        "  kind: Song\n  scope: SCOPE_CLUSTER\n  message: Song\n  proto: |\n    syntax = \"proto3\";\n",
        "    import \"google/protobuf/duration.proto\";\n",
        "    message Song { string title = 1; google.protobuf.Duration length = 2; }\n",
        "  defaults: {length: 180s}\n"
    );
    let mut catalogue = Catalogue::builtin();
    let planned = plan(&[source(text)], &mut catalogue).unwrap();
    let names: Vec<_> = planned.iter().map(|it| it.resource.id.name.as_str()).collect();
    assert_eq!(names, ["music-v1-song", "x"]);
    let schema = catalogue.resolve("Song").unwrap().schema().unwrap();
    let json = serde_json::to_value(schema.data_as_json(planned[1].resource.data.as_ref().unwrap()).unwrap()).unwrap();
    assert_eq!(json, serde_json::json!({"title": "Hey", "length": "180s"}));
}

#[test]
fn the_form_of_protobuf_is_understood() {
    let text = r#"{"id": {"type": {"group": "demo", "groupVersion": "v1", "kind": "Concept"}, "name": "x",
        "tenancy": {"partition": "default", "namespace": "music"}}, "version": "7", "generation": "01", "status": {},
        "metadata": {"a": "b"}, "owner": null, "data": null}"#;
    let planned = plan(&[source(text)], &mut catalogue()).unwrap();
    let it = &planned[0];
    assert_eq!(it.resource.id.tenancy.namespace, "music");
    assert_eq!((it.version.as_str(), it.resource.metadata["a"].as_str()), ("7", "b"));
    assert_eq!(it.at(), "m.yaml:1");
}

#[test]
fn owners_come_before_what_they_own_and_cycles_are_refused() {
    let link =
        |name: &str, owner: &str| format!("type: Concept\nname: {name}\nowner: {{type: Concept, name: {owner}}}\n");
    let units = "type: Namespace\nname: n\n---\ntype: Partition\nname: p\n";
    let text = [link("c", "b"), link("b", "a"), "type: Concept\nname: a\n".to_owned(), units.to_owned()].join("---\n");
    let planned = plan(&[source(&text)], &mut catalogue()).unwrap();
    let names: Vec<_> = planned.iter().map(|it| it.resource.id.name.as_str()).collect();
    assert_eq!(names, ["p", "n", "a", "b", "c"]);
    let found = problems(&[link("a", "b"), link("b", "a")].join("---\n"));
    assert!(found[0].contains("demo.v1.Concept a owns itself, through others"), "{found:#?}");
}

#[test]
fn an_owner_lives_where_what_it_owns_lives_unless_it_says_otherwise() {
    let text = "type: Concept\nname: x\ntenancy: {namespace: music}\nowner: {type: Concept, name: y}\n---\n\
                type: Concept\nname: z\ntenancy: {namespace: music}\n\
                owner: {type: Concept, name: y, tenancy: {namespace: art}}\n---\n\
                type: Concept\nname: w\nowner: {type: RecordLabel, name: y}\n";
    let planned = plan(&[source(text)], &mut catalogue()).unwrap();
    let units: Vec<_> =
        planned.iter().map(|it| it.resource.owner.as_ref().unwrap().tenancy.namespace.as_str()).collect();
    assert_eq!(units, ["music", "art", ""]);
}
