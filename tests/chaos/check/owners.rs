//! Owned resources: acknowledged ones exist, deleted ones do not, no live owner has lost a child,
//! and no dead owner keeps one (spec: consul §5.10). Versions are log indexes, so they follow real
//! time.

use std::collections::{BTreeMap, BTreeSet};

use super::{Finding, Findings};
use crate::resource::{ResourceIdentity, ResourceOutcome, ResourceRecord, ResourceRequest, StoredResource};

/// The facts about the resource of one name that follow from the answers to its client.
#[derive(Debug, Default)]
struct Known<'a> {
    /// Every value that a request has tried to write.
    values: BTreeSet<&'a str>,
    /// The last acknowledged write or deletion.
    last: Option<&'a ResourceRecord>,
    /// Whether the outcome of any request is unknown. Then the resource's presence is not judged.
    is_uncertain: bool,
}

/// Judges the workload `resource`. `members` has the number of each member, and its resources at
/// the end, after the reaper's last round. They must be equal on all members.
pub(crate) fn check(deeds: &[ResourceRecord], members: &[(usize, Vec<StoredResource>)]) -> Findings {
    let mut findings = Findings::new("owners");
    let mut known: BTreeMap<&str, Known<'_>> = BTreeMap::new();
    for deed in deeds {
        let known = known.entry(deed.act.name()).or_default();
        if let ResourceRequest::Write { value, .. } = &deed.act {
            known.values.insert(value);
        }
        match deed.became {
            ResourceOutcome::Written { .. } | ResourceOutcome::Deleted => known.last = Some(deed),
            ResourceOutcome::Unknown(_) => known.is_uncertain = true,
            ResourceOutcome::Failed(_) => {}
        }
    }
    for (member, found) in members {
        check_member(*member, found, &known, &mut findings);
    }
    for pair in members.windows(2) {
        if pair[0].1 != pair[1].1 {
            let (one, other) = (pair[0].0 + 1, pair[1].0 + 1);
            findings.add(Finding::new("members have different resources", format!("{one} and {other}")));
        }
    }
    check_versions(deeds, &mut findings);
    let left = members.first().map_or(0, |(_, found)| found.len());
    findings
        .scope(format!("{} requests, {} names, {left} resources at the end", deeds.len(), known.len()))
        .nothing_if(deeds.is_empty())
}

/// Judges the resources that one member has at the end.
fn check_member(member: usize, found: &[StoredResource], known: &BTreeMap<&str, Known<'_>>, findings: &mut Findings) {
    let lives: BTreeSet<&ResourceIdentity> = found.iter().map(|found| &found.life).collect();
    let by_name: BTreeMap<&str, &StoredResource> =
        found.iter().map(|found| (found.life.name.as_str(), found)).collect();
    let mut add = |what: &str, detail: String| {
        findings.add(Finding::new(what, format!("member {}: {detail}", member + 1)));
    };
    for there in found {
        if let Some(owner) = &there.owner
            && !lives.contains(owner)
        {
            add("a dead owner keeps a child", format!("{there:?}"));
        }
        if known.get(there.life.name.as_str()).is_none_or(|known| !known.values.contains(there.value.as_str())) {
            add("a resource was invented", format!("{there:?}"));
        }
    }
    for (name, known) in known {
        let Some(last) = known.last.filter(|_| !known.is_uncertain) else { continue };
        let there = by_name.get(name);
        match (&last.act, &last.became) {
            (ResourceRequest::Write { owner, value, .. }, ResourceOutcome::Written { uid, version }) => {
                let lives_on = owner.as_ref().is_none_or(|owner| lives.contains(owner));
                match there {
                    None if lives_on => {
                        let what = if owner.is_some() {
                            "a live owner has lost a child"
                        } else {
                            "an acknowledged resource is lost"
                        };
                        add(what, format!("{last:?}"));
                    }
                    None => {}
                    Some(there) if there.value != *value || there.life.uid != *uid || there.version != *version => {
                        add("a resource is not what was acknowledged last", format!("{there:?}, but {last:?}"));
                    }
                    Some(_) => {}
                }
            }
            _ => {
                if let Some(there) = there {
                    add("a deleted resource is there", format!("{there:?}, but {last:?}"));
                }
            }
        }
    }
}

/// Checks that a write that began after another one was acknowledged has a higher version.
fn check_versions(deeds: &[ResourceRecord], findings: &mut Findings) {
    let written = |deed: &ResourceRecord| match deed.became {
        ResourceOutcome::Written { version, .. } => Some((deed.call, deed.done, version)),
        ResourceOutcome::Deleted | ResourceOutcome::Failed(_) | ResourceOutcome::Unknown(_) => None,
    };
    let mut begun: Vec<_> = deeds.iter().filter_map(written).collect();
    let mut ended = begun.clone();
    begun.sort_by_key(|(call, ..)| *call);
    ended.sort_by_key(|(_, done, _)| *done);
    let mut ended = ended.into_iter().peekable();
    let mut highest = 0;
    for (call, _, version) in begun {
        while let Some((.., before)) = ended.next_if(|(_, done, _)| *done < call) {
            highest = highest.max(before);
        }
        if version <= highest {
            let detail = format!("{version}, but {highest} had been acknowledged before it was asked for");
            findings.add(Finding::new("versions do not follow real time", detail));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(name: &str, uid: &str) -> ResourceIdentity {
        ResourceIdentity { name: name.into(), uid: uid.into() }
    }

    fn write(at: u64, life: &ResourceIdentity, owner: Option<&ResourceIdentity>, value: &str) -> ResourceRecord {
        let act = ResourceRequest::Write { name: life.name.clone(), owner: owner.cloned(), value: value.into() };
        let became = ResourceOutcome::Written { uid: life.uid.clone(), version: at };
        ResourceRecord { process: 1, node: 0, call: at * 10, done: at * 10 + 5, act, became }
    }

    fn delete(at: u64, life: &ResourceIdentity, became: ResourceOutcome) -> ResourceRecord {
        ResourceRecord {
            process: 1,
            node: 0,
            call: at * 10,
            done: at * 10 + 5,
            act: ResourceRequest::Delete(life.clone()),
            became,
        }
    }

    fn found(life: &ResourceIdentity, owner: Option<&ResourceIdentity>, value: &str, version: u64) -> StoredResource {
        StoredResource { life: life.clone(), owner: owner.cloned(), value: value.into(), version }
    }

    #[test]
    fn every_lie_is_found() {
        let (parent, child) = (life("p", "1"), life("c", "2"));
        let deeds = || vec![write(1, &parent, None, "a"), write(2, &child, Some(&parent), "b")];
        let deleted = |became: ResourceOutcome| [deeds(), vec![delete(3, &parent, became)]].concat();
        let (p, c) = (found(&parent, None, "a", 1), found(&child, Some(&parent), "b", 2));
        let unknown = || ResourceOutcome::Unknown("?".into());
        for (deeds, there, wanted) in [
            (deeds(), vec![p.clone(), c.clone()], None),
            (deeds(), vec![p.clone()], Some("a live owner has lost a child")),
            (deeds(), vec![], Some("an acknowledged resource is lost")),
            (deleted(ResourceOutcome::Deleted), vec![], None),
            (deleted(ResourceOutcome::Deleted), vec![c.clone()], Some("a dead owner keeps a child")),
            (deleted(ResourceOutcome::Deleted), vec![p.clone(), c.clone()], Some("a deleted resource is there")),
            (deleted(unknown()), vec![], None),
            (deleted(unknown()), vec![p.clone(), c.clone()], None),
            (deleted(ResourceOutcome::Failed("no".into())), vec![], Some("an acknowledged resource is lost")),
            (deeds(), vec![p.clone(), found(&child, Some(&parent), "z", 2)], Some("a resource was invented")),
            (
                deeds(),
                vec![p.clone(), c.clone(), found(&life("x", "3"), None, "a", 9)],
                Some("a resource was invented"),
            ),
            (
                [deeds(), vec![write(5, &parent, None, "n")]].concat(),
                vec![c.clone(), p.clone()],
                Some("a resource is not what was acknowledged last"),
            ),
            (
                vec![write(2, &parent, None, "a"), {
                    let mut late = write(1, &child, None, "b");
                    (late.call, late.done) = (100, 101);
                    late
                }],
                vec![found(&parent, None, "a", 2), found(&child, None, "b", 1)],
                Some("versions do not follow real time"),
            ),
        ] {
            let findings = check(&deeds, &[(0, there.clone())]);
            assert_eq!(findings.whats().first().copied(), wanted, "{deeds:?} {there:?}");
        }
        let findings = check(&deeds(), &[(0, vec![p.clone(), c.clone()]), (1, vec![p])]);
        assert!(findings.whats().contains(&"members have different resources"), "{findings:?}");
    }
}
