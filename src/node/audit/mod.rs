//! The audit log: one line of JSON for each request that is written down, in a file of its own.
//!
//! Owns the content of a line ([`line`](mod@line)), the queue to the writer and the sampling of
//! refusals (here), and the file with its rotation ([`file`](mod@file)). Knows no message of a
//! face: a face names itself and the method, the checks of rights add the intervals.
//! Invariants: a line has names and keys, never values and never secrets; a request never waits
//! for the file. Lines that find the queue full, or that the disk refuses, are counted with the
//! refusals that they stand for, and the count is written with the next line.
//!
//! ```text
//! {"time":"2026-01-02T03:04:05.678Z","who":{"user":"alice"},"from":"10.0.0.7:4711","face":"etcd",
//!  "method":"/etcdserverpb.KV/Put","on":[{"space":"keys","key":"app/a","rights":"write"}],
//!  "allowed":true,"index":17}
//! ```

mod file;
mod intervals;
mod line;

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use prometheus::{IntCounter, IntCounterVec, Opts, Registry};

pub use intervals::AuditTrail;
pub use line::{AuditIdentity, AuditInterval, AuditLine};

use file::AuditFile;
use headwater_files::PrivacyError;
use headwater_types::limits::{AUDIT_INTERVALS_MAX, AUDIT_QUEUE_LINES, AUDIT_REFUSALS_REMEMBERED_MAX};

/// Time within which refusals of one principal and method become one line with a count.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// Longest pause between two checks for counted refusals that are due.
const COUNT_INTERVAL: Duration = Duration::from_millis(500);

/// The requests that are written down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum AuditLevel {
    /// Requests that were refused for lack of rights or of valid credentials.
    Denied,
    /// Those of `Denied`, and all requests that may change something.
    #[default]
    Changes,
    /// Every request.
    All,
}

/// Settings of the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditOptions {
    /// The file; rotated ones have a number after its name.
    pub file: PathBuf,
    /// Bound on the size of the file, bytes: a write that would exceed it rotates the file first.
    pub rotate_bytes: u64,
    /// Rotated files that are kept, count. With 0, the full file is removed.
    pub keep: u32,
    /// The requests that are written down.
    pub level: AuditLevel,
}

/// A handle to the audit log, or to none: a log that is off takes no line. Cheap to clone.
#[derive(Clone, Default)]
pub struct AuditLog {
    inner: Option<Arc<Inner>>,
}

struct Inner {
    level: AuditLevel,
    queue: SyncSender<AuditLine>,
    /// Number of requests whose lines were lost, and are not yet reported in the file.
    dropped: Arc<AtomicU64>,
    written: IntCounterVec,
    refusals: Arc<Mutex<Refusals>>,
}

impl fmt::Debug for AuditLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuditLog").field("level", &self.inner.as_ref().map(|inner| inner.level)).finish()
    }
}

/// Recent refusals by principal and method: at most one line a second is written for each pair.
/// Beyond [`AUDIT_REFUSALS_REMEMBERED_MAX`] pairs, every refusal of a new pair is written.
#[derive(Default)]
struct Refusals {
    recent: HashMap<RefusalKey, Refused>,
}

/// A principal and a method: their refusals are counted together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct RefusalKey {
    who: String,
    method: Arc<str>,
}

struct Refused {
    written: Instant,
    /// Refusals since the last written line that got no line, count.
    counted: u64,
    /// The last refusal that got no line.
    last: Option<AuditLine>,
}

impl Refused {
    /// The last of the counted refusals, as a line that stands for all of them.
    fn take_counted(&mut self) -> Option<AuditLine> {
        let counted = std::mem::take(&mut self.counted);
        self.last.take().map(|line| AuditLine { repeated: counted - 1, ..line })
    }
}

impl Refusals {
    /// The line to write; its `repeated` is the number of refusals before it that were only
    /// counted. `None` if this one, too, is only counted.
    fn sample(&mut self, mut line: AuditLine, now: Instant) -> Option<AuditLine> {
        let key = RefusalKey { who: line.who.to_string(), method: Arc::clone(&line.method) };
        if let Some(refused) = self.recent.get_mut(&key) {
            if now.saturating_duration_since(refused.written) < SAMPLE_INTERVAL {
                refused.counted += 1;
                refused.last = Some(line);
                return None;
            }
            line.repeated = refused.counted;
            *refused = Refused { written: now, counted: 0, last: None };
            return Some(line);
        }
        if self.recent.len() < AUDIT_REFUSALS_REMEMBERED_MAX {
            self.recent.insert(key, Refused { written: now, counted: 0, last: None });
        }
        Some(line)
    }

    /// Takes a line for each key that has counted refusals and got no line for [`SAMPLE_INTERVAL`].
    /// Forgets the keys that had no refusal for as long.
    fn take_due(&mut self, now: Instant) -> Vec<AuditLine> {
        let mut due = Vec::new();
        self.recent.retain(|_, refused| {
            if now.saturating_duration_since(refused.written) < SAMPLE_INTERVAL {
                return true;
            }
            let Some(line) = refused.take_counted() else { return false };
            due.push(line);
            refused.written = now;
            true
        });
        due
    }

    /// Takes a line for each key that has counted refusals, however recent they are: no refusal
    /// follows.
    fn take_all(&mut self) -> Vec<AuditLine> {
        self.recent.drain().filter_map(|(_, mut refused)| refused.take_counted()).collect()
    }
}

impl AuditLog {
    /// A log that takes no line.
    pub fn off() -> Self {
        Self::default()
    }

    /// Opens the file, and begins to write to it on a thread of its own, which ends with the last
    /// handle.
    ///
    /// # Errors
    ///
    /// The file cannot be opened, belongs to another user, or is a link; `registry` has the
    /// counters already; the thread cannot start.
    pub fn open(options: AuditOptions, registry: &Registry) -> Result<Self, AuditError> {
        let file = AuditFile::open(&options)?;
        let counted = Opts::new("headwater_audit_lines_total", "Lines of the audit log, by result.");
        let written = IntCounterVec::new(counted, &["result"])?;
        registry.register(Box::new(written.clone()))?;
        let (queue, lines) = sync_channel(AUDIT_QUEUE_LINES);
        let dropped = Arc::new(AtomicU64::new(0));
        let refusals = Arc::new(Mutex::new(Refusals::default()));
        let writer = Writer {
            file,
            lines,
            refusals: Arc::clone(&refusals),
            dropped: Arc::clone(&dropped),
            counted: written.with_label_values(&["written"]),
            lost: written.with_label_values(&["dropped"]),
            is_failing: false,
        };
        let _thread =
            std::thread::Builder::new().name("audit".to_owned()).spawn(|| writer.run()).map_err(AuditError::Thread)?;
        Ok(Self { inner: Some(Arc::new(Inner { level: options.level, queue, dropped, written, refusals })) })
    }

    /// Whether an allowed request is written down; `changes` is whether it may change something. A
    /// refused request always is, unless the log is off.
    pub fn takes(&self, changes: bool) -> bool {
        self.inner.as_ref().is_some_and(|inner| match inner.level {
            AuditLevel::Denied => false,
            AuditLevel::Changes => changes,
            AuditLevel::All => true,
        })
    }

    /// Whether the log takes any line.
    pub fn is_on(&self) -> bool {
        self.inner.is_some()
    }

    /// Queues a line for the file, unless the log is off. Never waits: a line that finds the queue
    /// full is lost and counted. An allowed request is queued whatever the level: the caller checks
    /// [`takes`](Self::takes). A refusal is only counted if one of the same principal and method
    /// was queued less than a second ago; the next line of that pair has the count.
    pub fn write(&self, mut line: AuditLine) {
        let Some(inner) = &self.inner else { return };
        line.time.get_or_insert_with(SystemTime::now);
        line.on.truncate(AUDIT_INTERVALS_MAX);
        if !line.allowed {
            let Some(sampled) = inner.refusals.lock().sample(line, Instant::now()) else {
                inner.written.with_label_values(&["sampled"]).inc();
                return;
            };
            line = sampled;
        }
        match inner.queue.try_send(line) {
            Ok(()) => {}
            Err(TrySendError::Full(line) | TrySendError::Disconnected(line)) => {
                inner.dropped.fetch_add(line.requests(), Ordering::Relaxed);
                inner.written.with_label_values(&["dropped"]).inc_by(line.requests());
            }
        }
    }
}

/// The reason why an audit log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The file cannot be used, or another user owns it.
    #[error(transparent)]
    File(#[from] PrivacyError),
    /// The counters are registered already.
    #[error(transparent)]
    Metrics(#[from] prometheus::Error),
    /// The thread of the writer cannot start.
    #[error("the thread of the audit log: {0}")]
    Thread(std::io::Error),
}

/// The thread that writes.
struct Writer {
    file: AuditFile,
    lines: Receiver<AuditLine>,
    refusals: Arc<Mutex<Refusals>>,
    dropped: Arc<AtomicU64>,
    counted: IntCounter,
    lost: IntCounter,
    /// Whether the last write failed, and the failure was logged.
    is_failing: bool,
}

impl Writer {
    fn run(mut self) {
        let mut lines = Vec::new();
        loop {
            let (first, is_over) = match self.lines.recv_timeout(COUNT_INTERVAL) {
                Ok(line) => (Some(line), false),
                Err(RecvTimeoutError::Timeout) => (None, false),
                Err(RecvTimeoutError::Disconnected) => (None, true),
            };
            lines.extend(first);
            lines.extend(self.lines.try_iter().take(AUDIT_QUEUE_LINES));
            let mut refusals = self.refusals.lock();
            lines.extend(if is_over { refusals.take_all() } else { refusals.take_due(Instant::now()) });
            drop(refusals);
            self.write(&lines);
            lines.clear();
            if is_over {
                break;
            }
        }
        self.file.finish();
    }

    fn write(&mut self, lines: &[AuditLine]) {
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        let mut text = Vec::new();
        if dropped > 0 {
            line::write_dropped(dropped, &mut text);
        }
        lines.iter().for_each(|line| line.write(&mut text));
        if text.is_empty() {
            return;
        }
        match self.file.append(&text) {
            Ok(()) => {
                self.counted.inc_by(lines.len() as u64);
                if std::mem::take(&mut self.is_failing) {
                    tracing::info!("the audit log is written again");
                }
            }
            Err(error) => {
                // The lost lines are reported with the next lines that can be written.
                let lost = lines.iter().map(AuditLine::requests).sum();
                self.dropped.fetch_add(dropped + lost, Ordering::Relaxed);
                self.lost.inc_by(lost);
                if !std::mem::replace(&mut self.is_failing, true) {
                    tracing::error!(%error, "the audit log cannot be written: lines are lost");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
