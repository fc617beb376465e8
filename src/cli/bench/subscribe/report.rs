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
    pub(super) delivered: u64,
    pub(super) missing: u64,
    pub(super) changes_failed: u64,
    pub(super) writes_per_second_alone: f64,
    pub(super) writes_per_second_with_subscriptions: f64,
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

    fn fall_percent(&self) -> f64 {
        100.0 * (1.0 - self.writes_per_second_with_subscriptions / self.writes_per_second_alone)
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
            "  writes: {:.0}/s alone, {:.0}/s with the subscriptions: {:.1} % fewer",
            self.writes_per_second_alone,
            self.writes_per_second_with_subscriptions,
            self.fall_percent()
        )?;
        writeln!(
            out,
            "  all live after {} ms, and after {} ms when they came back at once",
            self.all_live_ms, self.all_live_again_ms
        )?;
        if let Some(bytes) = self.bytes_per_subscription {
            let resident: Vec<_> = self.resident_bytes.iter().map(|bytes| human_bytes(*bytes)).collect();
            writeln!(out, "  memory: {} an idle subscription; {} resident", human_bytes(bytes), resident.join(", "))?;
        }
        latency_table(out, [("fresh", &self.fresh), ("delivery", &self.delivery)].into_iter())
    }
}
