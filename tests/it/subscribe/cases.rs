//! The cases that must hold on every kind of member. Each has services and nodes of the catalog of
//! its own.

use headwater::pb::subscribe::subscribe_request::Subject;
use headwater::pb::subscribe::{NamedSubject, SubscribeRequest, Topic};
use headwater::types::catalog::{
    CheckStatus, DeregistrationTarget, LinkedService, Proxy, Registration, Service, ServiceKind, TerminatingGateway,
};
use tonic::Code;

use super::client::{
    Delivery, Subscriber, after, apply, check, ctx, dereg, deregister, health, named, old, on, reg, register, wildcard,
};
use crate::cluster::{Cluster, wait_until};

/// The member at which the cases run.
pub struct Member<'c> {
    pub cluster: &'c Cluster,
    pub index: usize,
}

impl Member<'_> {
    async fn open(&self, request: SubscribeRequest) -> Subscriber {
        Subscriber::open(self.cluster, self.index, request).await.unwrap()
    }

    async fn refused(&self, request: SubscribeRequest, text: &str) {
        let status = Subscriber::open(self.cluster, self.index, request.clone()).await.err();
        let status = status.unwrap_or_else(|| panic!("{request:?} must be refused"));
        assert_eq!(status.code(), Code::InvalidArgument, "{request:?}: {status:?}");
        assert!(status.message().contains(text), "{request:?}: {status:?}");
    }

    async fn register(&self, node: &str, id: &str, service: &str) -> u64 {
        register(self.cluster, self.index, node, id, service).await
    }

    async fn check(&self, node: &str, id: &str, status: CheckStatus) -> u64 {
        check(self.cluster, self.index, node, id, status).await
    }

    async fn deregister(&self, node: &str, what: DeregistrationTarget) -> u64 {
        deregister(self.cluster, self.index, node, what).await
    }
}

/// Runs every case.
pub async fn run_all(member: &Member<'_>) {
    let subscriptions = member.cluster.node(member.index).follow().catalog_stats().subscriptions;
    s1_to_s4_snapshots(member).await;
    s5_s6_s36_resuming(member).await;
    s8_s9_an_index_that_there_is_not(member).await;
    s10_s40_no_gap_between_snapshot_and_changes(member).await;
    s11_the_first_event_of_a_subject(member).await;
    s12_to_s14_one_commit_is_one_event(member).await;
    s15_to_s17_keys(member).await;
    an_empty_key_means_all_of_the_mesh(member).await;
    s18_s34_s35_what_is_refused(member).await;
    s19_s20_s21_live(member).await;
    s33_a_client_that_goes_away(member, subscriptions).await;
    the_list_of_names(member).await;
}

async fn s1_to_s4_snapshots(member: &Member<'_>) {
    // S1: nothing there, and S3: no announcement of a snapshot.
    let mut nothing = member.open(health("s1-nothing")).await;
    assert!(matches!(nothing.next().await, Delivery::End(index) if index >= 1));
    // S2.
    let first = member.register("s2-n1", "web-1", "s2-web").await;
    let second = member.register("s2-n2", "web-2", "s2-web").await;
    assert!(second > first);
    for _ in 0..2 {
        // The second time the snapshot is a reused one.
        let mut web = member.open(health("s2-web")).await;
        let (mut found, index) = web.snapshot().await;
        found.sort();
        assert_eq!(found, ["s2-n1/web-1", "s2-n2/web-2"]);
        assert!(index >= second);
    }
    // A reused snapshot has everything that this member has acknowledged since.
    let third = member.register("s2-n3", "web-3", "s2-web").await;
    member.deregister("s2-n1", DeregistrationTarget::Service("web-1".to_owned())).await;
    let mut web = member.open(health("s2-web")).await;
    let (mut found, index) = web.snapshot().await;
    found.sort();
    assert_eq!(found, ["s2-n2/web-2", "s2-n3/web-3"]);
    assert!(index > third);
    // S4: the end comes once; what follows is a change.
    let changed = member.check("s2-n2", "web-2", CheckStatus::Passing).await;
    assert_eq!(web.next().await, reg(changed, "s2-n2/web-2"));
}

async fn s5_s6_s36_resuming(member: &Member<'_>) {
    let first = member.register("s5-n1", "web-1", "s5-web").await;
    let (_, end) = member.open(health("s5-web")).await.snapshot().await;
    // S36: other services raise the log index, but send nothing to this one's subscribers.
    let other = member.register("s5-n2", "db-1", "s5-db").await;
    let mut fresh = member.open(after(end, health("s5-web"))).await;
    let mut ahead = member.open(after(other, health("s5-web"))).await;
    let one = member.check("s5-n1", "web-1", CheckStatus::Passing).await;
    let two = member.check("s5-n1", "web-1", CheckStatus::Critical).await;
    // S5: the first message is the next change.
    for subscriber in [&mut fresh, &mut ahead] {
        assert_eq!(subscriber.next().await, reg(one, "s5-n1/web-1"));
        assert_eq!(subscriber.next().await, reg(two, "s5-n1/web-1"));
    }
    // S6: exactly the missed changes, from any index on.
    let mut delivered = vec![one, two];
    for from in [first, end, other, one, two] {
        let mut resumed = member.open(after(from, health("s5-web"))).await;
        delivered.push(member.check("s5-n1", "web-1", CheckStatus::ALL[delivered.len() % 2]).await);
        for index in delivered.iter().filter(|index| **index > from) {
            assert_eq!(resumed.next().await, reg(*index, "s5-n1/web-1"), "from {from}");
        }
    }
}

async fn s8_s9_an_index_that_there_is_not(member: &Member<'_>) {
    let at = member.register("s8-n1", "web-1", "s8-web").await;
    for index in [at + 1_000_000, u64::MAX] {
        let mut stream = member.open(after(index, health("s8-web"))).await;
        assert_eq!(stream.next().await, Delivery::StartOver, "the very first message");
        let (found, end) = stream.snapshot().await;
        assert_eq!(found, ["s8-n1/web-1"]);
        assert!(end >= at && end < index);
    }
    // An existing index, but of another lineage.
    let stream = Subscriber::open_with(member.cluster, member.index, after(at, health("s8-web")), Some("1")).await;
    assert_eq!(stream.unwrap().next().await, Delivery::StartOver);
    // One of this lineage.
    let epoch = member.open(health("s8-web")).await.epoch;
    let stream = after(at, health("s8-web"));
    let mut stream = Subscriber::open_with(member.cluster, member.index, stream, Some(&epoch)).await.unwrap();
    let next = member.check("s8-n1", "web-1", CheckStatus::Passing).await;
    assert_eq!(stream.next().await, reg(next, "s8-n1/web-1"));
    let unreadable = Subscriber::open_with(member.cluster, member.index, health("s8-web"), Some("x y")).await;
    assert_eq!(unreadable.err().unwrap().code(), Code::InvalidArgument);
}

async fn s10_s40_no_gap_between_snapshot_and_changes(member: &Member<'_>) {
    const TURNS: usize = 60;
    member.register("s10-n", "web-0", "s10-web").await;
    let writing = async {
        for turn in 0..TURNS {
            member.register("s10-n", &format!("web-{}", turn % 7), "s10-web").await;
            member.check("s10-n", &format!("web-{}", turn % 7), CheckStatus::ALL[turn % 3]).await;
            if turn % 5 == 4 {
                member.deregister("s10-n", DeregistrationTarget::Service(format!("web-{}", (turn + 3) % 7))).await;
            }
        }
        member.register("s10-n", "last", "s10-web").await
    };
    let reading = async {
        let mut streams = Vec::new();
        for _ in 0..TURNS {
            let mut stream = member.open(health("s10-web")).await;
            let (found, end) = stream.snapshot().await;
            streams.push((stream, found, end));
            tokio::task::yield_now().await;
        }
        streams
    };
    let (last, streams) = tokio::join!(writing, reading);
    let wanted: Vec<String> = super::client::read(member.cluster, member.index, "s10-web").await.into_keys().collect();
    for (mut stream, found, end) in streams {
        let mut view: std::collections::BTreeSet<String> = found.into_iter().collect();
        let mut index = end;
        while index < last {
            let delivered = stream.next().await;
            assert!(delivered.index() > index, "S19: {delivered:?} after {index}");
            index = delivered.index();
            match delivered {
                Delivery::Reg(_, name) => view.insert(name),
                Delivery::Dereg(_, name) => view.remove(&name),
                other => panic!("{other:?}"),
            };
        }
        assert_eq!(view.into_iter().collect::<Vec<_>>(), wanted);
    }
}

async fn s11_the_first_event_of_a_subject(member: &Member<'_>) {
    let mut stream = member.open(health("s11-web")).await;
    assert!(matches!(stream.next().await, Delivery::End(_)));
    let first = member.register("s11-n", "web", "s11-web").await;
    assert_eq!(stream.next().await, reg(first, "s11-n/web"));
}

async fn s12_to_s14_one_commit_is_one_event(member: &Member<'_>) {
    for id in ["web-1", "web-2", "web-3"] {
        member.register("s12-n", id, "s12-web").await;
    }
    member.register("s12-n", "db-1", "s12-db").await;
    let (mut web, mut db) = (member.open(health("s12-web")).await, member.open(health("s12-db")).await);
    let mut other = member.open(health("s12-other")).await;
    web.snapshot().await;
    db.snapshot().await;
    other.snapshot().await;
    // A check of the node applies to all its instances.
    let index = member.check("s12-n", "", CheckStatus::Critical).await;
    let Delivery::Batch(at, mut inner) = web.next().await else { panic!("three changes are a batch") };
    inner.sort_by_key(|delivered| format!("{delivered:?}"));
    assert_eq!(at, index);
    assert_eq!(inner, [reg(index, "s12-n/web-1"), reg(index, "s12-n/web-2"), reg(index, "s12-n/web-3")]);
    // S14: a single change is no batch; S13 is the same.
    assert_eq!(db.next().await, reg(index, "s12-n/db-1"));
    // S14: without a change nothing is sent, and no empty batch.
    let later = member.register("s12-n", "other-1", "s12-other").await;
    assert_eq!(other.next().await, reg(later, "s12-n/other-1"));
    // A removed node takes all its instances along.
    let gone = member.deregister("s12-n", DeregistrationTarget::Node).await;
    assert!(matches!(web.next().await, Delivery::Batch(at, inner) if at == gone && inner.len() == 3));
    assert_eq!(db.next().await, dereg(gone, "s12-n/db-1"));
}

async fn s15_to_s17_keys(member: &Member<'_>) {
    member.register("s15-n", "Web-1", "S15-Web").await;
    // S16: keys do not depend on upper and lower case, in the snapshot and in changes.
    let mut any_case = Vec::new();
    for key in ["s15-web", "S15-WEB", "S15-Web"] {
        let mut stream = member.open(health(key)).await;
        assert_eq!(stream.snapshot().await.0, ["s15-n/Web-1"], "{key}");
        any_case.push(stream);
    }
    // S17: a prefix of a name is another name.
    let mut shorter = member.open(health("s15-we")).await;
    assert!(matches!(shorter.next().await, Delivery::End(_)));
    // S15: all services, requested by the wildcard and in the form of old clients.
    let mut everything = Vec::new();
    for request in [wildcard(Topic::ServiceHealth), old(Topic::ServiceHealth, "")] {
        let mut stream = member.open(request).await;
        assert!(stream.snapshot().await.0.contains(&"s15-n/Web-1".to_owned()));
        everything.push(stream);
    }
    let mut old_form = member.open(old(Topic::ServiceHealth, "S15-web")).await;
    assert_eq!(old_form.snapshot().await.0, ["s15-n/Web-1"]);
    let index = member.register("s15-n", "Web-2", "s15-WEB").await;
    for stream in any_case.iter_mut().chain([&mut old_form]).chain(&mut everything) {
        assert_eq!(stream.next().await, reg(index, "s15-n/Web-2"));
    }
    let index = member.register("s15-n", "we-1", "s15-we").await;
    assert_eq!(shorter.next().await, reg(index, "s15-n/we-1"));
    for stream in &mut everything {
        assert_eq!(stream.next().await, reg(index, "s15-n/we-1"));
    }
}

async fn an_empty_key_means_all_of_the_mesh(member: &Member<'_>) {
    let put = async |id: &str, kind: ServiceKind, name: &str, destination: &str| {
        let proxy = Proxy { destination_service_name: destination.to_owned(), ..Proxy::default() };
        let name = name.to_owned();
        let service = Service { id: id.to_owned(), name, kind, proxy, port: 80, ..Service::default() };
        apply(member.cluster, member.index, Registration { service: Some(service), ..on("mesh-n") }).await
    };
    let link = async |services: &[&str]| {
        let link = |name: &&str| LinkedService { name: (*name).to_owned(), ..LinkedService::default() };
        let services = services.iter().map(link).collect();
        let gateway = TerminatingGateway { name: "mesh-gw".to_owned(), services, ..TerminatingGateway::default() };
        member.cluster.node(member.index).catalog().set_gateway(&ctx(), gateway).await.unwrap().index.get()
    };
    let proxy = ServiceKind::ConnectProxy;
    put("web-proxy", proxy, "web-proxy", "mesh-web").await;
    put("plain", ServiceKind::Typical, "mesh-web", "").await;
    link(&["mesh-db", "mesh-mail"]).await;
    let mut streams = Vec::new();
    for request in [old(Topic::ServiceHealthConnect, ""), wildcard(Topic::ServiceHealthConnect)] {
        let mut stream = member.open(request).await;
        let (found, _) = stream.snapshot().await;
        assert!(found.contains(&"mesh-n/web-proxy".to_owned()), "{found:?}");
        assert!(!found.contains(&"mesh-n/plain".to_owned()), "it is not reached in the mesh: {found:?}");
        streams.push(stream);
    }
    let api = put("api-proxy", proxy, "api-proxy", "mesh-api").await;
    put("plain-2", ServiceKind::Typical, "mesh-web", "").await;
    let gateway = put("gw", ServiceKind::TerminatingGateway, "mesh-gw", "").await;
    // The gateway is still linked to the other service.
    let unlinked = link(&["mesh-mail"]).await;
    let gone = link(&[]).await;
    for stream in &mut streams {
        assert_eq!(stream.next().await, reg(api, "mesh-n/api-proxy"));
        let twice = |at, delivered: [Delivery; 2]| Delivery::Batch(at, delivered.to_vec());
        let came = || reg(gateway, "mesh-n/gw");
        assert_eq!(stream.next().await, twice(gateway, [came(), came()]), "once for each service that it stands for");
        let wanted = [dereg(unlinked, "mesh-n/gw"), reg(unlinked, "mesh-n/gw")];
        assert_eq!(stream.next().await, twice(unlinked, wanted));
        assert_eq!(stream.next().await, dereg(gone, "mesh-n/gw"));
    }
    member.deregister("mesh-n", DeregistrationTarget::Node).await;
}

async fn s18_s34_s35_what_is_refused(member: &Member<'_>) {
    let with_topic = |topic| SubscribeRequest { topic, ..health("web") };
    member.refused(with_topic(0), "unknown topic").await;
    member.refused(with_topic(77), "unknown topic: 77").await;
    member.refused(SubscribeRequest { topic: 0, ..wildcard(Topic::ServiceList) }, "unknown topic").await;
    member.refused(with_topic(Topic::MeshConfig.into()), "MeshConfig is not served").await;
    member.refused(health(""), "NamedSubject.Key is required").await;
    member.refused(named(Topic::ServiceList, "web"), "WildcardSubject").await;
    member.refused(named(Topic::ServiceHealthConnect, ""), "by WildcardSubject").await;
    let in_datacenter = |name: &str| SubscribeRequest { datacenter: name.to_owned(), ..health("s34-web") };
    assert!(matches!(member.open(in_datacenter("dc1")).await.next().await, Delivery::End(_)));
    member.refused(in_datacenter("dc9"), "no path to datacenter").await;
    let in_units = |namespace: &str, partition: &str, peer: &str| {
        let named = NamedSubject {
            key: "s34-web".to_owned(),
            namespace: namespace.to_owned(),
            partition: partition.to_owned(),
            peer_name: peer.to_owned(),
        };
        SubscribeRequest { subject: Some(Subject::NamedSubject(named)), ..health("") }
    };
    assert!(matches!(member.open(in_units("default", "default", "")).await.next().await, Delivery::End(_)));
    member.refused(in_units("team", "", ""), "namespace \"team\" does not exist").await;
    member.refused(in_units("", "eu", ""), "partition \"eu\" does not exist").await;
    member.refused(in_units("", "", "other"), "peered").await;
    // Access control is off: the token has no effect.
    let with_token = SubscribeRequest { token: "whatever".to_owned(), ..health("s34-web") };
    assert!(matches!(member.open(with_token).await.next().await, Delivery::End(_)));
}

async fn s19_s20_s21_live(member: &Member<'_>) {
    let mut stream = member.open(health("s19-web")).await;
    stream.snapshot().await;
    let came = member.register("s19-n", "web-1", "s19-web").await;
    // S21: an equal registration is no change.
    member.register("s19-n", "web-1", "s19-web").await;
    let moved = member.register("s19-n", "web-1", "s19-web2").await;
    let mut renamed = member.open(health("s19-web2")).await;
    assert_eq!(renamed.snapshot().await.0, ["s19-n/web-1"]);
    assert_eq!(stream.next().await, reg(came, "s19-n/web-1"));
    assert_eq!(stream.next().await, dereg(moved, "s19-n/web-1"), "it has another name now");
    let gone = member.deregister("s19-n", DeregistrationTarget::Service("web-1".to_owned())).await;
    // S20: a removal has only the key of the instance, and is delivered only to subscribers that
    // asked for it.
    assert_eq!(renamed.next().await, dereg(gone, "s19-n/web-1"));
    let back = member.register("s19-n", "web-1", "s19-web").await;
    assert_eq!(stream.next().await, reg(back, "s19-n/web-1"));
}

async fn s33_a_client_that_goes_away(member: &Member<'_>, before: u64) {
    let node = member.cluster.node(member.index);
    // Streams of the earlier cases may still be closing.
    wait_until("all streams are gone", async || node.follow().catalog_stats().subscriptions == before).await;
    let mut streams = Vec::new();
    for _ in 0..20 {
        streams.push(member.open(wildcard(Topic::ServiceHealth)).await);
    }
    wait_until("they are there", async || node.follow().catalog_stats().subscriptions == before + 20).await;
    drop(streams);
    wait_until("they are gone", async || node.follow().catalog_stats().subscriptions == before).await;
}

async fn the_list_of_names(member: &Member<'_>) {
    member.register("list-n", "a-1", "list-a").await;
    let mut list = member.open(wildcard(Topic::ServiceList)).await;
    let (found, _) = list.snapshot().await;
    assert!(found.contains(&"list-a".to_owned()) && !found.contains(&"list-b".to_owned()), "{found:?}");
    let first = member.register("list-n", "b-1", "list-b").await;
    // Only the first and the last instance of a service change the list.
    member.register("list-n", "b-2", "list-b").await;
    member.deregister("list-n", DeregistrationTarget::Service("b-1".to_owned())).await;
    let last = member.deregister("list-n", DeregistrationTarget::Service("b-2".to_owned())).await;
    assert_eq!(list.next().await, reg(first, "list-b"));
    assert_eq!(list.next().await, dereg(last, "list-b"));
    // Resumes as the other topics do.
    let mut resumed = member.open(after(first, wildcard(Topic::ServiceList))).await;
    assert_eq!(resumed.next().await, dereg(last, "list-b"));
}
