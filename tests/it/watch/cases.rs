//! Watches, on every kind of member (spec: etcd §2). Every case has keys of its own.

use headwater::pb::etcdserverpb as pb;
use headwater::pb::etcdserverpb::watch_create_request::FilterType;

use super::client::{Stream, everything, key, prefix, show};
use super::early;
use crate::cluster::{Cluster, get, put};

/// The member of a cluster that a case uses.
pub struct Member<'a> {
    pub cluster: &'a Cluster,
    pub index: usize,
}

impl Member<'_> {
    pub async fn stream(&self) -> Stream {
        Stream::open(&self.cluster.client_url(self.index)).await.unwrap()
    }

    /// Puts a key, waits until this member has applied the put, and returns its revision.
    pub async fn put(&self, key: &str, value: &str) -> i64 {
        let answer = self.cluster.kv(self.index).put(put(key, value)).await.unwrap().into_inner();
        self.settled(answer.header).await
    }

    pub async fn delete(&self, key: &str) -> i64 {
        let request = pb::DeleteRangeRequest { key: key.to_owned().into(), ..Default::default() };
        let answer = self.cluster.kv(self.index).delete_range(request).await.unwrap().into_inner();
        self.settled(answer.header).await
    }

    pub async fn txn(&self, ops: Vec<pb::request_op::Request>) -> i64 {
        let success = ops.into_iter().map(|op| pb::RequestOp { request: Some(op) }).collect();
        let request = pb::TxnRequest { success, ..Default::default() };
        let answer = self.cluster.kv(self.index).txn(request).await.unwrap().into_inner();
        self.settled(answer.header).await
    }

    /// Compacts history at `revision`, and waits until its space is reclaimed.
    pub async fn compact(&self, revision: i64) {
        let request = pb::CompactionRequest { revision, physical: true };
        self.cluster.kv(self.index).compact(request).await.unwrap();
        self.settled(None).await;
    }

    /// Waits until this member has applied all acknowledged writes: a write that it forwarded may
    /// be ahead of its state. Returns the revision in `header`, 0 without one.
    async fn settled(&self, header: Option<pb::ResponseHeader>) -> i64 {
        self.cluster.kv(self.index).range(get("any")).await.unwrap();
        header.map_or(0, |header| header.revision)
    }
}

pub fn put_op(key: &str, value: &str) -> pb::request_op::Request {
    pb::request_op::Request::RequestPut(put(key, value))
}

/// Runs all cases. Cases that compact history come last, because that affects all keys.
pub async fn run_all(member: &Member<'_>) {
    live_events_come_as_they_happen(member).await;
    the_past_comes_first(member).await;
    the_future_is_waited_for(member).await;
    a_revision_is_never_split(member).await;
    pairs_before_are_exact(member).await;
    filters_drop_events(member).await;
    many_watchers_share_a_stream(member).await;
    watchers_with_unread_revisions_miss_nothing(member).await;
    ids_are_per_stream(member).await;
    what_cannot_be_watched_is_refused(member).await;
    a_cancelled_watcher_is_silent(member).await;
    progress_comes_after_events(member).await;
    idle_watchers_hear_of_progress(member).await;
    large_responses_are_split_on_request(member).await;
    a_response_may_be_resumed(member).await;
    compaction_bounds_the_past(member).await;
    early::keys_and_prefixes_from_the_past_and_live(member).await;
}

async fn live_events_come_as_they_happen(member: &Member<'_>) {
    let mut stream = member.stream().await;
    let before = member.put("live/0", "old").await;
    let created = stream.create(key("live/a")).await;
    assert_eq!((created.watch_id, created.canceled), (0, false));
    assert!(created.header.unwrap().revision >= before);
    let first = member.put("live/a", "1").await;
    let response = stream.next().await;
    assert_eq!(show(&response.events), [format!("+live/a=1@{first}")]);
    let header = response.header.unwrap();
    assert_eq!((response.watch_id, header.revision), (0, first));
    assert!(header.member_id == member.index as u64 + 1 && header.cluster_id != 0 && header.raft_term > 0);
    let kv = response.events[0].kv.as_ref().unwrap();
    assert_eq!((kv.create_revision, kv.version, kv.lease), (first, 1, 0));
    member.put("live/b", "not this one").await;
    let second = member.put("live/a", "2").await;
    let third = member.delete("live/a").await;
    assert_eq!(show(&stream.events(2).await), [format!("+live/a=2@{second}"), format!("-live/a@{third}")]);
}

async fn the_past_comes_first(member: &Member<'_>) {
    let mut wanted = Vec::new();
    let mut start = 0;
    for round in 0..50 {
        let revision = member.put("past/a", &round.to_string()).await;
        start = if start == 0 { revision } else { start };
        wanted.push(format!("+past/a={round}@{revision}"));
        member.put("past-not", "x").await;
    }
    let mut stream = member.stream().await;
    stream.create(pb::WatchCreateRequest { start_revision: start, ..prefix("past/") }).await;
    let live = member.put("past/a", "live").await;
    wanted.push(format!("+past/a=live@{live}"));
    assert_eq!(show(&stream.events(51).await), wanted);
    let mut stream = member.stream().await;
    stream.create(pb::WatchCreateRequest { start_revision: live, ..prefix("past/") }).await;
    assert_eq!(show(&stream.events(1).await), wanted[50..], "the current revision belongs to the past");
}

async fn the_future_is_waited_for(member: &Member<'_>) {
    let now = member.put("future/a", "0").await;
    let mut stream = member.stream().await;
    stream.create(pb::WatchCreateRequest { start_revision: now + 4, ..prefix("future/") }).await;
    for round in 1..=6 {
        assert_eq!(member.put("future/a", &round.to_string()).await, now + round, "nobody else writes");
    }
    let wanted: Vec<_> = (4..=6).map(|round| format!("+future/a={round}@{}", now + round)).collect();
    assert_eq!(show(&stream.events(3).await), wanted);
}

async fn a_revision_is_never_split(member: &Member<'_>) {
    let mut live = member.stream().await;
    live.create(prefix("atomic/")).await;
    let ops =
        || vec![put_op("atomic/c", "1"), put_op("atomic/a", "2"), put_op("other/x", "3"), put_op("atomic/b", "4")];
    let first = member.txn(ops()).await;
    let second = member.txn(ops()).await;
    let wanted = |revision| ["c=1", "a=2", "b=4"].map(|pair| format!("+atomic/{pair}@{revision}"));
    let mut past = member.stream().await;
    past.create(pb::WatchCreateRequest { start_revision: first, ..prefix("atomic/") }).await;
    for stream in [&mut live, &mut past] {
        let mut found = Vec::new();
        while found.len() < 6 {
            let events = show(&stream.next().await.events);
            assert_eq!(events.len() % 3, 0, "a revision in pieces: {events:?}");
            found.extend(events);
        }
        assert_eq!(found, [wanted(first), wanted(second)].concat());
    }
}

async fn pairs_before_are_exact(member: &Member<'_>) {
    let mut live = member.stream().await;
    live.create(pb::WatchCreateRequest { prev_kv: true, ..prefix("prev/") }).await;
    let mut plain = member.stream().await;
    plain.create(prefix("prev/")).await;
    let a = member.put("prev/a", "1").await;
    let b = member.put("prev/a", "2").await;
    let c = member.delete("prev/a").await;
    let d = member.put("prev/a", "3").await;
    let e = member.txn(vec![put_op("prev/a", "4"), put_op("prev/b", "5")]).await;
    let wanted = [
        format!("+prev/a=1@{a}"),
        format!("+prev/a=2@{b}<1"),
        format!("-prev/a@{c}<2"),
        format!("+prev/a=3@{d}"),
        format!("+prev/a=4@{e}<3"),
        format!("+prev/b=5@{e}"),
    ];
    let events = live.events(6).await;
    assert_eq!(show(&events), wanted);
    let prev = events[4].prev_kv.as_ref().unwrap();
    assert_eq!((prev.create_revision, prev.mod_revision, prev.version), (d, d, 1));
    let mut past = member.stream().await;
    past.create(pb::WatchCreateRequest { prev_kv: true, start_revision: a, ..prefix("prev/") }).await;
    assert_eq!(show(&past.events(6).await), wanted);
    let without: Vec<_> = wanted.iter().map(|event| event.split('<').next().unwrap().to_owned()).collect();
    assert_eq!(show(&plain.events(6).await), without);
}

async fn filters_drop_events(member: &Member<'_>) {
    let mut stream = member.stream().await;
    for filters in [vec![FilterType::Noput], vec![FilterType::Nodelete], vec![FilterType::Noput, FilterType::Nodelete]]
    {
        let filters = filters.into_iter().map(i32::from).collect();
        stream.create(pb::WatchCreateRequest { filters, ..key("filter") }).await;
    }
    let put = member.put("filter", "1").await;
    let delete = member.delete("filter").await;
    let (responses, progress) = stream.until_progress().await;
    let found: Vec<_> = responses.iter().map(|response| (response.watch_id, show(&response.events))).collect();
    assert!(progress >= delete);
    assert!(found.contains(&(0, vec![format!("-filter@{delete}")])), "{found:?}");
    assert!(found.contains(&(1, vec![format!("+filter=1@{put}")])), "{found:?}");
    assert_eq!(found.len(), 2, "an empty response is not sent: {found:?}");
}

async fn many_watchers_share_a_stream(member: &Member<'_>) {
    let mut stream = member.stream().await;
    for number in 0..100 {
        assert_eq!(stream.create(key(format!("many/{number}"))).await.watch_id, number);
    }
    assert_eq!(stream.create(prefix("many/")).await.watch_id, 100);
    let mut wanted = Vec::new();
    for number in 0..100 {
        let revision = member.put(&format!("many/{number}"), "x").await;
        wanted.push((number, revision));
        wanted.push((100, revision));
    }
    let (responses, _) = stream.until_progress().await;
    let mut found: Vec<_> = responses
        .iter()
        .flat_map(|response| {
            response.events.iter().map(|event| (response.watch_id, event.kv.as_ref().unwrap().mod_revision))
        })
        .collect();
    let order: Vec<_> = found.iter().filter(|(id, _)| *id == 100).map(|(_, revision)| *revision).collect();
    assert!(order.is_sorted(), "{order:?}");
    found.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(found, wanted);
}

/// Watchers of one key with many unread revisions take encoded runs of them. Those that ask for
/// pairs before, filters or fragments read each revision by itself.
async fn watchers_with_unread_revisions_miss_nothing(member: &Member<'_>) {
    const WRITERS: usize = 64;
    const ROUNDS: usize = 6;
    let (mut alone, mut together) = (member.stream().await, member.stream().await);
    let mut later = member.stream().await;
    alone.create(pb::WatchCreateRequest { prev_kv: true, ..key("crowd") }).await;
    for _ in 0..8 {
        together.create(key("crowd")).await;
    }
    let mut filtered = Vec::new();
    for (sign, filter) in [('-', FilterType::Noput), ('+', FilterType::Nodelete)] {
        let mut stream = member.stream().await;
        for _ in 0..3 {
            stream.create(pb::WatchCreateRequest { filters: vec![filter as i32], ..key("crowd") }).await;
        }
        filtered.push((sign, stream));
    }
    let mut fragmented = member.stream().await;
    fragmented.create(pb::WatchCreateRequest { fragment: true, ..key("crowd") }).await;
    for round in 0..ROUNDS {
        if round == ROUNDS / 2 {
            later.create(key("crowd")).await;
        }
        let writes = (0..WRITERS).map(|writer| {
            let mut kv = member.cluster.kv(member.index);
            async move {
                let value = format!("{round}/{writer}");
                if writer % 8 == 7 {
                    let request = pb::DeleteRangeRequest { key: "crowd".into(), ..Default::default() };
                    return kv.delete_range(request).await.map(drop);
                }
                kv.put(put("crowd", &value)).await.map(drop)
            }
        });
        for written in futures::future::join_all(writes).await {
            written.unwrap();
        }
    }
    member.put("crowd", "last").await;
    let wanted = until_last(&mut alone).await;
    let puts = wanted.iter().filter(|event| event.starts_with('+')).count();
    assert_eq!(puts, ROUNDS * WRITERS * 7 / 8 + 1);
    let mut found = vec![Vec::new(); 8];
    while found.iter().any(|events| events.len() < wanted.len()) {
        let response = together.next().await;
        let (events, last) = (show(&response.events), response.events.last().unwrap().kv.as_ref().unwrap());
        let revision = response.header.unwrap().revision;
        // A watcher that catches up from history tells the revision of the store instead.
        let may_lag = member.cluster.settings.feed.window_items_max < WRITERS * ROUNDS;
        assert!(revision == last.mod_revision || may_lag && revision > last.mod_revision, "{revision}: {last:?}");
        found[response.watch_id as usize].extend(events);
    }
    assert!(found.iter().all(|events| *events == wanted));
    let later = until_last(&mut later).await;
    assert!(later.len() > WRITERS && wanted.ends_with(&later));
    assert_eq!(until_last(&mut fragmented).await, wanted);
    for (sign, mut stream) in filtered {
        let wanted: Vec<&String> = wanted.iter().filter(|event| event.starts_with(sign)).collect();
        let mut found = vec![Vec::new(); 3];
        while found.iter().any(|events| events.len() < wanted.len()) {
            let response = stream.next().await;
            found[response.watch_id as usize].extend(show(&response.events));
        }
        assert!(found.iter().all(|events| events.iter().eq(wanted.iter().copied())), "{sign}");
    }
}

/// The events of the only watcher of a stream, without the pairs before, up to the put of `last`.
async fn until_last(stream: &mut Stream) -> Vec<String> {
    let mut events: Vec<String> = Vec::new();
    while events.last().is_none_or(|event| !event.starts_with("+crowd=last@")) {
        let read = show(&stream.next().await.events);
        events.extend(read.iter().map(|event| event.split('<').next().unwrap().to_owned()));
    }
    events
}

async fn ids_are_per_stream(member: &Member<'_>) {
    let mut stream = member.stream().await;
    let with_id = |watch_id| pb::WatchCreateRequest { watch_id, ..key("ids") };
    assert_eq!(stream.create(with_id(1)).await.watch_id, 1);
    assert_eq!(stream.create(with_id(0)).await.watch_id, 0);
    assert_eq!(stream.create(with_id(0)).await.watch_id, 2, "1 is taken");
    let refused = stream.create(with_id(2)).await;
    assert_eq!((refused.watch_id, refused.canceled), (-1, true));
    assert_eq!(refused.cancel_reason, "mvcc: duplicate watch ID provided on the WatchStream");
    assert!(refused.header.unwrap().revision > 0);
    let mut other = member.stream().await;
    assert_eq!(other.create(with_id(2)).await.watch_id, 2);
    let revision = member.put("ids", "x").await;
    let mut ids: Vec<_> = stream.until_progress().await.0.iter().map(|response| response.watch_id).collect();
    ids.sort_unstable();
    assert_eq!(ids, [0, 1, 2]);
    assert_eq!(show(&other.events(1).await), [format!("+ids=x@{revision}")]);
}

async fn what_cannot_be_watched_is_refused(member: &Member<'_>) {
    let mut stream = member.stream().await;
    let span = |key: &'static str, end: &'static str| pb::WatchCreateRequest {
        key: key.into(),
        range_end: end.into(),
        ..Default::default()
    };
    for (request, words) in [
        (span("b", "a"), "mvcc: watcher range is empty"),
        (span("a", "a"), "mvcc: watcher range is empty"),
        (
            pb::WatchCreateRequest { start_revision: -1, ..key("a") },
            "etcdserver: mvcc: required revision has been compacted",
        ),
    ] {
        let refused = stream.create(request).await;
        assert_eq!((refused.watch_id, refused.canceled, refused.cancel_reason.as_str()), (-1, true, words));
        assert_eq!(refused.compact_revision, 0);
    }
    stream.create(key("refused")).await;
    let revision = member.put("refused", "not").await;
    assert_eq!(show(&stream.events(1).await), [format!("+refused=not@{revision}")], "the stream stays open");
}

async fn a_cancelled_watcher_is_silent(member: &Member<'_>) {
    let mut stream = member.stream().await;
    stream.create(key("cancel")).await;
    stream.create(key("cancel")).await;
    member.put("cancel", "1").await;
    stream.events(2).await;
    stream.cancel(77).await;
    stream.cancel(0).await;
    let cancelled = stream.next().await;
    assert!(cancelled.canceled && cancelled.watch_id == 0 && cancelled.cancel_reason.is_empty(), "{cancelled:?}");
    assert!(cancelled.header.unwrap().revision > 0 && cancelled.compact_revision == 0);
    member.put("cancel", "2").await;
    let (responses, _) = stream.until_progress().await;
    assert_eq!(responses.iter().map(|response| response.watch_id).collect::<Vec<_>>(), [1]);
    assert_eq!(stream.create(key("cancel")).await.watch_id, 2, "an id is not given twice");
}

async fn progress_comes_after_events(member: &Member<'_>) {
    let mut stream = member.stream().await;
    stream.create(prefix("progress/")).await;
    stream.create(key("progress-not")).await;
    for round in 0..20 {
        let written = member.put("progress/a", &round.to_string()).await;
        // This member may not have applied the write yet, if another member leads. Progress must
        // not be ahead of the events.
        let (responses, revision) = stream.until_progress().await;
        let last = responses.iter().flat_map(|response| &response.events).filter_map(|event| event.kv.as_ref()).last();
        let seen = last.map_or(0, |kv| kv.mod_revision);
        assert!(revision < written || seen == written, "told {revision}, saw {seen} of {written}");
        if seen != written {
            stream.events(1).await;
        }
    }
    // Several requests in a row are answered one by one.
    for _ in 0..3 {
        stream.ask_progress().await;
    }
    let mut previous = 0;
    for _ in 0..3 {
        let response = stream.next().await;
        assert_eq!((response.watch_id, response.events.len(), response.created), (-1, 0, false));
        let revision = response.header.unwrap().revision;
        assert!(revision >= previous, "{revision} after {previous}");
        previous = revision;
    }
}

async fn idle_watchers_hear_of_progress(member: &Member<'_>) {
    let mut stream = member.stream().await;
    stream.create(pb::WatchCreateRequest { progress_notify: true, ..key("idle") }).await;
    stream.create(key("idle")).await;
    let future = pb::WatchCreateRequest { progress_notify: true, start_revision: 1 << 40, ..key("idle") };
    stream.create(future).await;
    let elsewhere = member.put("elsewhere", "x").await;
    loop {
        let response = stream.next().await;
        assert!(response.events.is_empty() && response.watch_id == 0, "{response:?}");
        if response.header.unwrap().revision >= elsewhere {
            break;
        }
    }
}

async fn large_responses_are_split_on_request(member: &Member<'_>) {
    let large = |byte: &str| vec![put_op("large/a", &byte.repeat(700_000)), put_op("large/b", &byte.repeat(700_000))];
    member.txn(large("x")).await;
    let mut stream = member.stream().await;
    let request = pb::WatchCreateRequest { prev_kv: true, ..prefix("large/") };
    stream.create(pb::WatchCreateRequest { fragment: true, ..request.clone() }).await;
    let mut whole = member.stream().await;
    whole.create(request).await;
    let revision = member.txn(large("y")).await;
    for (wanted_fragment, key) in [(true, "large/a"), (false, "large/b")] {
        let fragment = stream.next().await;
        assert_eq!((fragment.fragment, fragment.events.len(), fragment.watch_id), (wanted_fragment, 1, 0));
        assert_eq!(fragment.events[0].kv.as_ref().unwrap().key, key);
        assert_eq!(fragment.header.unwrap().revision, revision);
    }
    let whole = whole.next().await;
    assert_eq!((whole.fragment, whole.events.len()), (false, 2));
}

async fn a_response_may_be_resumed(member: &Member<'_>) {
    let mut wanted = Vec::new();
    let mut found = Vec::new();
    let mut next = member.put("resume/a", "start").await + 1;
    for round in 0..10 {
        let mut stream = member.stream().await;
        stream.create(pb::WatchCreateRequest { start_revision: next, ..prefix("resume/") }).await;
        for step in 0..3 {
            let revision = member.put("resume/a", &format!("{round}-{step}")).await;
            wanted.push(format!("+resume/a={round}-{step}@{revision}"));
        }
        // Leaves after some of the events.
        let response = stream.next().await;
        next = response.events.last().unwrap().kv.as_ref().unwrap().mod_revision + 1;
        found.extend(show(&response.events));
    }
    let mut stream = member.stream().await;
    stream.create(pb::WatchCreateRequest { start_revision: next, ..prefix("resume/") }).await;
    let rest = wanted.len() - found.len();
    found.extend(show(&stream.events(rest).await));
    assert_eq!(found, wanted);
}

async fn compaction_bounds_the_past(member: &Member<'_>) {
    let mut synced = member.stream().await;
    synced.create(prefix("compact/")).await;
    let first = member.put("compact/a", "1").await;
    member.put("compact/a", "2").await;
    let tombstone = member.delete("compact/a").await;
    let last = member.put("compact/a", "3").await;
    synced.events(4).await;
    member.compact(tombstone).await;

    let mut stream = member.stream().await;
    for below in [1, first, tombstone - 1] {
        let created = stream.create(pb::WatchCreateRequest { start_revision: below, ..prefix("compact/") }).await;
        assert!(!created.canceled, "{created:?}");
        let gone = stream.next().await;
        assert!(gone.canceled && gone.watch_id == created.watch_id && gone.events.is_empty(), "{gone:?}");
        assert_eq!((gone.compact_revision, gone.cancel_reason.as_str()), (tombstone, ""));
        assert_eq!(gone.header.unwrap().revision, 0);
    }
    stream.create(pb::WatchCreateRequest { start_revision: tombstone, prev_kv: true, ..prefix("compact/") }).await;
    let exactly = show(&stream.events(2).await);
    assert!(exactly[0].starts_with(&format!("-compact/a@{tombstone}")), "the tombstone at the point: {exactly:?}");
    assert_eq!(exactly[1], format!("+compact/a=3@{last}"));
    assert!(!exactly[0].contains('<'), "its predecessor is below the point: {exactly:?}");
    let mut all = member.stream().await;
    all.create(pb::WatchCreateRequest { start_revision: last, ..everything() }).await;
    all.events(1).await;
    let after = member.put("compact/a", "4").await;
    assert_eq!(show(&synced.events(1).await), [format!("+compact/a=4@{after}")], "who is synced is not cancelled");
}
