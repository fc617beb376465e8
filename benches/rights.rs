//! Cost of rights. They are compiled for the first request of a principal after a change; that
//! request waits for it. Later requests only ask them.
//!
//! The rights of a user are compiled in apply if no request has compiled them before. So 10,000
//! ranges must compile within 10 ms; read the figure, nothing here asserts it. The rights of a
//! token are never compiled in apply.

use std::hint::black_box;
use std::time::Duration;

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, criterion_group};
use headwater_types::rights::{Name, Rule};
use headwater_types::{Access, KeyRange, Rights, Space};

/// Number of policies of an ordinary token, and of ranges of an ordinary role.
const FEW: usize = 100;

/// Number of policies of the largest token of these benchmarks, and of ranges of the largest user.
/// A small number with `--test`, which only tries the benches.
fn many() -> usize {
    if std::env::args().any(|arg| arg == "--test") { 200 } else { 10_000 }
}

/// The numbers below `count`, out of order, as the ids of policies are.
fn scattered(count: usize) -> impl Iterator<Item = usize> {
    // A prime that divides no count of these benches.
    (0..count).map(move |number| number * 7_919 % count)
}

/// Prefix of the keys of the team `team`. Each policy and each grant here is for one team.
fn keys_of(team: usize) -> Bytes {
    Bytes::from(format!("consul/kv/team-{team:05}/"))
}

/// The rules of a policy with `key_prefix`, `service` and `node`: a service has a rule for its
/// intentions, too.
fn policy(team: usize) -> [Rule; 4] {
    let exact = |space: Space, kind: &str, access: Access| Rule {
        space,
        name: Name::Exact(Bytes::from(format!("{kind}-{team:05}"))),
        access,
    };
    let read = Access::READ | Access::LIST;
    [
        Rule { space: Space::Kv, name: Name::Prefix(keys_of(team)), access: Access::ALL },
        exact(Space::CatalogService, "service", Access::ALL),
        exact(Space::Intention, "service", read),
        exact(Space::CatalogNode, "node", read),
    ]
}

fn rules(policies: usize) -> Vec<Rule> {
    scattered(policies).flat_map(policy).collect()
}

/// One grant of all accesses to the keys of each of `ranges` teams.
fn grants(ranges: usize) -> Vec<(Space, KeyRange, Access)> {
    scattered(ranges).map(|team| (Space::Kv, KeyRange::prefix(keys_of(team)), Access::ALL)).collect()
}

fn of_rules(rules: &[Rule]) -> Rights {
    Rights::of_rules(rules.iter().cloned(), |_| Access::NONE)
}

fn union(grants: &[(Space, KeyRange, Access)]) -> Rights {
    Rights::union(grants.iter().cloned())
}

fn compile(c: &mut Criterion) {
    let mut group = c.benchmark_group("compile rights");
    for count in [FEW, many()] {
        let rules = rules(count);
        group.bench_function(BenchmarkId::new("of policies", count), |b| b.iter(|| of_rules(black_box(&rules))));
        let grants = grants(count);
        group.bench_function(BenchmarkId::new("of ranges", count), |b| b.iter(|| union(black_box(&grants))));
    }
    group.finish();
}

fn covers(c: &mut Criterion) {
    let mut group = c.benchmark_group("ask rights");
    for count in [FEW, many()] {
        let keys: Vec<KeyRange> =
            scattered(count).map(|team| KeyRange::One([&keys_of(team)[..], b"key"].concat().into())).collect();
        let intervals: Vec<KeyRange> = scattered(count).map(|team| KeyRange::prefix(keys_of(team))).collect();
        let others: Vec<KeyRange> = scattered(count).map(|team| KeyRange::One(keys_of(team).slice(1..))).collect();
        for (kind, rights) in [("policies", of_rules(&rules(count))), ("ranges", union(&grants(count)))] {
            for (what, asked, wanted) in
                [("a key", &keys, true), ("an interval", &intervals, true), ("a key without a right", &others, false)]
            {
                let mut next = asked.iter().cycle();
                group.bench_function(BenchmarkId::new(format!("of {kind}, {what}"), count), |b| {
                    b.iter(|| {
                        let range = next.next().expect("invariant: there is a policy");
                        let is_covered = rights.covers(Space::Kv, black_box(range), Access::WRITE);
                        assert_eq!(is_covered, wanted, "{range:?}");
                    });
                });
            }
        }
    }
    group.finish();
}

criterion_group! {
    name = all;
    config = Criterion::default().sample_size(20).measurement_time(Duration::from_secs(2)).warm_up_time(Duration::from_millis(500));
    targets = compile, covers
}
