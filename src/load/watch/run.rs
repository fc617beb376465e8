//! The sequence of a run: it creates the watchers, sends puts, waits for the last events, and
//! judges.
//!
//! Invariant: no put is sent before every watcher is confirmed, unless it goes to a key without
//! watchers.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::super::clock::Clock;
use super::super::cpu;
use super::super::drive::{self, Outcome, RunLimit};
use super::super::ledger::{Ledger, Verdict};
use super::super::workload::{Keys, Kind, Workload};
use super::args::{Mode, Spec};
use super::layout::Layout;
use super::memory::Memory;
use super::readers::{Found, Readers};
use super::report::{Findings, MemoryPoints, Phase, Report};
use crate::ClientArgs;
use crate::error::CliError;
use crate::progress::Progress;

/// Pause before the servers' memory is measured: they free temporary buffers meanwhile.
const SETTLE: Duration = Duration::from_secs(1);
/// Wait at the end, during which an event that should not come would be received.
const LINGER: Duration = Duration::from_millis(200);

/// A run with its resources.
struct Run<'a> {
    spec: &'a Spec,
    client: &'a ClientArgs,
    endpoints: Arc<[String]>,
    layout: Layout,
    clock: Clock,
    ledger: Arc<Ledger>,
    memory: Memory,
    phases: Vec<Phase>,
}

pub(super) fn run(spec: Spec, endpoints: Arc<[String]>, client: &ClientArgs) -> Result<(), CliError> {
    let common = &spec.common;
    let conns = spec.conns.unwrap_or_else(|| Layout::default_conns(spec.streams, endpoints.len())).min(spec.streams);
    let layout = Layout {
        endpoints: Arc::clone(&endpoints),
        streams: spec.streams,
        watchers: spec.watchers,
        conns,
        threads: spec.threads.min(conns),
        keys: Keys::new(&common.prefix, common.key_size, spec.watch_keys).map_err(CliError::Usage)?,
        key_count: spec.watch_keys,
    };
    let mut run = Run {
        ledger: Arc::new(Ledger::new(layout.key_count, layout.watchers_total())),
        memory: Memory::watch(&common.pids).map_err(CliError::Usage)?,
        clock: Clock::start(),
        phases: Vec::new(),
        spec: &spec,
        client,
        endpoints,
        layout,
    };
    let findings = match spec.mode {
        Mode::Load => run.load()?,
        Mode::Idle { keys, baseline } => run.idle(keys, baseline)?,
        Mode::Stall { stall, baseline, .. } => run.stall(stall, baseline)?,
    };
    let report = Report::new(&spec, &run.layout, &run.phases, findings);
    report.print(client.write_out)?;
    report.check()
}

impl Run<'_> {
    fn load(&mut self) -> Result<Findings, CliError> {
        let (readers, memory) = self.create()?;
        let (began, before) = self.begin()?;
        self.write("puts", self.spec.stop)?;
        self.finish(readers, memory, began, &before)
    }

    fn idle(&mut self, keys: u64, baseline: Duration) -> Result<Findings, CliError> {
        // Memory first: memory that the puts have left free in the servers would hide the watchers'
        // share.
        let (readers, memory) = self.create()?;
        readers.stop()?;
        self.write_unwatched("before", keys, RunLimit::At(baseline))?;
        let readers = self.start_readers()?;
        let (began, before) = self.begin()?;
        self.write_unwatched("with watchers", keys, self.spec.stop)?;
        let findings = self.finish(readers, memory, began, &before)?;
        // Independent changes, because the store grows or the machine is busy, show in both.
        self.write_unwatched("after", keys, RunLimit::At(baseline))?;
        Ok(findings)
    }

    fn stall(&mut self, stall: Duration, baseline: Duration) -> Result<Findings, CliError> {
        let (readers, memory) = self.create()?;
        let (began, before) = self.begin()?;
        self.write("reading", RunLimit::At(baseline))?;
        // Latencies are measured while every watcher reads; the wait for a stalled reader is not
        // the server's.
        readers.measure_latency(false);
        readers.hold();
        self.write("stalled", RunLimit::At(stall))?;
        readers.resume();
        self.write("resumed", self.spec.stop)?;
        self.finish(readers, memory, began, &before)
    }

    /// Creates all watchers. Also returns the servers' memory before and after.
    fn create(&self) -> Result<(Readers, MemoryPoints), CliError> {
        let before = self.settled_memory()?;
        let readers = self.start_readers()?;
        let created = self.settled_memory()?;
        Ok((readers, MemoryPoints { before, created, ..MemoryPoints::default() }))
    }

    fn start_readers(&self) -> Result<Readers, CliError> {
        let progress = self.progress("watchers", Some(self.layout.watchers_total()));
        Readers::start(self.layout.clone(), self.clock, self.client.timeout, progress)
    }

    fn settled_memory(&self) -> Result<Vec<u64>, CliError> {
        if !self.spec.common.pids.is_empty() {
            std::thread::sleep(SETTLE);
        }
        self.memory.now().map_err(CliError::Finding)
    }

    fn begin(&self) -> Result<(u64, cpu::Sample), CliError> {
        let before = cpu::Sample::take(&self.spec.common.pids).map_err(CliError::Usage)?;
        Ok((self.clock.nanos(), before))
    }

    /// Writes to the watched keys in their order, again and again until `stop`. The ledger records
    /// the puts.
    fn write(&mut self, what: &'static str, stop: RunLimit) -> Result<(), CliError> {
        let workload = self.workload(self.layout.keys.clone(), Some(self.clock));
        self.drive(what, workload, stop, Some(Arc::clone(&self.ledger)))
    }

    /// Writes to keys without watchers, as `bench put` does.
    fn write_unwatched(&mut self, what: &'static str, keys: u64, stop: RunLimit) -> Result<(), CliError> {
        // No watched key begins so: they have a digit after the prefix.
        let prefix = format!("{}-", self.spec.common.prefix);
        let size = self.spec.common.key_size.max(prefix.len() + keys.to_string().len());
        let keys = Keys::new(&prefix, size, keys).map_err(CliError::Usage)?;
        let workload = Workload { sequential: false, ..self.workload(keys, None) };
        self.drive(what, workload, stop, None)
    }

    fn workload(&self, keys: Keys, clock: Option<Clock>) -> Workload {
        let value = Bytes::from(vec![b'x'; self.spec.common.val_size]);
        Workload { kind: Kind::Put, keys, value, clock, serializable: false, sequential: true, leases: Arc::default() }
    }

    fn drive(
        &mut self,
        what: &'static str,
        workload: Workload,
        stop: RunLimit,
        ledger: Option<Arc<Ledger>>,
    ) -> Result<(), CliError> {
        let outcome: Outcome = drive::run(drive::Plan {
            endpoints: Arc::clone(&self.endpoints),
            workload,
            clients: self.spec.clients,
            conns: self.spec.clients.min(self.spec.write_conns_max),
            threads: 1,
            stop,
            rate: self.spec.rate,
            seed: self.phases.len() as u64 + 1,
            timeout: self.client.timeout,
            work: Duration::ZERO,
            progress: (!self.spec.common.quiet).then_some(what),
            ledger,
        })?;
        self.phases.push(Phase::new(what, &outcome));
        Ok(())
    }

    /// Waits for the last events, ends the streams, and judges.
    fn finish(
        &self,
        readers: Readers,
        memory: MemoryPoints,
        began: u64,
        before: &cpu::Sample,
    ) -> Result<Findings, CliError> {
        let expected = self.ledger.expected();
        readers.wait_received(expected, self.client.timeout, || self.progress("events", Some(expected)));
        // The reason for the end of a stream says more than its consequences.
        readers.check()?;
        let spent = before.until_now().map_err(CliError::Finding)?;
        let memory =
            MemoryPoints { end: self.memory.now().map_err(CliError::Finding)?, peaks: self.memory.peaks(), ..memory };
        std::thread::sleep(LINGER);
        let (received, last) = (readers.received(), readers.last_event());
        let found = readers.stop()?;
        Ok(Findings {
            expected,
            received,
            seconds: last.saturating_sub(began) as f64 / 1e9,
            verdict: self.judge(&found),
            latency: found.latency,
            spent,
            memory,
        })
    }

    fn judge(&self, found: &Found) -> Verdict {
        let mut verdict = Verdict::default();
        for (stream, watchers) in found.seen.iter().enumerate() {
            for (watcher, seen) in watchers.iter().enumerate() {
                let key = self.layout.key_of(stream, watcher);
                if let Some(fault) = self.ledger.judge(key, seen) {
                    let endpoint = self.layout.endpoint_of_stream(stream);
                    verdict.add(|| format!("watcher {watcher} of stream {stream} ({endpoint}, key {key})"), fault);
                }
            }
        }
        verdict
    }

    fn progress(&self, what: &'static str, total: Option<u64>) -> Progress {
        if self.spec.common.quiet { Progress::Off } else { Progress::new(what, total) }
    }
}
