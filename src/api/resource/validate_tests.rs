//! Tables of requests that are refused without a look-up of their type.

use super::*;

fn type_() -> pb::Type {
    pb::Type { group: "demo".into(), group_version: "v2".into(), kind: "Artist".into() }
}

fn good_id() -> pb::Id {
    pb::Id {
        uid: "u".into(),
        name: "a".into(),
        r#type: Some(type_()),
        tenancy: Some(pb::Tenancy { partition: "default".into(), namespace: "default".into() }),
    }
}

fn units(partition: &str, namespace: &str) -> Option<pb::Tenancy> {
    Some(pb::Tenancy { partition: partition.into(), namespace: namespace.into() })
}

/// Ids that are refused, each with the beginning of the refusal's text if the field is called `id`.
fn bad_ids() -> Vec<(Option<pb::Id>, &'static str)> {
    let long = "a".repeat(64);
    let named = |name: &str| Some(pb::Id { name: name.into(), ..good_id() });
    let at = |partition: &str, namespace: &str| Some(pb::Id { tenancy: units(partition, namespace), ..good_id() });
    let of_type = |edit: &dyn Fn(&mut pb::Type)| {
        let mut type_ = type_();
        edit(&mut type_);
        Some(pb::Id { r#type: Some(type_), ..good_id() })
    };
    vec![
        (None, "id is required"),
        (Some(pb::Id { r#type: None, ..good_id() }), "id.type is required"),
        (named(""), "id.name invalid"),
        (named("MixedCase"), "id.name invalid"),
        (named(&long), "id.name invalid"),
        (named("*"), "id.name invalid"),
        (at("Default", "default"), "id.tenancy.partition invalid"),
        (at(&long, "default"), "id.tenancy.partition invalid"),
        (at("*", "default"), "id.tenancy.partition invalid"),
        (at("default", "Default"), "id.tenancy.namespace invalid"),
        (at("default", &long), "id.tenancy.namespace invalid"),
        (at("default", "*"), "id.tenancy.namespace invalid"),
        (Some(pb::Id { uid: "u".repeat(RESOURCE_UID_BYTES_MAX + 1), ..good_id() }), "id.uid is too long"),
        (of_type(&|type_| type_.group = long.clone()), "id.type.group is too long"),
        (of_type(&|type_| type_.group_version = long.clone()), "id.type.group_version is too long"),
        (of_type(&|type_| type_.kind = long.clone()), "id.type.kind is too long"),
    ]
}

fn text<T>(result: Result<T, Invalid>) -> String {
    result.err().map_or_else(|| "taken".to_owned(), |invalid| invalid.to_string())
}

#[test]
fn ids_are_checked_wherever_they_stand() {
    assert!(id(Some(good_id()), "id").is_ok());
    assert!(id(Some(pb::Id { tenancy: None, ..good_id() }), "id").is_ok());
    assert!(id(Some(pb::Id { uid: "u".repeat(RESOURCE_UID_BYTES_MAX), ..good_id() }), "id").is_ok());
    for (given, wanted) in bad_ids() {
        let refused = text(id(given.clone(), "id"));
        assert!(refused.starts_with(wanted), "{refused}, not {wanted}");
        let written = given.clone().map(|id| pb::Resource { id: Some(id), ..Default::default() });
        let refused = text(resource(Some(written.unwrap_or_default())));
        assert!(refused.starts_with(&format!("resource.{wanted}")), "{refused}");
        if let Some(owner) = given.clone() {
            let owned = pb::Resource { id: Some(good_id()), owner: Some(owner.clone()), ..Default::default() };
            let (refused, wanted) = (text(resource(Some(owned))), wanted.trim_start_matches("id"));
            assert!(refused.starts_with(&format!("resource.owner{wanted}")), "{refused}");
            let refused = text(super::owner(Some(owner)));
            assert!(refused.starts_with(&format!("owner{wanted}")), "{refused}");
        }
    }
    let no_uid = pb::Id { uid: String::new(), ..good_id() };
    assert_eq!(text(owner(Some(no_uid))), "owner uid is required");
    assert_eq!(text(owner(None)), "owner is required");
    assert_eq!(text(resource(None)), "resource is required");
}

#[test]
fn an_owner_must_have_a_type_that_could_be_one() {
    for (wrong, field) in [
        (pb::Type { group: "a\u{1}b".into(), ..type_() }, "group"),
        (pb::Type { group_version: "1".into(), ..type_() }, "group_version"),
        (pb::Type { kind: String::new(), ..type_() }, "kind"),
    ] {
        let owner = Some(pb::Id { r#type: Some(wrong), ..good_id() });
        let owned = pb::Resource { id: Some(good_id()), owner, ..Default::default() };
        let refused = text(resource(Some(owned)));
        assert!(refused.starts_with(&format!("resource.owner.type.{field} invalid")), "{refused}");
    }
}

#[test]
fn an_owners_life_has_one_spelling() {
    for (uid, is_good) in [
        ("", true),
        ("01ARZ3NDEKTSV4RRFFQ69G5FAV", true),
        ("01arz3ndektsv4rrffq69g5fav", false),
        ("01ARZ3NDEKTSV4RRFFQ69G5FAv", false),
        ("01ARZ3NDEKTSV4RRFFQ69G5FA", false),
        ("u", false),
    ] {
        let owner = Some(pb::Id { uid: uid.into(), ..good_id() });
        let found = text(resource(Some(pb::Resource { id: Some(good_id()), owner, ..Default::default() })));
        assert_eq!(found, if is_good { "taken" } else { "resource.owner.uid is not valid" }, "{uid:?}");
    }
}

#[test]
fn refusals_repeat_little_of_a_request() {
    let long = "a".repeat(1024 * 1024);
    let upper = "A".repeat(RESOURCE_NAME_BYTES_MAX);
    let mut condition = good_status();
    condition.status.as_mut().unwrap().conditions[0].resource.as_mut().unwrap().name = long.clone();
    let tombstone = pb::Type { group: "internal".into(), group_version: "v1".into(), kind: "Tombstone".into() };
    let of_tombstone = pb::Id { r#type: Some(tombstone), name: format!("tombstone-{long}"), ..good_id() };
    let owned = |owner| pb::Resource { id: Some(good_id()), owner: Some(owner), ..Default::default() };
    let of_type = |group: &str| Some(pb::Type { group: group.into(), ..type_() });
    for refused in [
        text(id(Some(pb::Id { name: long.clone(), ..good_id() }), "id")),
        text(id(Some(pb::Id { tenancy: units(&long, ""), ..good_id() }), "id")),
        text(id(Some(of_tombstone), "id")),
        text(resource(Some(owned(pb::Id { r#type: of_type(&upper), uid: String::new(), ..good_id() })))),
        text(selector(of_type(&long), units("", ""), String::new(), None)),
        text(selector(Some(type_()), units(&long, ""), String::new(), None)),
        text(selector(Some(type_()), units("", ""), long.clone(), None)),
        text(selector(Some(type_()), units("", ""), upper.clone(), None)),
        text(status(condition)),
    ] {
        assert!(refused != "taken" && refused.len() < 1000, "{} bytes: {:.300}", refused.len(), refused);
    }
}

#[test]
fn the_name_of_a_tombstone_may_be_long() {
    let tombstone = pb::Type { group: "internal".into(), group_version: "v1".into(), kind: "Tombstone".into() };
    let name = format!("tombstone-{}-{}", "a".repeat(63), "b".repeat(26));
    let long = pb::Id { name, r#type: Some(tombstone), ..good_id() };
    assert!(id(Some(long.clone()), "id").is_ok());
    assert!(id(Some(pb::Id { r#type: Some(type_()), ..long }), "id").is_err());
}

#[test]
fn a_version_that_the_server_never_gives_matches_nothing() {
    for (version, wanted) in [
        ("", None),
        ("12", Some(LogIndex(12))),
        ("0", Some(LogIndex(0))),
        ("012", Some(LogIndex(0))),
        ("+12", Some(LogIndex(0))),
        ("-1", Some(LogIndex(0))),
        ("abc", Some(LogIndex(0))),
        ("99999999999999999999999", Some(LogIndex(0))),
    ] {
        assert_eq!(expected(version), wanted, "{version:?}");
    }
}

#[test]
fn lists_and_watches_are_checked() {
    let select = |type_, tenancy, prefix: &str| selector(type_, tenancy, prefix.to_owned(), None);
    assert_eq!(text(select(None, units("", ""), "")), "type is required");
    assert_eq!(text(select(Some(type_()), None, "")), "tenancy is required");
    for (partition, namespace, wanted) in [
        ("Default", "", "tenancy.partition invalid"),
        ("", "name_space", "tenancy.namespace invalid"),
        ("**", "", "tenancy.partition invalid"),
    ] {
        let refused = text(select(Some(type_()), units(partition, namespace), ""));
        assert!(refused.starts_with(wanted), "{refused}");
    }
    assert!(text(select(Some(type_()), units("", ""), "Ab")).starts_with("name_prefix invalid"));
    let longest = "a".repeat(RESOURCE_NAME_BYTES_MAX);
    assert!(select(Some(type_()), units("", ""), &longest).is_ok());
    assert_eq!(
        text(select(Some(type_()), units("", ""), &format!("{longest}a"))),
        "name_prefix invalid: must be less than 64 characters"
    );
    let tombstone = pb::Type { group: "internal".into(), group_version: "v1".into(), kind: "Tombstone".into() };
    let longest = "a".repeat(TOMBSTONE_NAME_BYTES_MAX);
    assert!(select(Some(tombstone.clone()), units("", ""), &longest).is_ok());
    assert!(select(Some(tombstone), units("", ""), &format!("{longest}a")).is_err());
    assert!(select(Some(type_()), units("*", "*"), "a").is_ok());
    assert!(select(Some(type_()), units("", ""), "").is_ok());
    let everywhere = Tenancy::new(WILDCARD, WILDCARD);
    let watched = selector(Some(type_()), None, String::new(), Some(everywhere.clone())).unwrap();
    assert_eq!(watched.tenancy, everywhere);
}

fn good_status() -> pb::WriteStatusRequest {
    let reference = pb::Reference {
        r#type: Some(type_()),
        tenancy: units("default", "default"),
        name: "r".into(),
        section: String::new(),
    };
    let condition = pb::Condition { r#type: "Accepted".into(), resource: Some(reference), ..Default::default() };
    pb::WriteStatusRequest {
        id: Some(good_id()),
        version: String::new(),
        key: "consul.io/artist-controller".into(),
        status: Some(pb::Status {
            observed_generation: "01ARZ3NDEKTSV4RRFFQ69G5FAV".into(),
            conditions: vec![condition],
            updated_at: None,
        }),
    }
}

#[test]
fn a_status_is_checked_in_order() {
    assert!(status(good_status()).is_ok());
    let change = |change: &dyn Fn(&mut pb::WriteStatusRequest)| {
        let mut request = good_status();
        change(&mut request);
        text(status(request))
    };
    let with_id = |edit: &dyn Fn(&mut pb::Id)| change(&|request| edit(request.id.as_mut().unwrap()));
    let with_status = |edit: &dyn Fn(&mut pb::Status)| change(&|request| edit(request.status.as_mut().unwrap()));
    let with_condition = |edit: &dyn Fn(&mut pb::Condition)| with_status(&|status| edit(&mut status.conditions[0]));
    let with_reference =
        |edit: &dyn Fn(&mut pb::Reference)| with_condition(&|condition| edit(condition.resource.as_mut().unwrap()));
    let long = "a".repeat(64);
    for (refused, wanted) in [
        (change(&|request| request.id = None), "id is required"),
        (with_id(&|id| id.r#type = None), "id.type is required"),
        (with_id(&|id| id.name.clear()), "id.name is required"),
        (with_id(&|id| id.uid.clear()), "id.uid is required"),
        (change(&|request| request.key.clear()), "key is required"),
        (change(&|request| request.status = None), "status is required"),
        (with_status(&|status| status.observed_generation.clear()), "status.observed_generation is required"),
        (with_status(&|status| status.observed_generation = "bogus".into()), "status.observed_generation is not valid"),
        (with_condition(&|condition| condition.r#type.clear()), "status.conditions[0].type is required"),
        (with_condition(&|condition| condition.state = 9), "status.conditions[0].state is not valid: 9"),
        (with_condition(&|condition| condition.state = -1), "status.conditions[0].state is not valid: -1"),
        (with_reference(&|reference| reference.r#type = None), "status.conditions[0].resource.type is required"),
        (with_reference(&|reference| reference.tenancy = None), "status.conditions[0].resource.tenancy is required"),
        (with_reference(&|reference| reference.name.clear()), "status.conditions[0].resource.name is required"),
        (
            with_status(&|status| status.updated_at = Some(Default::default())),
            "status.updated_at is automatically set and cannot be provided",
        ),
        (with_id(&|id| id.name = "Mixed".into()), "id.name invalid"),
        (with_id(&|id| id.name = long.clone()), "id.name invalid"),
        (with_id(&|id| id.tenancy = units("Mixed", "")), "id.tenancy.partition invalid"),
        (with_id(&|id| id.tenancy = units("", "Mixed")), "id.tenancy.namespace invalid"),
        (with_reference(&|reference| reference.name = "Mixed".into()), "status.conditions[0].resource.name invalid"),
        (
            with_reference(&|reference| reference.tenancy = units("Mixed", "default")),
            "status.conditions[0].resource.tenancy.partition invalid",
        ),
        (
            with_reference(&|reference| reference.tenancy = units("default", &long)),
            "status.conditions[0].resource.tenancy.namespace invalid",
        ),
        (change(&|request| request.key = "k".repeat(RESOURCE_STATUS_KEY_BYTES_MAX + 1)), "key is too long"),
        (
            with_reference(&|reference| reference.section = "s".repeat(RESOURCE_SECTION_BYTES_MAX + 1)),
            "status.conditions[0].resource.section is too long",
        ),
        (
            with_reference(&|reference| reference.r#type.as_mut().unwrap().kind = long.clone()),
            "status.conditions[0].resource.type.kind is too long",
        ),
    ] {
        assert!(refused.starts_with(wanted), "{refused}, not {wanted}");
    }
    assert_eq!(with_id(&|id| id.tenancy = None), "taken");
    assert_eq!(change(&|request| request.key = "k".repeat(RESOURCE_STATUS_KEY_BYTES_MAX)), "taken");
    assert_eq!(with_reference(&|it| it.section = "s".repeat(RESOURCE_SECTION_BYTES_MAX)), "taken");
}
