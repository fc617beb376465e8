//! Look-up of the intervals that contain a key: a treap ordered by interval, with the greatest end
//! of each subtree.
//!
//! A search for the intervals of a key takes O(log n) for each that it finds, other operations
//! O(log n). Invariant: priorities come from a fixed sequence, so two runs build the same tree.

use std::cmp::Ordering;

use bytes::Bytes;

/// Intervals `[start, end)`, each with a slot. An end of `None` is unbounded.
#[derive(Default)]
pub(super) struct Intervals {
    nodes: Vec<Node>,
    free: Vec<u32>,
    root: Ref,
    drawn: u64,
}

type Ref = Option<u32>;
type End = Option<Bytes>;

struct Node {
    start: Bytes,
    end: End,
    /// Greatest end in the subtree of this node.
    reach: End,
    slot: usize,
    priority: u64,
    left: Ref,
    right: Ref,
}

/// The order of ends: an unbounded end is the greatest.
fn compare_ends(a: &End, b: &End) -> Ordering {
    match (a, b) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Greater,
        (Some(_), None) => Ordering::Less,
        (Some(a), Some(b)) => a.cmp(b),
    }
}

fn ends_after(end: &End, key: &[u8]) -> bool {
    end.as_ref().is_none_or(|end| key < end.as_ref())
}

impl Intervals {
    pub(super) fn get(&self, start: &[u8], end: &End) -> Option<usize> {
        let mut at = self.root;
        while let Some(here) = at {
            let node = self.node(here);
            at = match self.compare(start, end, here) {
                Ordering::Less => node.left,
                Ordering::Greater => node.right,
                Ordering::Equal => return Some(node.slot),
            };
        }
        None
    }

    /// Adds an interval, which must not be in the tree yet.
    pub(super) fn insert(&mut self, start: Bytes, end: End, slot: usize) {
        // SplitMix64 of a counter.
        self.drawn = self.drawn.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut priority = self.drawn;
        priority = (priority ^ (priority >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        priority = (priority ^ (priority >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        priority ^= priority >> 31;

        let (less, more) = self.split(self.root, &start, &end);
        let node = Node { reach: end.clone(), start, end, slot, priority, left: None, right: None };
        let here = match self.free.pop() {
            Some(here) => {
                self.nodes[here as usize] = node;
                here
            }
            None => {
                self.nodes.push(node);
                u32::try_from(self.nodes.len() - 1).expect("invariant: fewer subjects than 2^32")
            }
        };
        let with = self.merge(less, Some(here));
        self.root = self.merge(with, more);
    }

    pub(super) fn remove(&mut self, start: &[u8], end: &End) {
        self.root = self.removed(self.root, start, end);
    }

    /// Calls `found` with the slot of every interval that contains `key`.
    pub(super) fn stab(&self, key: &[u8], found: &mut dyn FnMut(usize)) {
        self.stab_below(self.root, key, found);
    }

    fn stab_below(&self, at: Ref, key: &[u8], found: &mut dyn FnMut(usize)) {
        let Some(here) = at else { return };
        let node = self.node(here);
        if !ends_after(&node.reach, key) {
            return;
        }
        self.stab_below(node.left, key, found);
        if node.start.as_ref() <= key {
            if ends_after(&node.end, key) {
                found(node.slot);
            }
            self.stab_below(node.right, key, found);
        }
    }

    fn node(&self, at: u32) -> &Node {
        &self.nodes[at as usize]
    }

    fn node_mut(&mut self, at: u32) -> &mut Node {
        &mut self.nodes[at as usize]
    }

    fn compare(&self, start: &[u8], end: &End, at: u32) -> Ordering {
        let node = self.node(at);
        start.cmp(node.start.as_ref()).then_with(|| compare_ends(end, &node.end))
    }

    /// Recomputes the reach of a node from its own end and its children.
    fn update(&mut self, at: u32) {
        let node = self.node(at);
        let mut reach = &node.end;
        for child in [node.left, node.right].into_iter().flatten() {
            let below = &self.node(child).reach;
            if compare_ends(below, reach).is_gt() {
                reach = below;
            }
        }
        let reach = reach.clone();
        self.node_mut(at).reach = reach;
    }

    /// Splits into the intervals before the given one, and the rest.
    fn split(&mut self, at: Ref, start: &[u8], end: &End) -> (Ref, Ref) {
        let Some(here) = at else { return (None, None) };
        if self.compare(start, end, here).is_gt() {
            let (less, more) = self.split(self.node(here).right, start, end);
            self.node_mut(here).right = less;
            self.update(here);
            (Some(here), more)
        } else {
            let (less, more) = self.split(self.node(here).left, start, end);
            self.node_mut(here).left = more;
            self.update(here);
            (less, Some(here))
        }
    }

    /// Joins two trees, all of the first before all of the second.
    fn merge(&mut self, a: Ref, b: Ref) -> Ref {
        let (Some(left), Some(right)) = (a, b) else { return a.or(b) };
        if self.node(left).priority > self.node(right).priority {
            let below = self.merge(self.node(left).right, b);
            self.node_mut(left).right = below;
            self.update(left);
            Some(left)
        } else {
            let below = self.merge(a, self.node(right).left);
            self.node_mut(right).left = below;
            self.update(right);
            Some(right)
        }
    }

    fn removed(&mut self, at: Ref, start: &[u8], end: &End) -> Ref {
        let here = at?;
        let (left, right) = (self.node(here).left, self.node(here).right);
        match self.compare(start, end, here) {
            Ordering::Less => {
                let below = self.removed(left, start, end);
                self.node_mut(here).left = below;
            }
            Ordering::Greater => {
                let below = self.removed(right, start, end);
                self.node_mut(here).right = below;
            }
            Ordering::Equal => {
                let node = self.node_mut(here);
                // Frees the bounds now, not only when the node is used again.
                (node.start, node.end, node.reach) = (Bytes::new(), None, None);
                self.free.push(here);
                return self.merge(left, right);
            }
        }
        self.update(here);
        Some(here)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn key() -> impl Strategy<Value = Bytes> {
        proptest::collection::vec(0u8..4, 0..3).prop_map(Bytes::from)
    }

    proptest! {
        #[test]
        fn it_finds_what_a_plain_list_finds(
            steps in proptest::collection::vec((key(), proptest::option::of(key()), any::<bool>()), 0..80),
            probes in proptest::collection::vec(key(), 1..20),
        ) {
            let mut tree = Intervals::default();
            let mut plain = BTreeMap::new();
            for (at, (start, end, insert)) in steps.into_iter().enumerate() {
                let known = plain.contains_key(&(start.clone(), end.clone()));
                prop_assert_eq!(tree.get(&start, &end).is_some(), known);
                if insert && !known {
                    tree.insert(start.clone(), end.clone(), at);
                    plain.insert((start, end), at);
                } else if !insert {
                    tree.remove(&start, &end);
                    plain.remove(&(start, end));
                }
                for probe in &probes {
                    let mut found = Vec::new();
                    tree.stab(probe, &mut |slot| found.push(slot));
                    found.sort_unstable();
                    let mut wanted: Vec<usize> = plain
                        .iter()
                        .filter(|((start, end), _)| start <= probe && end.as_ref().is_none_or(|end| probe < end))
                        .map(|(_, slot)| *slot)
                        .collect();
                    wanted.sort_unstable();
                    prop_assert_eq!(found, wanted);
                }
            }
        }
    }

    #[test]
    fn ten_thousand_in_order_stay_shallow() {
        let mut tree = Intervals::default();
        for number in 0..10_000u32 {
            let start = Bytes::copy_from_slice(&number.to_be_bytes());
            let end = Bytes::copy_from_slice(&(number + 1).to_be_bytes());
            tree.insert(start, Some(end), number as usize);
        }
        fn depth(tree: &Intervals, at: Ref) -> usize {
            at.map_or(0, |here| {
                let node = tree.node(here);
                1 + depth(tree, node.left).max(depth(tree, node.right))
            })
        }
        assert!(depth(&tree, tree.root) < 60, "{}", depth(&tree, tree.root));
        let mut found = Vec::new();
        tree.stab(&[0, 0, 1, 1, 7], &mut |slot| found.push(slot));
        assert_eq!(found, [257]);
    }
}
