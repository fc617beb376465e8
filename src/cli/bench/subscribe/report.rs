//! What a run came to, for people and as JSON.

use std::io::Write;

use serde::Serialize;

use super::super::report::{Latency, latency_table};
use crate::cli::error::CliError;
use crate::cli::output::{WriteOut, human_bytes, print_json};

/// What a run came to.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    pub(super) instances: usize,
    pub(super) services: usize,
    pub(super) subscriptions: usize,
    pub(super) conns: usize,
    pub(super) rate: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) registrations_per_second: Option<f64>,
    /// One subscription after the other, until the state was complete, microseconds.
    pub(super) fresh: Latency,
    /// From the time at which a change was due until it was read, microseconds.
    pub(super) delivery: Latency,
    /// The same while keys are written as fast as it goes.
    pub(super) delivery_beside_writes: Latency,
    /// All of both.
    pub(super) delivered: u64,
    pub(super) missing: u64,
    pub(super) changes_failed: u64,
    /// Of keys: without anything else, beside the changes, and beside the changes with all subscriptions.
    pub(super) writes_per_second_alone: f64,
    pub(super) writes_per_second_with_changes: f64,
    pub(super) writes_per_second_with_subscriptions: f64,
    /// Processor time of all servers, microseconds, while nothing else is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cpu_us_per_change: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cpu_us_per_change_with_subscriptions: Option<f64>,
    pub(super) all_live_ms: u64,
    pub(super) all_live_again_ms: u64,
    /// With all subscriptions idle, server by server.
    pub(super) resident_bytes: Vec<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bytes_per_subscription: Option<u64>,
}

impl Report {
    pub(super) fn print(&self, format: WriteOut) -> Result<(), CliError> {
        let mut out = std::io::stdout();
        match format {
            WriteOut::Json => print_json(&mut out, self),
            WriteOut::Simple | WriteOut::Table => self.print_text(&mut out),
        }
    }

    /// How much smaller a number is than the writes alone, percent.
    fn fall_percent(&self, writes: f64) -> f64 {
        100.0 * (1.0 - writes / self.writes_per_second_alone)
    }

    fn print_text(&self, out: &mut impl Write) -> Result<(), CliError> {
        let Self { instances, services, subscriptions, conns, rate, delivered, missing, .. } = self;
        writeln!(
            out,
            "subscribe: {instances} instances of {services} services, {subscriptions} subscriptions, {conns} connections"
        )?;
        if let Some(registrations) = self.registrations_per_second {
            writeln!(out, "  registered at {registrations:.0}/s")?;
        }
        writeln!(
            out,
            "  {rate} changes a second: {delivered} deliveries, {missing} missing, {} changes failed",
            self.changes_failed
        )?;
        writeln!(
            out,
            "  writes of keys: {:.0}/s alone, {:.0}/s beside the changes, {:.0}/s with the subscriptions as well: {:.1} % fewer,",
            self.writes_per_second_alone,
            self.writes_per_second_with_changes,
            self.writes_per_second_with_subscriptions,
            self.fall_percent(self.writes_per_second_with_subscriptions)
        )?;
        writeln!(
            out,
            "    {:.1} % if the changes, which are writes, are counted, {:.1} % of it for the subscriptions",
            self.fall_percent(self.writes_per_second_with_subscriptions + *rate as f64),
            100.0 * (self.writes_per_second_with_changes - self.writes_per_second_with_subscriptions)
                / self.writes_per_second_alone
        )?;
        if let (Some(alone), Some(subscribed)) = (self.cpu_us_per_change, self.cpu_us_per_change_with_subscriptions) {
            writeln!(
                out,
                "  a change takes the servers {alone:.0} us of processor time, {subscribed:.0} us with the subscriptions"
            )?;
        }
        writeln!(
            out,
            "  all live after {} ms, and after {} ms when they came back at once",
            self.all_live_ms, self.all_live_again_ms
        )?;
        if let Some(bytes) = self.bytes_per_subscription {
            let resident: Vec<_> = self.resident_bytes.iter().map(|bytes| human_bytes(*bytes)).collect();
            writeln!(out, "  memory: {} an idle subscription; {} resident", human_bytes(bytes), resident.join(", "))?;
        }
        let deliveries = [("delivery", &self.delivery), ("delivery beside writes", &self.delivery_beside_writes)];
        latency_table(out, [("fresh", &self.fresh)].into_iter().chain(deliveries))
    }
}
