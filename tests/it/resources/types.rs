//! Types that are registered and changed while the cluster runs.

use headwater::pb::headwater_v1 as registered;
use headwater::pb::pbresource as pb;
use prost::Message;
use tonic::Code;

use super::client::{Client, Delivery, Scope, any, id, named, refused, registration, type_of};
use crate::cluster::{Cluster, Settings};

fn thing() -> pb::Type {
    type_of("demo", "v1", "Thing")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_type_is_known_everywhere_at_once() {
    let cluster = Cluster::three().await;
    let clients: Vec<Client> = (0..3).map(|index| Client::of(&cluster, index)).collect();
    for round in 0..5 {
        let type_ = type_of("demo", &format!("v{round}"), "Thing");
        let units = ("default", "default");
        refused(clients[0].write(named(type_.clone(), units, "a")).await, Code::InvalidArgument, "not registered");
        clients[round % 3].write(registration(&type_, Scope::Namespace, Some("demo.v2.Artist"))).await.unwrap();
        // Without a pause: a member that has not applied the registration yet must wait for it.
        for (at, client) in clients.iter().enumerate() {
            let mut watch = client.watch(type_.clone(), Some(units), &format!("m{at}")).await.unwrap();
            assert_eq!(watch.next().await, Delivery::End);
            let mut resource = named(type_.clone(), units, &format!("m{at}-{round}"));
            resource.data = Some(any("demo.v2.Album", &pb::Tombstone::default()));
            refused(client.write(resource.clone()).await, Code::InvalidArgument, "wrong type");
            resource.data = None;
            let stored = client.write(resource).await.unwrap();
            assert_eq!(watch.next().await, Delivery::Upsert(stored));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registration_is_checked() {
    let cluster = Cluster::start(Settings::alone()).await;
    let client = Client::of(&cluster, 0);
    let good = registration(&thing(), Scope::Namespace, Some("demo.v2.Artist"));
    let content = || {
        let data = good.data.as_ref().unwrap();
        registered::ResourceType::decode(data.value.as_slice()).unwrap()
    };
    let with = |content: registered::ResourceType| pb::Resource {
        data: Some(any("headwater.v1.ResourceType", &content)),
        ..good.clone()
    };
    let mut bad_rule = content();
    bad_rule.rules[0].expression = "data.nothing ==".into();
    let other_name =
        pb::Resource { id: Some(id(type_of("headwater", "v1", "ResourceType"), ("", ""), "thing")), ..good.clone() };
    let built_in = registered::ResourceType {
        group: "tenancy".into(),
        group_version: "v2beta1".into(),
        kind: "Partition".into(),
        ..content()
    };
    for (resource, said) in [
        (pb::Resource { data: None, ..good.clone() }, "must be headwater.v1.ResourceType"),
        (
            pb::Resource { data: Some(any("demo.v2.Artist", &content())), ..good.clone() },
            "must be headwater.v1.ResourceType",
        ),
        (with(registered::ResourceType { scope: Scope::Undefined.into(), ..content() }), "scope is required"),
        (with(registered::ResourceType { scope: 77, ..content() }), "scope"),
        (with(registered::ResourceType { group: "Demo".into(), ..content() }), "group"),
        (with(registered::ResourceType { group_version: "1".into(), ..content() }), "group_version"),
        (with(registered::ResourceType { kind: "thing".into(), ..content() }), "kind"),
        (with(registered::ResourceType { message: "demo.v2.Nothing".into(), ..content() }), "demo.v2.Nothing"),
        (with(registered::ResourceType { descriptor_set: vec![0xff].into(), ..content() }), "descriptor set"),
        (with(bad_rule), "rule 1"),
        (with(registered::ResourceType { kind: "Other".into(), ..content() }), "must be named"),
        (with(built_in), "built in"),
        (other_name, "must be named"),
    ] {
        refused(client.write(resource.clone()).await, Code::InvalidArgument, said);
        refused(client.judge(resource).await, Code::InvalidArgument, said);
    }
    let stored = client.write(good.clone()).await.unwrap();
    refused(
        client.write(with(registered::ResourceType { scope: Scope::Cluster.into(), ..content() })).await,
        Code::InvalidArgument,
        "cannot be changed",
    );
    let resource = client.write(named(thing(), ("", ""), "a")).await.unwrap();
    refused(client.delete(stored.id.clone().unwrap()).await, Code::FailedPrecondition, "in use");
    // An added rule applies to later writes.
    let mut stricter = content();
    stricter.rules.push(registered::resource_type::Rule { expression: "false".into(), message: "never".into() });
    client.write(with(stricter)).await.unwrap();
    let mut again = named(thing(), ("", ""), "a");
    again.data = Some(super::client::artist_data("x"));
    refused(client.write(again).await, Code::InvalidArgument, "never");
    client.delete(resource.id.unwrap()).await.unwrap();
    client.delete(stored.id.unwrap()).await.unwrap();
    refused(client.write(named(thing(), ("", ""), "a")).await, Code::InvalidArgument, "not registered");
}
