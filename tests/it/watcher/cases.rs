//! The cases that write keys and check the changes that watching clients receive. Every case has
//! keys of its own.

use headwater::pb::etcdserverpb as etcd;
use headwater::pb::etcdserverpb::request_op::Request as Op;

use super::client::{Follower, Seen, Via, View, show};
use crate::cluster::{Cluster, put};

/// The member and the transport that a case uses. The keys of the case are below the folder
/// `CASE-VIA`, such as `w05-Grpc`.
#[derive(Clone, Copy)]
pub struct Member<'a> {
    pub cluster: &'a Cluster,
    pub index: usize,
    pub via: Via,
    pub case: &'a str,
}

pub fn put_op(key: String, value: &str) -> Op {
    Op::RequestPut(put(key, value))
}

impl<'a> Member<'a> {
    pub fn case(self, case: &'a str) -> Self {
        Self { case, ..self }
    }

    fn key(&self, key: &str) -> String {
        format!("{}-{:?}{key}", self.case, self.via)
    }

    pub fn target(&self, path: &str) -> String {
        format!("/kv/{}-{:?}{path}", self.case, self.via)
    }

    pub async fn put(&self, key: &str, value: &str) {
        self.cluster.kv(self.index).put(put(self.key(key), value)).await.unwrap();
    }

    pub async fn del(&self, key: &str) {
        self.txn(vec![self.del_op(key)]).await;
    }

    pub fn put_op(&self, key: &str, value: &str) -> Op {
        put_op(self.key(key), value)
    }

    pub fn del_op(&self, key: &str) -> Op {
        Op::RequestDeleteRange(etcd::DeleteRangeRequest { key: self.key(key).into(), ..Default::default() })
    }

    /// An operation that deletes a key and all keys below it.
    pub fn del_tree_op(&self, key: &str) -> Op {
        let (key, range_end) = (self.key(key), format!("{}0", self.key(key)));
        Op::RequestDeleteRange(etcd::DeleteRangeRequest {
            key: key.into(),
            range_end: range_end.into(),
            ..Default::default()
        })
    }

    pub async fn txn(&self, ops: Vec<Op>) {
        self.cluster.kv(self.index).txn(txn(ops)).await.unwrap();
    }

    pub async fn fixture(&self) {
        for (key, value) in [("/app", "d0"), ("/app/a", "1"), ("/app/b", "2"), ("/app/d/x", "3"), ("/other/z", "9")] {
            self.put(key, value).await;
        }
    }

    pub async fn follow(&self, path: &str) -> Follower {
        self.follow_from(path, b"").await
    }

    pub async fn follow_from(&self, path: &str, marker: &[u8]) -> Follower {
        let url = self.cluster.client_url(self.index);
        Follower::open(&url, self.via, &self.target(path), marker).await.unwrap()
    }
}

fn txn(ops: Vec<Op>) -> etcd::TxnRequest {
    let success = ops.into_iter().map(|op| etcd::RequestOp { request: Some(op) }).collect();
    etcd::TxnRequest { success, ..Default::default() }
}

const TREE: &str = "/app?recursive=true";
const WHOLE: [&str; 5] = ["C(,E,d0,+)", "C(a,E,1,+)", "C(b,E,2,+)", "C(d,E,Empty,+)", "C(d/x,E,3,m)"];

/// Runs all cases.
pub async fn run_all(member: Member<'_>) {
    w01_w02_the_state_comes_first(member.case("w01")).await;
    w03_w04_what_is_not_there_can_be_followed(member.case("w03")).await;
    w05_a_leaf(member.case("w05")).await;
    w06_w07_now_skips_the_state(member.case("w06")).await;
    w19_only_a_closed_group_has_a_marker(member.case("w19")).await;
    w20_to_w24_groups_are_commands(member.case("w20")).await;
    w25_a_slow_reader_ends_at_the_newest(member.case("w25")).await;
    w26_a_removal_has_no_data(member.case("w26")).await;
    w27_to_w29_directories_come_with_what_is_in_them(member.case("w27")).await;
    w30_to_w32_a_subtree_goes_as_one(member.case("w30")).await;
    w33_a_directory_goes_with_the_last(member.case("w33")).await;
    w34_w35_the_entity_itself_comes_and_goes(member.case("w34")).await;
    w40_w42_names_are_decoded_once(member.case("w40")).await;
    w48_w49_nothing_is_late_or_lost(member.case("w48")).await;
    neighbours_are_not_below(member.case("neighbours")).await;
    keys_with_a_leading_slash_have_names(member.case("slash")).await;
    the_state_is_shared_and_never_old(member.case("shared")).await;
}

async fn w01_w02_the_state_comes_first(member: Member<'_>) {
    member.fixture().await;
    let mut children = member.follow("/app").await;
    children.expect(&["C(,E,d0,+)", "C(a,E,1,+)", "C(b,E,2,+)", "C(d,E,Empty,m)"]).await;
    let mut tree = member.follow(TREE).await;
    tree.expect(&WHOLE).await;
    children.silent().await;
    tree.silent().await;
}

async fn w03_w04_what_is_not_there_can_be_followed(member: Member<'_>) {
    let mut nothing = member.follow("/nope").await;
    nothing.expect(&["C(,X,m)"]).await;
    nothing.silent().await;
    member.put("/nope", "v").await;
    nothing.expect(&["C(,E,v,m)"]).await;
}

async fn w05_a_leaf(member: Member<'_>) {
    member.fixture().await;
    member.follow("/app/a").await.expect(&["C(,E,1,m)"]).await;
}

async fn w06_w07_now_skips_the_state(member: Member<'_>) {
    member.fixture().await;
    let mut there = member.follow_from("/app", b"now").await;
    let mut not_there = member.follow_from("/nope", b"now").await;
    there.expect(&["C(,S,m)"]).await;
    not_there.expect(&["C(,S,m)"]).await;
    there.silent().await;
    member.put("/app/a", "7").await;
    there.expect(&["C(a,E,7,m)"]).await;
    not_there.silent().await;
}

async fn w19_only_a_closed_group_has_a_marker(member: Member<'_>) {
    member.fixture().await;
    let mut stream = member.follow("/app?recursive=true&batch_bytes=1").await;
    let marker = stream.expect(&WHOLE).await;
    member.txn(["/app/a", "/app/b", "/app/c"].map(|key| member.put_op(key, "7")).to_vec()).await;
    let mut view = View::default();
    view.marker.clone_from(&marker);
    for _ in 0..2 {
        assert!(!view.take(stream.try_next().await.unwrap().unwrap()), "the group is open");
    }
    // The client closes the stream before the end of the group: it must ignore the open part.
    drop(stream);
    view.cut_off();
    assert_eq!((&view.marker, view.elements.len()), (&marker, 0));
    member.follow_from(TREE, &view.marker).await.expect(&["C(a,E,7,+)", "C(b,E,7,+)", "C(c,E,7,m)"]).await;
}

async fn w20_to_w24_groups_are_commands(member: Member<'_>) {
    member.fixture().await;
    let mut follower = member.follow(TREE).await;
    follower.expect(&WHOLE).await;
    // W20: three changes at once are one group.
    member.txn(vec![member.put_op("/app/a", "7"), member.put_op("/app/c", "8"), member.del_op("/app/b")]).await;
    let group = follower.group().await;
    let mut shown = show(&group);
    shown.sort();
    assert_eq!(shown.len(), 3);
    assert!(group.iter().rev().skip(1).all(|seen| seen.continued) && !group.last().unwrap().continued);
    assert!(
        shown[0].starts_with("C(a,E,7") && shown[1].starts_with("C(b,X") && shown[2].starts_with("C(c,E,8"),
        "{shown:?}"
    );
    // W22: many small writes are as many groups.
    let mut kv = member.cluster.kv(member.index);
    for number in 0..100 {
        kv.put(put(member.key("/app/many"), number.to_string())).await.unwrap();
    }
    for number in 0..100 {
        follower.expect(&[&format!("C(many,E,{number},m)")]).await;
    }
    // W23: a filtered change leaves no group open.
    member.txn(vec![member.put_op("/app/a", "8"), member.put_op("/other/z", "10")]).await;
    follower.expect(&["C(a,E,8,m)"]).await;
    // W24: a command without changes in the target is not delivered.
    member.txn(vec![member.put_op("/other/z", "11")]).await;
    follower.silent().await;
    // W21: a message limit below the size of a change still lets one change through, and the group
    // stays one.
    let mut small = member.follow("/app?recursive=true&batch_bytes=64").await;
    let group = small.group().await;
    assert!(small.batches >= 3, "{} batches for {} changes", small.batches, group.len());
    assert!(group.iter().rev().skip(1).all(|seen| seen.continued));
}

async fn w25_a_slow_reader_ends_at_the_newest(member: Member<'_>) {
    member.fixture().await;
    let mut follower = member.follow(TREE).await;
    let mut view = View::default();
    // One connection: one for each of the writes would cost more than the writes.
    let mut kv = member.cluster.kv(member.index);
    for number in 0..1000 {
        let value = number.to_string();
        if number % 2 == 0 {
            // The follower must see both changes or neither, however commits are merged.
            let ops = vec![member.put_op("/app/a", &value), member.put_op("/app/twin", &value)];
            kv.txn(txn(ops)).await.unwrap();
        } else {
            kv.put(put(member.key("/app/b"), value)).await.unwrap();
        }
    }
    let mut last = -1;
    while view.elements.get("b") != Some(&Some(b"999".to_vec())) {
        let closed = view.take(follower.try_next().await.unwrap().unwrap());
        if closed && let Some(twin) = view.elements.get("twin") {
            assert_eq!(view.elements.get("a"), Some(twin), "half a transaction was told");
            let number: i32 = String::from_utf8(twin.clone().unwrap()).unwrap().parse().unwrap();
            assert!(number >= last, "{number} came after {last}");
            last = number;
        }
    }
    assert_eq!(view.elements["a"], Some(b"998".to_vec()));
}

async fn w26_a_removal_has_no_data(member: Member<'_>) {
    member.fixture().await;
    let mut follower = member.follow("/app").await;
    follower.group().await;
    member.del("/app/a").await;
    let group = follower.group().await;
    assert_eq!((show(&group), &group[0].type_), (vec!["C(a,X,m)".to_owned()], &None));
}

async fn w27_to_w29_directories_come_with_what_is_in_them(member: Member<'_>) {
    member.fixture().await;
    let (mut children, mut tree) = (member.follow("/app").await, member.follow(TREE).await);
    children.group().await;
    tree.group().await;
    member.put("/app/new/deep", "1").await;
    tree.expect(&["C(new,E,Empty,+)", "C(new/deep,E,1,m)"]).await;
    children.expect(&["C(new,E,Empty,m)"]).await;
    member.put("/app/new/deep2", "2").await;
    tree.expect(&["C(new/deep2,E,2,m)"]).await;
    children.silent().await;
    member.put("/app/new/deep", "3").await;
    tree.expect(&["C(new/deep,E,3,m)"]).await;
    children.silent().await;
}

async fn w30_to_w32_a_subtree_goes_as_one(member: Member<'_>) {
    member.fixture().await;
    member.put("/app/d/w/y", "4").await;
    let mut tree = member.follow(TREE).await;
    let before = tree.group().await.last().unwrap().marker.clone();
    member.txn(vec![member.del_tree_op("/app/d")]).await;
    tree.expect(&["C(d,X,m)"]).await;
    member.follow_from(TREE, &before).await.expect(&["C(d,X,m)"]).await;
    member.put("/app/d/y", "5").await;
    tree.expect(&["C(d,E,Empty,+)", "C(d/y,E,5,m)"]).await;
    let mut view = View::default();
    let mut again = member.follow(TREE).await;
    while !view.take(again.try_next().await.unwrap().unwrap()) {}
    assert_eq!(view.elements.keys().collect::<Vec<_>>(), ["", "a", "b", "d", "d/y"]);
}

async fn w33_a_directory_goes_with_the_last(member: Member<'_>) {
    member.fixture().await;
    let (mut children, mut tree) = (member.follow("/app").await, member.follow(TREE).await);
    children.group().await;
    tree.group().await;
    member.put("/app/d/y", "4").await;
    tree.expect(&["C(d/y,E,4,m)"]).await;
    member.del("/app/d/y").await;
    tree.expect(&["C(d/y,X,m)"]).await;
    member.del("/app/d/x").await;
    tree.expect(&["C(d,X,m)"]).await;
    children.expect(&["C(d,X,m)"]).await;
}

async fn w34_w35_the_entity_itself_comes_and_goes(member: Member<'_>) {
    member.fixture().await;
    let mut tree = member.follow(TREE).await;
    tree.group().await;
    member.del("/app").await;
    tree.expect(&["C(,E,Empty,m)"]).await;
    member.put("/app", "d1").await;
    tree.expect(&["C(,E,d1,m)"]).await;
    member.txn(vec![member.del_tree_op("/app")]).await;
    tree.expect(&["C(,X,m)"]).await;
    tree.silent().await;
    member.put("/app/a", "6").await;
    tree.expect(&["C(,E,Empty,+)", "C(a,E,6,m)"]).await;
}

async fn w40_w42_names_are_decoded_once(member: Member<'_>) {
    for (path, key) in
        [("/a%20b", "/a b"), ("/a+b", "/a+b"), ("/%E2%82%AC", "/€"), ("/a%2520b", "/a%20b"), ("/~~x", "/~x")]
    {
        member.put(key, key).await;
        member.follow(path).await.expect(&[&format!("C(,E,{key},m)")]).await;
    }
    let mut all = member.follow("?x=y").await;
    let names: Vec<_> = all.group().await.into_iter().map(|seen| seen.element).collect();
    assert_eq!(names, ["", "a b", "a%20b", "a+b", "~~x", "€"]);
}

async fn w48_w49_nothing_is_late_or_lost(member: Member<'_>) {
    for number in 0..30 {
        // Each write is acknowledged by another member than the one before.
        let members = member.cluster.running().collect::<Vec<_>>();
        let writer = Member { index: members[number % members.len()], ..member };
        writer.put("/here", &number.to_string()).await;
        let mut here = member.follow("/here").await;
        here.expect(&[&format!("C(,E,{number},m)")]).await;
        // The first message marks the point from which on nothing is missed.
        let mut from_now = member.follow_from("/here", b"now").await;
        from_now.expect(&["C(,S,m)"]).await;
        writer.put("/here", "next").await;
        here.expect(&["C(,E,next,m)"]).await;
        from_now.expect(&["C(,E,next,m)"]).await;
    }
}

async fn neighbours_are_not_below(member: Member<'_>) {
    member.put("/app/a", "1").await;
    for neighbour in ["/app-1/a", "/app!", "/app.b/c", "/ap", "/app0"] {
        member.put(neighbour, "x").await;
    }
    let mut tree = member.follow(TREE).await;
    tree.expect(&["C(,E,Empty,+)", "C(a,E,1,m)"]).await;
    member.put("/app-1/b", "x").await;
    member.txn(vec![member.del_op("/app!"), member.put_op("/app-2", "x")]).await;
    tree.silent().await;
    member.put("/app/a!b", "2").await;
    tree.expect(&["C(a!b,E,2,m)"]).await;
    member.put("/app/a/c", "3").await;
    tree.expect(&["C(a/c,E,3,m)"]).await;
    let mut children = member.follow("/app").await;
    children.expect(&["C(,E,Empty,+)", "C(a,E,1,+)", "C(a!b,E,2,m)"]).await;
}

async fn keys_with_a_leading_slash_have_names(member: Member<'_>) {
    let top = format!("{}-{:?}", member.case, member.via);
    let kv = member.cluster.kv(member.index);
    for (key, value) in [(format!("/{top}/a"), "1"), (format!("{top}/a"), "2"), (format!("{top}//b/"), "3")] {
        kv.clone().put(put(key, value)).await.unwrap();
    }
    let url = member.cluster.client_url(member.index);
    let follow = async |target: String| Follower::open(&url, member.via, &target, b"").await.unwrap();
    follow(format!("/kv/~/{top}")).await.expect(&["C(,E,Empty,+)", "C(a,E,1,m)"]).await;
    let whole = ["C(,E,Empty,+)", "C(a,E,2,+)", "C(~,E,Empty,+)", "C(~/b,E,Empty,+)", "C(~/b/~,E,3,m)"];
    follow(format!("/kv/{top}?recursive=true")).await.expect(&whole).await;
    let mut bytes = b"\xff\xfe".to_vec();
    bytes.splice(0..0, format!("{top}/bin/").into_bytes());
    let request = etcd::PutRequest { key: bytes.into(), value: "4".into(), ..Default::default() };
    kv.clone().put(request).await.unwrap();
    follow(format!("/kv/{top}/bin")).await.expect(&["C(,E,Empty,+)", "C(~xfffe,E,4,m)"]).await;
}

async fn the_state_is_shared_and_never_old(member: Member<'_>) {
    member.fixture().await;
    member.follow(TREE).await.expect(&WHOLE).await;
    // The state made for the stream above is kept for a while and reused, with later changes merged
    // into it.
    member.put("/app/a", "7").await;
    member.txn(vec![member.del_tree_op("/app/d")]).await;
    member.put("/app/aa/y", "8").await;
    let wanted = ["C(,E,d0,+)", "C(a,E,7,+)", "C(aa,E,Empty,+)", "C(aa/y,E,8,+)", "C(b,E,2,m)"];
    member.follow(TREE).await.expect(&wanted).await;
    member.txn(vec![member.del_tree_op("/app")]).await;
    member.follow(TREE).await.expect(&["C(,X,m)"]).await;
    member.fixture().await;
    let group: Vec<Seen> = member.follow(TREE).await.group().await;
    assert_eq!(show(&group), WHOLE);
}
