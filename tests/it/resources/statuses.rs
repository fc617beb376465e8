//! The service's rules about statuses (spec: consul §5.7, §6.2).

use headwater::pb::pbresource as pb;
use tonic::Code;

use super::client::{Client, artist, artist_type, artist_v1_type, id, id_of, refused, type_of, without_uid};
use crate::cluster::Cluster;

const GENERATION: &str = "01ARZ3NDEKTSV4RRFFQ69G5FAV";

fn request(id: pb::Id, key: &str, version: &str) -> pb::WriteStatusRequest {
    let condition = pb::Condition {
        r#type: "Accepted".into(),
        state: pb::condition::State::True.into(),
        reason: "Fine".into(),
        message: "all is well".into(),
        resource: Some(pb::Reference {
            r#type: Some(artist_type()),
            tenancy: Some(pb::Tenancy { partition: "default".into(), namespace: "default".into() }),
            name: "other".into(),
            section: String::new(),
        }),
    };
    pb::WriteStatusRequest {
        id: Some(id),
        version: version.to_owned(),
        key: key.to_owned(),
        status: Some(pb::Status {
            observed_generation: GENERATION.to_owned(),
            conditions: vec![condition],
            updated_at: None,
        }),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn statuses_stand_beside_each_other() {
    let cluster = Cluster::three().await;
    for index in [cluster.leader().await, cluster.follower().await] {
        let client = Client::of(&cluster, index);
        client.register_demo().await;
        let name = format!("artist-{index}");
        let stored = client.write(artist(&name)).await.unwrap();
        let one = client.write_status(request(id_of(&stored), "one", &stored.version)).await.unwrap();
        assert_eq!(one.generation, stored.generation);
        assert_ne!(one.version, stored.version);
        let status = &one.status["one"];
        assert!(status.updated_at.is_some());
        assert_eq!(status.conditions, request(id_of(&stored), "one", "").status.unwrap().conditions);
        let two = client.write_status(request(id_of(&stored), "two", "")).await.unwrap();
        assert_eq!(two.status.keys().collect::<Vec<_>>(), ["one", "two"]);
        assert_eq!((&two.data, &two.metadata), (&stored.data, &stored.metadata));
        // Missing units get defaults.
        let elsewhere = pb::Id { tenancy: None, ..id_of(&stored) };
        assert!(client.write_status(request(elsewhere, "two", "")).await.is_ok());
        // Without a version, concurrent writes all succeed.
        let all = (0..16).map(|number| {
            let (client, id) = (client.clone(), id_of(&stored));
            async move { client.write_status(request(id, &format!("k{number}"), "")).await }
        });
        assert!(futures::future::join_all(all).await.iter().all(Result::is_ok));
        assert_eq!(client.read(id_of(&stored)).await.unwrap().status.len(), 18);

        refused(
            client.write_status(request(id_of(&stored), "one", &stored.version)).await,
            Code::Aborted,
            "CAS operation failed",
        );
        let other_life = pb::Id { uid: GENERATION.into(), ..id_of(&stored) };
        refused(
            client.write_status(request(other_life, "one", "")).await,
            Code::FailedPrecondition,
            "the given uid doesn't match what is stored",
        );
        let mut odd = request(id_of(&stored), "one", "");
        odd.status.as_mut().unwrap().conditions[0].state = 9;
        refused(client.write_status(odd).await, Code::InvalidArgument, "status.conditions[0].state is not valid: 9");
        let absent = pb::Id { name: "nobody".into(), ..id_of(&stored) };
        refused(client.write_status(request(absent, "one", "")).await, Code::NotFound, "resource not found");
        let unknown = pb::Id { r#type: Some(type_of("demo", "v7", "Artist")), ..id_of(&stored) };
        refused(client.write_status(request(unknown, "one", "")).await, Code::InvalidArgument, "not registered");
        let as_v1 = pb::Id { r#type: Some(artist_v1_type()), ..id_of(&stored) };
        refused(client.write_status(request(as_v1, "one", "")).await, Code::InvalidArgument, "GroupVersion");
        refused(
            client.write_status(request(without_uid(id_of(&stored)), "one", "")).await,
            Code::InvalidArgument,
            "id.uid is required",
        );
        let bogus = pb::Id { uid: "u".into(), ..id(artist_type(), ("default", "bogus"), "a") };
        refused(client.write_status(request(bogus, "one", "")).await, Code::InvalidArgument, "namespace not found");
    }
}
