//! The result of a run, for people and as JSON.

use std::io::Write;

use serde::Serialize;

use super::super::report::{Latency, latency_table};
use crate::error::CliError;
use crate::output::{WriteOut, human_bytes, print_json};

/// Result of a run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    pub(super) instances: usize,
    pub(super) services: usize,
    pub(super) subscriptions: usize,
    pub(super) conns: usize,
    pub(super) rate: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) registrations_per_second: Option<f64>,
    /// Time from the request of a subscription until its first state was complete, microseconds;
    /// one subscription after the other.
    pub(super) fresh: Latency,
    /// Time from the moment at which a change was due until a subscriber had read it, microseconds.
    pub(super) delivery: Latency,
    /// As `delivery`, while keys are written as fast as possible.
    pub(super) delivery_beside_writes: Latency,
    /// Deliveries that `delivery` and `delivery_beside_writes` measure, count.
    pub(super) delivered: u64,
    pub(super) missing: u64,
    pub(super) changes_failed: u64,
    /// Speed of writes of keys before there are subscriptions.
    pub(super) writes: Writing,
    /// Speed of writes of keys while all subscriptions are open.
    pub(super) writes_with_subscriptions: Writing,
    /// Processor time of all servers for a change, microseconds, before there are subscriptions and
    /// while no keys are written. `None` without `--pids`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cpu_us_per_change: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cpu_us_per_change_with_subscriptions: Option<f64>,
    pub(super) all_live_ms: u64,
    pub(super) all_live_again_ms: u64,
    /// Resident memory of each server with all subscriptions open and idle, bytes.
    pub(super) resident_bytes: Vec<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bytes_per_subscription: Option<u64>,
}

/// Speed of writes of keys, without and with changes of health. Medians over the rounds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Writing {
    pub(super) per_second_alone: f64,
    pub(super) per_second_with_changes: f64,
    /// Loss of speed by the changes, percent: of the phase with changes, compared with the phase
    /// without them in the same round. Negative for a gain.
    pub(super) fall_percent: f64,
}

impl Writing {
    /// The medians of writes a second, `alone` and `beside` changes of health, with one element for
    /// each round.
    pub(super) fn of(alone: &[f64], beside: &[f64]) -> Self {
        let falls: Vec<f64> = alone.iter().zip(beside).map(|(alone, beside)| 100.0 * (1.0 - beside / alone)).collect();
        Self { per_second_alone: median(alone), per_second_with_changes: median(beside), fall_percent: median(&falls) }
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        len if len % 2 == 0 => f64::midpoint(sorted[middle - 1], sorted[middle]),
        _ => sorted[middle],
    }
}

impl Report {
    pub(super) fn print(&self, format: WriteOut) -> Result<(), CliError> {
        let mut out = std::io::stdout();
        match format {
            WriteOut::Json => print_json(&mut out, self),
            WriteOut::Simple | WriteOut::Table => self.print_text(&mut out),
        }
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
        let writings = [(self.writes, "nobody subscribes"), (self.writes_with_subscriptions, "all subscribe")];
        for (writing, when) in writings {
            let Writing { per_second_alone, per_second_with_changes, fall_percent } = writing;
            writeln!(
                out,
                "  writes of keys while {when}: {per_second_alone:.0}/s, beside the changes {per_second_with_changes:.0}/s: {fall_percent:.1} % fewer"
            )?;
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fall_is_that_of_the_turns_not_of_the_medians() {
        // The machine became slower: in every turn the changes took a tenth.
        let writing = Writing::of(&[1000.0, 500.0, 100.0], &[900.0, 450.0, 90.0]);
        assert!((writing.fall_percent - 10.0).abs() < 1e-9, "{writing:?}");
        assert_eq!((writing.per_second_alone, writing.per_second_with_changes), (500.0, 450.0));
        assert_eq!(median(&[4.0, 1.0]), 2.5);
    }
}
