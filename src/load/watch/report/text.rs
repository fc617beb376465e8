//! The report for people.

use std::io::Write;

use super::super::super::report::latency_table;
use super::Report;
use crate::error::CliError;
use crate::output::human_bytes;

/// Least number of watchers for which the memory of one is printed: fewer take less than a server's
/// memory varies by itself.
const WATCHERS_TO_MEASURE: u64 = 1000;

impl Report {
    pub(super) fn print_text(&self, out: &mut impl Write) -> Result<(), CliError> {
        let Self { workload, watchers, watch_keys, streams, conns, .. } = self;
        writeln!(out, "{workload}: watchers {watchers}, keys {watch_keys}, streams {streams}, connections {conns}")?;
        if self.events_expected + self.events_received > 0 {
            let Self { events_received, events_expected, seconds, events_per_second, .. } = self;
            writeln!(
                out,
                "  {events_received} of {events_expected} events in {seconds:.2} s = {events_per_second:.0}/s"
            )?;
        }
        for phase in &self.phases {
            writeln!(
                out,
                "  {}: {} puts in {:.2} s = {:.0}/s; {} clients, {} failed",
                phase.name, phase.puts, phase.seconds, phase.puts_per_second, self.clients, phase.failed
            )?;
        }
        let events = self.event_latency_us.iter().map(|latency| ("put to event", latency));
        let puts = self.put_latency_us.iter().map(|latency| ("put", latency));
        latency_table(out, events.chain(puts))?;
        if let Some(micros) = self.client_cpu_us_per_event {
            writeln!(out, "generator {micros:.2} us of processor time an event, puts included")?;
        }
        if let Some(micros) = self.server_cpu_us_per_event {
            writeln!(out, "servers {micros:.2} us of processor time an event, puts included")?;
        }
        if let Some(micros) = self.server_cpu_us_per_put {
            writeln!(out, "servers {micros:.1} us of processor time a put")?;
        }
        for server in &self.memory {
            let [before, created, end, peak] =
                [server.before_bytes, server.created_bytes, server.end_bytes, server.peak_bytes].map(human_bytes);
            writeln!(
                out,
                "  process {}: {before} resident, {created} with the watchers, {end} at the end, at most {peak}",
                server.pid
            )?;
        }
        if let Some(bytes) = self.rss_bytes_per_watcher.filter(|_| self.watchers >= WATCHERS_TO_MEASURE) {
            writeln!(out, "{bytes:.0} bytes a watcher, all servers together")?;
        }
        if let Some(percent) = self.put_drop_percent {
            let speed = 100.0 - percent;
            writeln!(
                out,
                "beside {} idle watchers writing ran at {speed:.1} % of its speed without them",
                self.watchers
            )?;
        }
        if let Some(ratio) = self.stalled_to_reading {
            let verdict = if self.problems.is_empty() { "holds" } else { "does not hold" };
            writeln!(
                out,
                "verdict: {verdict}; {} watchers did not read for {:.0} s, then {} every event once and in order; meanwhile \
                 writing ran at {:.0} % of its speed before; at most {} were resident",
                self.watchers,
                self.phases.iter().find(|phase| phase.name == "stalled").map_or(0.0, |phase| phase.seconds),
                if self.is_complete { "saw" } else { "did not see" },
                ratio * 100.0,
                self.memory.iter().map(|server| server.peak_bytes).max().map_or("unknown".to_owned(), human_bytes)
            )?;
        }
        Ok(())
    }
}
