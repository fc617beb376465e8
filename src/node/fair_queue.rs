//! A queue that serves clients in turn: deficit round robin (Shreedhar and Varghese, 1995).
//!
//! Each turn of a client adds a quantum to its credit, and its items are taken while the credit
//! lasts. A client with one waiting item of at most a quantum is therefore served after at most one
//! turn of each other client, however much they have queued. Owns only the order. Its user decides
//! when the queue is full, and then removes the newest item of the client whose items cost most.
//! Memory is bounded by the number of items: a client without items is forgotten.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use super::ClientKey;

/// Items of clients, each with its cost.
#[derive(Debug)]
pub(super) struct FairQueue<T> {
    /// Cost that one turn of a client adds to its credit.
    quantum: usize,
    /// Items of the clients that have any.
    clients: HashMap<ClientKey, Items<T>>,
    /// The keys of `clients`, in the order of their turns.
    turns: VecDeque<ClientKey>,
    /// Whether the client at the front of `turns` has got the quantum for its present turn.
    has_begun: bool,
    len: usize,
    next_ticket: u64,
}

#[derive(Debug)]
struct Items<T> {
    waiting: VecDeque<Item<T>>,
    /// Sum of the costs of `waiting`.
    cost: usize,
    /// Cost that the client may still take. The rest of one turn is kept for the next, so that
    /// items may cost more than the quantum.
    credit: usize,
}

#[derive(Debug)]
struct Item<T> {
    ticket: Ticket,
    cost: usize,
    value: T,
}

/// Number of one item in its queue; later items have greater numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket(u64);

impl<T> FairQueue<T> {
    /// An empty queue. `quantum` must be above zero.
    pub(super) fn new(quantum: usize) -> Self {
        let (clients, turns) = (HashMap::new(), VecDeque::new());
        Self { quantum, clients, turns, has_begun: false, len: 0, next_ticket: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of items of all clients.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Appends an item to those of its client.
    pub(super) fn push(&mut self, client: ClientKey, cost: usize, value: T) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        let items = match self.clients.entry(client) {
            Entry::Occupied(items) => items.into_mut(),
            Entry::Vacant(absent) => {
                self.turns.push_back(client);
                absent.insert(Items { waiting: VecDeque::new(), cost: 0, credit: 0 })
            }
        };
        items.waiting.push_back(Item { ticket, cost, value });
        items.cost += cost;
        self.len += 1;
        ticket
    }

    /// Takes the next item, with its client. `None` if the queue is empty.
    pub(super) fn pop(&mut self) -> Option<(ClientKey, T)> {
        self.pop_of(|_| true)
    }

    /// Takes the next item of a client that `may` be served now, with the client. `None` if no such
    /// client has an item.
    pub(super) fn pop_of(&mut self, may: impl Fn(ClientKey) -> bool) -> Option<(ClientKey, T)> {
        // A whole round of clients that may not be served ends the search.
        let mut passed = 0;
        while passed < self.turns.len() {
            let client = self.turns[0];
            if !may(client) {
                passed += 1;
                self.end_turn();
                continue;
            }
            let items = self.clients.get_mut(&client).expect("invariant: a client with a turn has items");
            if !self.has_begun {
                self.has_begun = true;
                items.credit += self.quantum;
            }
            let cost = items.waiting.front().expect("invariant: no client is without items").cost;
            if items.credit < cost {
                passed = 0;
                self.end_turn();
                continue;
            }
            items.credit -= cost;
            let item = items.waiting.pop_front().expect("seen above");
            self.settle(client, item.cost);
            return Some((client, item.value));
        }
        None
    }

    /// Removes the newest item of the client with the highest total cost. Never takes an item of
    /// [`ClientKey::Own`]; `None` if there are no others. `latest` is the client of the newest item
    /// in the queue: among clients of equal cost, it loses its item. Visits every client with
    /// items.
    pub(super) fn pop_newest_of_longest(&mut self, latest: ClientKey) -> Option<T> {
        let of_clients = self.clients.iter().filter(|(client, _)| **client != ClientKey::Own);
        let (longest, _) = of_clients.max_by_key(|(client, items)| (items.cost, **client == latest))?;
        let longest = *longest;
        let item = self.clients.get_mut(&longest)?.waiting.pop_back()?;
        self.settle(longest, item.cost);
        Some(item.value)
    }

    /// Removes one item; `None` if the queue has no item of `client` with this ticket.
    pub(super) fn remove(&mut self, client: ClientKey, ticket: Ticket) -> Option<T> {
        let waiting = &mut self.clients.get_mut(&client)?.waiting;
        let at = waiting.binary_search_by_key(&ticket, |item| item.ticket).ok()?;
        let item = waiting.remove(at)?;
        self.settle(client, item.cost);
        Some(item.value)
    }

    /// Updates the counts after an item of `client` was taken, and forgets a client without items.
    fn settle(&mut self, client: ClientKey, cost: usize) {
        self.len -= 1;
        let Some(items) = self.clients.get_mut(&client) else { return };
        items.cost -= cost;
        if !items.waiting.is_empty() {
            return;
        }
        self.clients.remove(&client);
        if self.turns.front() == Some(&client) {
            self.turns.pop_front();
            self.has_begun = false;
        } else if let Some(at) = self.turns.iter().rposition(|turn| *turn == client) {
            self.turns.remove(at);
        }
    }

    fn end_turn(&mut self) {
        self.has_begun = false;
        self.turns.rotate_left(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GREEDY: ClientKey = ClientKey::Named(0);

    fn modest(number: u64) -> ClientKey {
        ClientKey::Named(number + 1)
    }

    fn drain<T>(queue: &mut FairQueue<T>) -> Vec<(ClientKey, T)> {
        std::iter::from_fn(|| queue.pop()).collect()
    }

    #[test]
    fn fifty_modest_clients_wait_for_one_turn_of_the_greedy_one() {
        let mut queue = FairQueue::new(16);
        for item in 0..5000 {
            queue.push(GREEDY, 1, item);
        }
        for client in 0..50 {
            queue.push(modest(client), 1, 0);
        }
        let order = drain(&mut queue);
        let last = order.iter().rposition(|(client, _)| *client != GREEDY).unwrap();
        assert_eq!(last, 16 + 50 - 1, "16 of the greedy one are before the last modest one");
        let greedy: Vec<i32> = order.iter().filter(|(client, _)| *client == GREEDY).map(|(_, item)| *item).collect();
        assert!(greedy.is_sorted() && greedy.len() == 5000, "a client's own items stay in order");
    }

    #[test]
    fn shares_are_equal_by_cost_and_not_by_count() {
        let mut queue = FairQueue::new(100);
        for _ in 0..1000 {
            queue.push(GREEDY, 250, "large");
            queue.push(modest(0), 10, "small");
        }
        let mut taken = HashMap::new();
        for _ in 0..500 {
            let (client, item) = queue.pop().unwrap();
            *taken.entry(client).or_insert(0) += if item == "large" { 250 } else { 10 };
        }
        let (large, small) = (taken[&GREEDY], taken[&modest(0)]);
        assert!(i32::abs(large - small) <= 250 + 100, "{large} and {small}");
    }

    #[test]
    fn a_full_queue_loses_the_newest_of_the_client_with_the_most() {
        let mut queue = FairQueue::new(1);
        queue.push(ClientKey::Own, 1_000_000, "own");
        for item in ["g1", "g2", "g3"] {
            queue.push(GREEDY, 1, item);
        }
        queue.push(modest(0), 1, "m");
        assert_eq!(queue.pop_newest_of_longest(modest(0)), Some("g3"));
        assert_eq!(queue.pop_newest_of_longest(modest(0)), Some("g2"));
        assert_eq!(queue.pop_newest_of_longest(modest(0)), Some("m"), "of equals the latest");
        assert_eq!(queue.pop_newest_of_longest(modest(0)), Some("g1"));
        assert_eq!(queue.pop_newest_of_longest(modest(0)), None, "the node's own item stays");
        assert_eq!((queue.len(), drain(&mut queue)), (1, vec![(ClientKey::Own, "own")]));
    }

    #[test]
    fn clients_that_may_not_be_served_keep_their_items_and_delay_nobody() {
        let mut queue = FairQueue::new(1);
        for item in 0..3 {
            queue.push(GREEDY, 1, item);
            queue.push(modest(0), 1, item);
        }
        let others = |client| client != GREEDY;
        assert_eq!([(); 4].map(|()| queue.pop_of(others).map(|(_, item)| item)), [Some(0), Some(1), Some(2), None]);
        assert_eq!(drain(&mut queue), [0, 1, 2].map(|item| (GREEDY, item)));
    }

    #[test]
    fn an_item_is_removed_once_and_a_client_without_items_is_forgotten() {
        let mut queue = FairQueue::new(1);
        let first = queue.push(GREEDY, 1, "a");
        let second = queue.push(GREEDY, 1, "b");
        queue.push(modest(0), 1, "c");
        assert_eq!(queue.remove(GREEDY, first), Some("a"));
        assert_eq!(queue.remove(GREEDY, first), None);
        assert_eq!(queue.remove(modest(0), second), None, "it is of another client");
        assert_eq!(queue.remove(GREEDY, second), Some("b"));
        assert_eq!(drain(&mut queue), [(modest(0), "c")]);
        assert!(queue.is_empty() && queue.clients.is_empty() && queue.turns.is_empty());
    }
}
