//! Events that a commit hands to the publisher (spec: etcd §1.1): one group per command that
//! changed something, in order.

use super::bed::*;
use headwater_types::{ChangeKind, Command, CommandEvents};

fn show_events(events: &[CommandEvents]) -> Vec<String> {
    let mut out = Vec::new();
    for commit in events {
        for event in commit.kv.iter() {
            let kind = match event.kind {
                ChangeKind::Put => "put",
                ChangeKind::Delete => "delete",
                ChangeKind::Expire => "expire",
            };
            let revision = commit.revision.map_or(0, headwater_types::Revision::get);
            out.push(format!("{}/{revision} {kind} {}", commit.index, show(&event.kv)));
        }
    }
    out
}

#[test]
fn events_are_in_order_of_log_index_and_sub_revision() {
    let mut bed = TestBed::with([put("c", "0")]);
    let commands = [
        put("a", "1"),
        del("x", ""),
        Command::Txn(txn(vec![], vec![op_put("z", "2"), op_del("a", "d"), op_put("e", "3"), op_get("e", "")], vec![])),
        compact(2),
        Command::Txn(txn(vec![exists("nope")], vec![op_put("f", "4")], vec![])),
        put("a", "5"),
    ];
    let (_, committed) = bed.apply_all(commands, false);
    assert_eq!(
        show_events(&committed.events),
        [
            "2/3 put a=1@3/3/1",
            "4/4 put z=2@4/4/1",
            "4/4 delete a=@0/4/0",
            "4/4 delete c=@0/4/0",
            "4/4 put e=3@4/4/1",
            "7/5 put a=5@5/5/1",
        ]
    );
    assert_eq!(committed.head.applied_index().get(), 7);
}

#[test]
fn history_says_the_same_as_the_events() {
    let mut bed = TestBed::new();
    let mut live = Vec::new();
    let commands = [
        put("a", "1"),
        Command::Txn(txn(vec![], vec![op_put("b", ""), op_put("c", "3")], vec![])),
        del("q", ""),
        del("a", "c"),
    ];
    for command in commands {
        live.extend(bed.apply_all([command], false).1.events);
    }
    let db = bed.store.current();
    let view = db.view().unwrap();
    for from in 0..6 {
        let mut replayed = Vec::new();
        view.history(headwater_types::LogIndex(from), |command| {
            let kv =
                command.records.into_iter().map(|record| headwater_types::KvEvent { kind: record.kind, kv: record.kv });
            assert_eq!(command.head.unix_ms, 1_000_000 + command.index.get());
            let (index, revision) = (command.index, command.head.revision);
            replayed.push(CommandEvents {
                index,
                revision,
                kv: kv.collect(),
                resources: [].into(),
                catalog: [].into(),
                cluster: [].into(),
            });
            true
        })
        .unwrap();
        let want: Vec<_> = live.iter().filter(|commit| commit.index.get() >= from).cloned().collect();
        assert_eq!(show_events(&replayed), show_events(&want), "from {from}");
    }
}
