//! Rights: the keys of each space that a principal may read, list and write.
//!
//! Owns the decisions about keys and intervals, such as [`Rights::covers`], and the two ways to
//! compile rights. [`Rights::union`] takes grants (etcd's roles). [`Rights::of_rules`] takes rules,
//! of which the most specific applies (Consul's policies). Both yield sorted, disjoint intervals.
//! Knows no user, token or request. Invariant: an interval is covered only if each of its keys is,
//! by one grant or by several together.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::{BitOr, BitOrAssign};

use bytes::Bytes;

use super::KeyRange;
use super::catalog::canonical;
use super::kv::prefix_end;

/// A set of the accesses read, list and write.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Access(u8);

impl Access {
    /// No access.
    pub const NONE: Self = Self(0);
    /// Reading the content of a key or a named object.
    pub const READ: Self = Self(1);
    /// Seeing that a key or a name exists.
    pub const LIST: Self = Self(2);
    /// Changing and removing a key or a named object.
    pub const WRITE: Self = Self(4);
    /// Every access.
    pub const ALL: Self = Self(7);

    /// Whether the set contains all accesses of `wanted`. Always true if `wanted` is
    /// [`NONE`](Self::NONE).
    pub const fn has(self, wanted: Self) -> bool {
        self.0 & wanted.0 == wanted.0
    }

    /// Whether the set is [`NONE`](Self::NONE).
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// The set as bits, as proposals encode it.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// The set with these [`bits`](Self::bits); `None` if a bit is unknown.
    pub const fn from_bits(bits: u8) -> Option<Self> {
        if bits <= Self::ALL.0 { Some(Self(bits)) } else { None }
    }
}

impl BitOr for Access {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Access {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names = Vec::new();
        for (access, name) in [(Self::READ, "read"), (Self::LIST, "list"), (Self::WRITE, "write")] {
            if self.has(access) {
                names.push(name);
            }
        }
        f.write_str(if names.is_empty() { "none".to_owned() } else { names.join("+") }.as_str())
    }
}

/// A space of keys that rights apply to. The numbers order the spaces, and are part of proposals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Space {
    /// Keys of the KV face; Consul's paths are those below `consul/kv/`.
    Kv = 1,
    /// Typed resources. The keys are those of [`resource_key`](super::resource::resource_key).
    Resource = 2,
    /// Nodes of the catalog. The key is the name.
    CatalogNode = 3,
    /// Services of the catalog. The key is the name.
    CatalogService = 4,
    /// Consul's intentions. The key is the name of the destination service.
    Intention = 5,
    /// Consul's sessions. The key is the name of their node.
    Session = 6,
    /// Consul's prepared queries. The key is the name.
    Query = 7,
    /// Consul's user events. The key is the name.
    Event = 8,
    /// Consul's agents. The key is the name of their node.
    Agent = 9,
    /// The cluster: members, versions, maintenance. This space and those after it have one key, the
    /// empty one.
    Cluster = 32,
    /// Consul's operator endpoints.
    Operator = 33,
    /// Users, roles, tokens and policies.
    Auth = 34,
    /// Consul's keyring.
    Keyring = 35,
    /// Consul's mesh configuration.
    Mesh = 36,
    /// Consul's peerings.
    Peering = 37,
}

impl Space {
    /// The number of the space, as proposals encode it.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The space with this number; `None` if no space has it.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|space| space.number() == number)
    }

    /// Every space, in the order of the numbers.
    pub const ALL: [Self; 15] = [
        Self::Kv,
        Self::Resource,
        Self::CatalogNode,
        Self::CatalogService,
        Self::Intention,
        Self::Session,
        Self::Query,
        Self::Event,
        Self::Agent,
        Self::Cluster,
        Self::Operator,
        Self::Auth,
        Self::Keyring,
        Self::Mesh,
        Self::Peering,
    ];

    /// The key of the object `name` in this space, for names in rules and in requests alike. Names
    /// of nodes and services become lower case, because they are compared without regard to case.
    /// The name of a resource is `GROUP/KIND/PARTITION/NAMESPACE/NAME`.
    pub fn key_of(self, name: &str) -> Bytes {
        match self {
            Self::CatalogNode | Self::CatalogService | Self::Intention | Self::Session | Self::Agent => {
                canonical(name).into()
            }
            // `GROUP/KIND/PARTITION/NAMESPACE/NAME`: the parts of a key of a resource. No part has
            // a slash.
            Self::Resource => name.replace('/', "\u{1}").into(),
            Self::Kv
            | Self::Query
            | Self::Event
            | Self::Cluster
            | Self::Operator
            | Self::Auth
            | Self::Keyring
            | Self::Mesh
            | Self::Peering => Bytes::copy_from_slice(name.as_bytes()),
        }
    }

    /// The only key, the empty one, of each space from [`Cluster`](Self::Cluster) on.
    pub const WHOLE: KeyRange = KeyRange::One(Bytes::new());
}

/// The keys `[start, end)` with their access; all keys from `start` on if `end` is `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Grant {
    start: Bytes,
    end: Option<Bytes>,
    access: Access,
}

/// The rights of a principal. They can be large: share them in an `Arc`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    may_everything: bool,
    /// The grants of each space: sorted by start, disjoint, no interval empty, no access empty; two
    /// grants that touch differ in access.
    spaces: BTreeMap<Space, Vec<Grant>>,
}

impl Rights {
    /// No right at all.
    pub fn none() -> Self {
        Self::default()
    }

    /// All accesses to all keys of all spaces, also of spaces that are added later.
    pub fn everything() -> Self {
        Self { may_everything: true, spaces: BTreeMap::new() }
    }

    /// The union of grants: a key has every access that some grant with that key gives.
    pub fn union(grants: impl IntoIterator<Item = (Space, KeyRange, Access)>) -> Self {
        let mut by_space: BTreeMap<Space, Vec<Grant>> = BTreeMap::new();
        for (space, range, access) in grants {
            if !range.is_empty() && !access.is_none() {
                let (start, end) = bounds(&range);
                by_space.entry(space).or_default().push(Grant { start, end, access });
            }
        }
        Self::of(by_space.into_iter().map(|(space, grants)| (space, merge(grants))))
    }

    /// The rights from rules. To each key one name applies: the exact one, else the longest prefix
    /// of the key. Without a matching rule the access is `default` of the space. If several rules
    /// have this name, and one of them denies, the key has no access; otherwise it has the union of
    /// their accesses.
    pub fn of_rules(rules: impl IntoIterator<Item = Rule>, default: impl Fn(Space) -> Access) -> Self {
        let mut by_space: BTreeMap<Space, BTreeMap<Name, Access>> = BTreeMap::new();
        for Rule { space, name, access } in rules {
            by_space
                .entry(space)
                .or_default()
                .entry(name)
                .and_modify(|known| {
                    *known = if known.is_none() || access.is_none() { Access::NONE } else { *known | access };
                })
                .or_insert(access);
        }
        let flattened =
            Space::ALL.map(|space| (space, flatten(by_space.remove(&space).unwrap_or_default(), default(space))));
        Self::of(flattened)
    }

    fn of(spaces: impl IntoIterator<Item = (Space, Vec<Grant>)>) -> Self {
        let spaces = spaces.into_iter().filter(|(_, grants)| !grants.is_empty()).collect();
        Self { may_everything: false, spaces }
    }

    /// Whether the principal has no right at all.
    pub fn is_none(&self) -> bool {
        !self.may_everything && self.spaces.is_empty()
    }

    /// Whether these are the rights of [`everything`](Self::everything).
    pub fn may_everything(&self) -> bool {
        self.may_everything
    }

    /// Whether each key of `range` has all of `access`. For an empty interval: whether its lower
    /// bound has all of it. Always true if `access` is [`Access::NONE`].
    pub fn covers(&self, space: Space, range: &KeyRange, access: Access) -> bool {
        if self.may_everything || access.is_none() {
            return true;
        }
        let KeyRange::Span { start, end } = range else { return self.allows(space, range.start(), access) };
        if range.is_empty() {
            return self.allows(space, start, access);
        }
        let mut reached: &[u8] = start;
        for grant in self.from(space, start) {
            if grant.start.as_ref() > reached || !grant.access.has(access) {
                return false;
            }
            match (&grant.end, end) {
                (None, _) => return true,
                (Some(until), Some(end)) if until >= end => return true,
                (Some(until), _) => reached = until,
            }
        }
        false
    }

    /// Whether `key` has all of `access`.
    pub fn allows(&self, space: Space, key: &[u8], access: Access) -> bool {
        self.may_everything || self.access_to(space, key).has(access)
    }

    /// All accesses that `key` has.
    pub fn access_to(&self, space: Space, key: &[u8]) -> Access {
        if self.may_everything {
            return Access::ALL;
        }
        let first = self.from(space, key).first();
        first.filter(|grant| grant.start.as_ref() <= key).map_or(Access::NONE, |grant| grant.access)
    }

    /// The exclusive end of the longest interval that begins at `key` and of which each key has all
    /// of `access`. `Some(None)` if the interval has no end, `None` if `key` lacks the access.
    pub fn reach(&self, space: Space, key: &[u8], access: Access) -> Option<Option<Bytes>> {
        if self.may_everything {
            return Some(None);
        }
        let mut reached: Option<&Bytes> = None;
        for grant in self.from(space, key) {
            let touches = match reached {
                None => grant.start.as_ref() <= key,
                Some(end) => grant.start == *end,
            };
            if !touches || !grant.access.has(access) {
                break;
            }
            match &grant.end {
                None => return Some(None),
                Some(end) => reached = Some(end),
            }
        }
        reached.map(|end| Some(end.clone()))
    }

    /// Whether some key of `range`, stored or not, has all of `access`. False for an empty
    /// interval.
    pub fn touches(&self, space: Space, range: &KeyRange, access: Access) -> bool {
        if range.is_empty() {
            return false;
        }
        if self.may_everything {
            return true;
        }
        let KeyRange::Span { start, end } = range else { return self.allows(space, range.start(), access) };
        let grants = self.from(space, start).iter();
        let mut touching = grants.take_while(|grant| end.as_ref().is_none_or(|end| grant.start < *end));
        touching.any(|grant| grant.access.has(access))
    }

    /// The intervals within `range` in which each key has all of `access`. They are in key order,
    /// disjoint and as long as possible.
    pub fn parts(&self, space: Space, range: &KeyRange, access: Access) -> Vec<KeyRange> {
        if range.is_empty() {
            return Vec::new();
        }
        if self.may_everything {
            return vec![range.clone()];
        }
        if let KeyRange::One(key) = range {
            return if self.allows(space, key, access) { vec![range.clone()] } else { Vec::new() };
        }
        let (first, last) = bounds(range);
        let mut parts: Vec<KeyRange> = Vec::new();
        for grant in self.from(space, &first).iter().filter(|grant| grant.access.has(access)) {
            if last.as_ref().is_some_and(|last| grant.start >= *last) {
                break;
            }
            let start = grant.start.clone().max(first.clone());
            let end = if compare_ends(&grant.end, &last) == Ordering::Less { grant.end.clone() } else { last.clone() };
            match parts.last_mut() {
                Some(KeyRange::Span { end: before, .. }) if before.as_ref() == Some(&start) => *before = end,
                _ => parts.push(KeyRange::Span { start, end }),
            }
        }
        parts
    }

    /// These rights, restricted to `spaces`. [`everything`](Self::everything) stays as it is.
    pub fn within(&self, spaces: &[Space]) -> Self {
        let spaces = self.spaces.iter().filter(|(space, _)| spaces.contains(space));
        Self {
            may_everything: self.may_everything,
            spaces: spaces.map(|(&space, grants)| (space, grants.clone())).collect(),
        }
    }

    /// Estimate of the encoded size of the rights in a proposal, bytes. 0 for
    /// [`everything`](Self::everything) and for [`none`](Self::none).
    pub fn size(&self) -> usize {
        self.size_within(&Space::ALL)
    }

    /// As [`size`](Self::size), for the rights in `spaces` alone.
    pub fn size_within(&self, spaces: &[Space]) -> usize {
        /// Upper bound on the encoded fields of a grant besides its two keys, bytes.
        const FIXED: usize = 24;
        let grants = spaces.iter().filter_map(|space| self.spaces.get(space)).flatten();
        grants.map(|grant| FIXED + grant.start.len() + grant.end.as_ref().map_or(0, Bytes::len)).sum()
    }

    /// All intervals with their accesses, ordered by space and start. Those of one space are
    /// disjoint. Yields nothing for [`everything`](Self::everything).
    pub fn grants(&self) -> impl Iterator<Item = (Space, KeyRange, Access)> + '_ {
        self.spaces.iter().flat_map(|(&space, grants)| {
            grants.iter().map(move |Grant { start, end, access }| {
                (space, KeyRange::Span { start: start.clone(), end: end.clone() }, *access)
            })
        })
    }

    /// The grants of a space that end after `key`, in key order. Only the first of them can contain
    /// it.
    fn from(&self, space: Space, key: &[u8]) -> &[Grant] {
        let grants = self.spaces.get(&space).map_or(&[][..], Vec::as_slice);
        let first = grants.partition_point(|grant| grant.end.as_ref().is_some_and(|end| end.as_ref() <= key));
        &grants[first..]
    }
}

/// A rule of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The space that the rule applies to.
    pub space: Space,
    /// The keys that the rule applies to.
    pub name: Name,
    /// The accesses that the rule gives. [`Access::NONE`] denies all.
    pub access: Access,
}

/// The keys that a rule applies to. In the order of names, a prefix comes directly before all other
/// names that begin with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Name {
    /// All keys that begin with these bytes.
    Prefix(Bytes),
    /// The key with exactly these bytes.
    Exact(Bytes),
}

impl Name {
    fn key(&self) -> &Bytes {
        match self {
            Self::Prefix(key) | Self::Exact(key) => key,
        }
    }

    fn end(&self) -> Option<Bytes> {
        match self {
            Self::Prefix(key) => prefix_end(key),
            Self::Exact(key) => Some(successor(key)),
        }
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> Ordering {
        let is_exact = |name: &Self| matches!(name, Self::Exact(_));
        self.key().cmp(other.key()).then_with(|| is_exact(self).cmp(&is_exact(other)))
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The first key after `key`.
fn successor(key: &[u8]) -> Bytes {
    [key, &[0]].concat().into()
}

fn bounds(range: &KeyRange) -> (Bytes, Option<Bytes>) {
    match range {
        KeyRange::One(key) => (key.clone(), Some(successor(key))),
        KeyRange::Span { start, end } => (start.clone(), end.clone()),
    }
}

/// The order of two exclusive ends. `None` means no end, and is the greatest.
fn compare_ends(one: &Option<Bytes>, other: &Option<Bytes>) -> Ordering {
    match (one, other) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Greater,
        (Some(_), None) => Ordering::Less,
        (Some(one), Some(other)) => one.cmp(other),
    }
}

/// Appends a grant, or extends the last one if it ends at `start` and has the same access. Skips an
/// empty interval and an empty access.
fn push(grants: &mut Vec<Grant>, start: &Bytes, end: Option<&Bytes>, access: Access) {
    if access.is_none() || end.is_some_and(|end| end <= start) {
        return;
    }
    match grants.last_mut() {
        Some(last) if last.access == access && last.end.as_ref() == Some(start) => last.end = end.cloned(),
        _ => grants.push(Grant { start: start.clone(), end: end.cloned(), access }),
    }
}

/// The union of grants that may overlap: a sweep over their bounds, with a count of the open grants
/// for each access.
fn merge(grants: Vec<Grant>) -> Vec<Grant> {
    const BITS: [Access; 3] = [Access::READ, Access::LIST, Access::WRITE];
    let mut steps: BTreeMap<Bytes, [i64; 3]> = BTreeMap::new();
    for Grant { start, end, access } in grants {
        for (bound, step) in [(Some(start), 1), (end, -1)] {
            let Some(bound) = bound else { continue };
            let counts = steps.entry(bound).or_default();
            for (count, bit) in counts.iter_mut().zip(BITS) {
                *count += if access.has(bit) { step } else { 0 };
            }
        }
    }
    let (mut merged, mut open) = (Vec::new(), [0; 3]);
    let mut steps = steps.into_iter().peekable();
    while let Some((start, step)) = steps.next() {
        let mut access = Access::NONE;
        for ((count, step), bit) in open.iter_mut().zip(step).zip(BITS) {
            *count += step;
            if *count > 0 {
                access |= bit;
            }
        }
        push(&mut merged, &start, steps.peek().map(|(next, _)| next), access);
    }
    merged
}

/// The rules of one space as sorted, disjoint intervals; `default` fills the gaps. Any two names
/// are disjoint, or one contains the other. So the top of a stack of open rules is the most
/// specific one.
fn flatten(rules: BTreeMap<Name, Access>, default: Access) -> Vec<Grant> {
    let mut grants = Vec::new();
    let mut open: Vec<(Option<Bytes>, Access)> = vec![(None, default)];
    let mut reached = Bytes::new();
    for (name, access) in rules {
        close(&mut grants, &mut open, &mut reached, Some(name.key()));
        let (_, counts) = open.last().expect("invariant: the default never ends");
        push(&mut grants, &reached, Some(name.key()), *counts);
        reached = name.key().clone();
        open.push((name.end(), access));
    }
    close(&mut grants, &mut open, &mut reached, None);
    grants
}

/// Closes the open rules that end at or before `until`, and appends their remaining intervals to
/// `grants`. Closes all of them for `None`.
fn close(grants: &mut Vec<Grant>, open: &mut Vec<(Option<Bytes>, Access)>, reached: &mut Bytes, until: Option<&Bytes>) {
    while let Some((end, access)) = open.last() {
        let ends = match (end, until) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(end), Some(until)) => end <= until,
        };
        if !ends {
            return;
        }
        push(grants, reached, end.as_ref(), *access);
        match end {
            Some(end) => *reached = end.clone().max(reached.clone()),
            // Nothing lies behind an interval without end.
            None => return open.clear(),
        }
        open.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Short keys of few different bytes, so that bounds often are equal.
    fn key() -> impl Strategy<Value = Bytes> {
        proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(0x61), Just(0xfe), Just(0xff)], 0..4)
            .prop_map(Bytes::from)
    }

    fn range() -> impl Strategy<Value = KeyRange> {
        prop_oneof![
            key().prop_map(KeyRange::One),
            key().prop_map(KeyRange::prefix),
            (key(), proptest::option::of(key())).prop_map(|(start, end)| KeyRange::Span { start, end }),
        ]
    }

    fn access() -> impl Strategy<Value = Access> {
        (0u8..8).prop_map(Access)
    }

    fn space() -> impl Strategy<Value = Space> {
        prop_oneof![Just(Space::Kv), Just(Space::CatalogNode)]
    }

    fn name() -> impl Strategy<Value = Name> {
        prop_oneof![key().prop_map(Name::Exact), key().prop_map(Name::Prefix)]
    }

    /// Every key of up to four of these bytes. If any key lies between two bounds of the
    /// strategies, one of these does.
    fn universe() -> Vec<Vec<u8>> {
        let mut keys = vec![Vec::new()];
        let mut longest = keys.clone();
        for _ in 0..4 {
            longest = longest
                .iter()
                .flat_map(|key| [0u8, 1, 2, 0x61, 0x62, 0xfe, 0xff].map(|byte| [key.as_slice(), &[byte]].concat()))
                .collect();
            keys.extend(longest.iter().cloned());
        }
        keys
    }

    fn check(rights: &Rights, model: impl Fn(&[u8]) -> Access, asked: &KeyRange, wanted: Access) {
        let inside: Vec<_> = universe().into_iter().filter(|key| asked.contains(key)).collect();
        let naive = match inside.is_empty() {
            true => model(asked.start()).has(wanted),
            false => inside.iter().all(|key| model(key).has(wanted)),
        };
        assert_eq!(rights.covers(Space::Kv, asked, wanted), naive, "{asked:?} {wanted:?} {rights:?}");
        let start = asked.start();
        match rights.reach(Space::Kv, start, wanted) {
            None => assert!(!model(start).has(wanted), "{start:?} {wanted:?} {rights:?}"),
            Some(end) => {
                let reached = KeyRange::Span { start: Bytes::copy_from_slice(start), end };
                let is_reached = |key: &Vec<u8>| key.as_slice() == start || reached.contains(key);
                assert!(universe().iter().filter(|key| is_reached(key)).all(|key| model(key).has(wanted)));
                assert!(model(start).has(wanted));
            }
        }
        let parts = rights.parts(Space::Kv, asked, wanted);
        assert_eq!(rights.touches(Space::Kv, asked, wanted), !parts.is_empty(), "{asked:?} {wanted:?} {rights:?}");
        for key in inside {
            assert_eq!(rights.access_to(Space::Kv, &key), model(&key), "{key:?} {rights:?}");
            let in_part = parts.iter().any(|part| part.contains(&key));
            assert_eq!(in_part, model(&key).has(wanted), "{key:?} {parts:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn a_union_is_what_a_naive_model_says(
            grants in proptest::collection::vec((space(), range(), access()), 0..8),
            asked in range(),
            wanted in (1u8..8).prop_map(Access),
        ) {
            let rights = Rights::union(grants.clone());
            let model = |key: &[u8]| {
                let mut found = Access::NONE;
                for (space, range, access) in &grants {
                    if *space == Space::Kv && range.contains(key) {
                        found |= *access;
                    }
                }
                found
            };
            check(&rights, model, &asked, wanted);
        }

        #[test]
        fn rules_are_what_a_naive_model_says(
            rules in proptest::collection::vec((space(), name(), access()), 0..8),
            default in access(),
            asked in range(),
            wanted in (1u8..8).prop_map(Access),
        ) {
            let rules: Vec<_> =
                rules.into_iter().map(|(space, name, access)| Rule { space, name, access }).collect();
            let rights = Rights::of_rules(rules.clone(), |_| default);
            let model = |key: &[u8]| {
                let fits = |rule: &&Rule| rule.space == Space::Kv && match &rule.name {
                    Name::Exact(name) => name == key,
                    Name::Prefix(prefix) => key.starts_with(prefix),
                };
                let weight = |rule: &Rule| (matches!(rule.name, Name::Exact(_)), rule.name.key().len());
                let Some(best) = rules.iter().filter(fits).map(weight).max() else { return default };
                let best: Vec<_> = rules.iter().filter(fits).filter(|rule| weight(rule) == best).collect();
                match best.iter().any(|rule| rule.access.is_none()) {
                    true => Access::NONE,
                    false => best.iter().fold(Access::NONE, |all, rule| all | rule.access),
                }
            };
            check(&rights, model, &asked, wanted);
        }
    }

    #[test]
    fn neighbours_cover_what_none_of_them_does() {
        let span =
            |start: &'static str, end: &'static str| KeyRange::Span { start: start.into(), end: Some(end.into()) };
        let rights = Rights::union([
            (Space::Kv, span("a", "c"), Access::READ),
            (Space::Kv, span("c", "e"), Access::READ | Access::WRITE),
            (Space::Kv, span("f", "g"), Access::READ),
        ]);
        assert!(rights.covers(Space::Kv, &span("b", "d"), Access::READ));
        assert!(!rights.covers(Space::Kv, &span("b", "d"), Access::WRITE));
        assert!(!rights.covers(Space::Kv, &span("b", "f\0"), Access::READ), "a gap");
        assert!(!rights.covers(Space::Kv, &KeyRange::Span { start: "f".into(), end: None }, Access::READ));
        assert!(!rights.covers(Space::Resource, &span("b", "d"), Access::READ));
        assert!(Rights::everything().covers(Space::Auth, &Space::WHOLE, Access::ALL));
        assert!(!Rights::none().covers(Space::Auth, &Space::WHOLE, Access::READ));
    }
}
