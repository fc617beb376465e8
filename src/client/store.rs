//! Views that are shared by callers of the same subject, and evicted when unused for a while (spec:
//! consul §3.5).

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::source::EventSource;
use super::topic::ViewTopic;
use super::view::{MaterializedView, View, ViewError};

/// Options of a [`ViewStore`].
#[derive(Clone, Copy, Debug)]
pub struct StoreOptions {
    /// Time for which a view is kept after the last request for it ended. Default: 20 minutes.
    pub idle: Duration,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self { idle: Duration::from_secs(20 * 60) }
    }
}

/// Views by subject; clones share them.
pub struct ViewStore<T: ViewTopic, E> {
    inner: Arc<Inner<T, E>>,
}

struct Inner<T: ViewTopic, E> {
    source: E,
    idle: Duration,
    entries: Mutex<HashMap<T, ViewEntry<T>>>,
}

struct ViewEntry<T: ViewTopic> {
    view: MaterializedView<T>,
    /// Requests that are under way, count.
    active: usize,
    /// Time at which the last request for the view ended; before that, time of its creation.
    idle_since: Instant,
}

impl<T: ViewTopic, E> Clone for ViewStore<T, E> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<T, E> ViewStore<T, E>
where
    T: ViewTopic + Clone + Eq + Hash,
    E: EventSource + Clone,
{
    /// A store of views that subscribe at `source`. Needs a Tokio runtime around it.
    pub fn new(source: E, options: StoreOptions) -> Self {
        let inner = Arc::new(Inner { source, idle: options.idle, entries: Mutex::default() });
        tokio::spawn(evict(Arc::downgrade(&inner)));
        Self { inner }
    }

    /// Asks the view that callers of the same subject share, as [`MaterializedView::query`] does.
    ///
    /// # Errors
    ///
    /// Those of the view. A view that has ended is released: the next request begins a new one.
    pub async fn query(&self, topic: &T, min_index: u64, wait: Duration) -> Result<View<T::State>, ViewError> {
        let request = self.request(topic);
        request.view.query(min_index, wait).await
    }

    /// Number of views in the store.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.entries.lock().len()
    }

    /// Whether the store has no view.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn request(&self, topic: &T) -> Request<T, E> {
        let mut entries = self.inner.entries.lock();
        let entry = entries.entry(topic.clone()).or_insert_with(|| ViewEntry {
            view: MaterializedView::start(topic.clone(), self.inner.source.clone()),
            active: 0,
            idle_since: Instant::now(),
        });
        entry.active += 1;
        Request { inner: Arc::clone(&self.inner), topic: topic.clone(), view: entry.view.clone() }
    }
}

/// A request of a caller. The view is not evicted while the request exists.
struct Request<T: ViewTopic + Eq + Hash, E> {
    inner: Arc<Inner<T, E>>,
    topic: T,
    view: MaterializedView<T>,
}

impl<T: ViewTopic + Eq + Hash, E> Drop for Request<T, E> {
    fn drop(&mut self) {
        let mut entries = self.inner.entries.lock();
        let Some(entry) = entries.get_mut(&self.topic) else { return };
        entry.active -= 1;
        entry.idle_since = Instant::now();
        if entry.active == 0 && entry.view.has_ended() {
            entries.remove(&self.topic);
        }
    }
}

/// Evicts views that had no request for [`StoreOptions::idle`], for as long as the store exists.
async fn evict<T: ViewTopic + Eq + Hash, E>(inner: Weak<Inner<T, E>>) {
    loop {
        let Some(idle) = inner.upgrade().map(|inner| inner.idle) else { return };
        tokio::time::sleep((idle / 8).max(Duration::from_millis(1))).await;
        let Some(inner) = inner.upgrade() else { return };
        let now = Instant::now();
        inner.entries.lock().retain(|_, entry| entry.active > 0 || now.duration_since(entry.idle_since) < idle);
    }
}
