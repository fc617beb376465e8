//! The distribution of watchers over streams and of streams over connections, and the key of each
//! watcher.
//!
//! Invariant: keys are assigned to watchers, streams to connections, and connections to threads
//! round robin. So the numbers of watchers of two keys differ by at most one; likewise the streams
//! of two connections, and the connections of two threads.

use std::sync::Arc;

use super::super::workload::Keys;

/// The streams of a run.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) endpoints: Arc<[String]>,
    pub(super) streams: usize,
    /// Watchers on each stream.
    pub(super) watchers: usize,
    pub(super) conns: usize,
    pub(super) threads: usize,
    pub(super) keys: Keys,
    /// Number of different keys that are watched; at most as many as there are watchers.
    pub(super) key_count: u64,
}

/// Streams that share a connection unless the user says otherwise.
const STREAMS_PER_CONN: usize = 50;

impl Layout {
    /// Number of connections for `streams` streams to `endpoints` endpoints: one for every
    /// [`STREAMS_PER_CONN`] streams, but at least one to each endpoint. Never more than streams.
    pub(super) fn default_conns(streams: usize, endpoints: usize) -> usize {
        streams.div_ceil(STREAMS_PER_CONN).max(endpoints).min(streams)
    }

    pub(super) fn watchers_total(&self) -> u64 {
        (self.streams * self.watchers) as u64
    }

    /// The endpoint of the connection with the number `conn`.
    pub(super) fn endpoint(&self, conn: usize) -> &str {
        &self.endpoints[conn % self.endpoints.len()]
    }

    /// The endpoint of a stream.
    pub(super) fn endpoint_of_stream(&self, stream: usize) -> &str {
        self.endpoint(stream % self.conns)
    }

    /// The numbers of the connections of a thread.
    pub(super) fn conns_of_thread(&self, thread: usize) -> impl Iterator<Item = usize> + use<> {
        (thread..self.conns).step_by(self.threads)
    }

    /// The numbers of the streams of a connection.
    pub(super) fn streams_of_conn(&self, conn: usize) -> impl Iterator<Item = usize> + use<> {
        (conn..self.streams).step_by(self.conns)
    }

    /// The number of the key of a watcher.
    pub(super) fn key_of(&self, stream: usize, watcher: usize) -> u64 {
        (stream * self.watchers + watcher) as u64 % self.key_count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(streams: usize, conns: usize, threads: usize) -> Layout {
        Layout {
            endpoints: ["a:1".to_owned(), "b:1".to_owned()].into(),
            streams,
            watchers: 3,
            conns,
            threads,
            keys: Keys::new("k/", 6, 4).unwrap(),
            key_count: 4,
        }
    }

    #[test]
    fn every_stream_has_one_place() {
        for (streams, conns, threads) in [(1, 1, 1), (10, 3, 2), (7, 7, 3)] {
            let layout = layout(streams, conns, threads);
            let conns = (0..threads).flat_map(|thread| layout.conns_of_thread(thread));
            let mut found: Vec<usize> = conns.flat_map(|conn| layout.streams_of_conn(conn)).collect();
            found.sort_unstable();
            assert_eq!(found, (0..streams).collect::<Vec<_>>());
        }
    }

    #[test]
    fn watchers_take_keys_in_turn() {
        let layout = layout(3, 2, 1);
        let keys = (0..3).flat_map(|stream| (0..3).map(move |watcher| (stream, watcher)));
        let keys: Vec<u64> = keys.map(|(stream, watcher)| layout.key_of(stream, watcher)).collect();
        assert_eq!(keys, [0, 1, 2, 3, 0, 1, 2, 3, 0]);
        assert_eq!(layout.endpoint_of_stream(1), "b:1");
        assert_eq!(layout.endpoint_of_stream(2), "a:1");
    }

    #[test]
    fn connections_follow_from_streams_and_endpoints() {
        for (streams, endpoints, wanted) in [(1, 3, 1), (10, 3, 3), (150, 3, 3), (151, 3, 4), (10_000, 3, 200)] {
            assert_eq!(Layout::default_conns(streams, endpoints), wanted);
        }
    }
}
