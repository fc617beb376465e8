//! Arguments of `bench watch` and `bench watch-latency`, checked.

use std::time::Duration;

use clap::Args;

use super::super::clock::STAMP_BYTES;
use super::super::drive::RunLimit;
use crate::error::CliError;
use headwater_server::config::parse_size;

/// Measures how fast events reach watchers, and checks that each gets every event of its key, once
/// and in order.
#[derive(Clone, Debug, Args)]
pub(crate) struct WatchArgs {
    /// gRPC streams
    #[arg(long, default_value_t = 10, value_name = "NUMBER")]
    streams: usize,
    /// Watchers on each stream
    #[arg(long, default_value_t = 10, value_name = "NUMBER")]
    watchers: usize,
    /// Different keys that are watched: 1 is one key for everybody, --streams times --watchers a
    /// key for each
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    watch_keys: u64,
    /// Puts under way at once
    #[arg(long, default_value_t = 16, value_name = "NUMBER")]
    clients: usize,
    /// Puts a second at most; 0 is no limit
    #[arg(long, default_value_t = 0, value_name = "NUMBER")]
    rate: u64,
    /// Write to keys that nobody watches: first without the watchers, then with them, then without
    /// them again
    #[arg(long, conflicts_with = "stall")]
    idle: bool,
    /// Keys that nobody watches, with --idle
    #[arg(long, default_value_t = 100_000, value_name = "NUMBER")]
    keys: u64,
    /// Let all streams stop reading for so long, while writing goes on, then let them read
    /// everything
    #[arg(long, value_parser = crate::parse_duration, value_name = "DURATION")]
    stall: Option<Duration>,
    /// Duration of the same load before it, with --stall, or without the watchers, with --idle
    /// [default: as long as --stall, or as --duration]
    #[arg(long, value_parser = crate::parse_duration, value_name = "DURATION")]
    baseline: Option<Duration>,
    /// Fail if writing is slower by more percent than this while the streams do not read
    #[arg(long, default_value_t = 10.0, value_name = "PERCENT")]
    fall_max: f64,
    /// Fail if a server of --pids ever has more memory resident than this
    #[arg(long, value_parser = parse_size, requires = "pids", value_name = "SIZE")]
    rss_max: Option<u64>,
    #[command(flatten)]
    common: CommonArgs,
}

/// Measures how long an event takes from the put to the watcher.
///
/// Latency counts from the moment at which the put was due. The put's own latency is shown beside
/// it.
#[derive(Clone, Debug, Args)]
pub(crate) struct WatchLatencyArgs {
    /// gRPC streams
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    streams: usize,
    /// Watchers on each stream
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    watchers: usize,
    /// Different keys that are watched, one after the other
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    watch_keys: u64,
    /// Puts under way at once at most, on one connection
    #[arg(long, default_value_t = 16, value_name = "NUMBER")]
    clients: usize,
    /// Puts a second; 0 is as fast as possible
    #[arg(long, default_value_t = 100, value_name = "NUMBER")]
    rate: u64,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(Clone, Debug, Args)]
pub(super) struct CommonArgs {
    /// Connections that carry the streams, spread over the endpoints [default: one for every 50
    /// streams, and at least one to each endpoint]
    #[arg(long, value_name = "NUMBER")]
    conns: Option<usize>,
    /// Stop writing after so many puts
    #[arg(long, conflicts_with = "duration", value_name = "NUMBER")]
    total: Option<u64>,
    /// Stop writing after so long; with --stall, so long after reading was resumed [default: 10s]
    #[arg(long, value_parser = crate::parse_duration, value_name = "DURATION")]
    duration: Option<Duration>,
    /// Prefix of every watched key
    #[arg(long, default_value = "watch/", value_name = "TEXT")]
    pub(super) prefix: String,
    /// Bytes of a key, prefix included
    #[arg(long, default_value_t = 24, value_name = "BYTES")]
    pub(super) key_size: usize,
    /// Bytes of a value
    #[arg(long, default_value_t = 256, value_name = "BYTES")]
    pub(super) val_size: usize,
    /// Threads that read events; one more writes
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    threads: usize,
    /// Servers whose processor time and memory are reported
    #[arg(long, value_delimiter = ',', value_name = "PID,…")]
    pub(super) pids: Vec<u32>,
    /// End successfully although puts failed. Events that are missing, too many or out of order
    /// remain a failure
    #[arg(long)]
    pub(super) allow_errors: bool,
    /// Show no progress
    #[arg(long, short)]
    pub(super) quiet: bool,
}

/// The kind of a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Mode {
    /// Write to the watched keys while all watchers read.
    Load,
    /// Write to unwatched keys, without and with watchers of other keys.
    Idle {
        /// Keys to write to.
        keys: u64,
        /// Length of each measurement without the watchers, before and after.
        baseline: Duration,
    },
    /// Write to the watched keys while all watchers read, then while none reads, then again while
    /// all read.
    Stall {
        /// Length of the stall.
        stall: Duration,
        /// Length of the measurement before it, with all watchers reading.
        baseline: Duration,
        /// Largest accepted fall of the rate of writes, percent.
        fall_percent_max: f64,
    },
}

/// The checked arguments of a measurement.
#[derive(Clone, Debug)]
pub(super) struct Spec {
    pub(super) name: &'static str,
    pub(super) mode: Mode,
    pub(super) streams: usize,
    pub(super) watchers: usize,
    pub(super) watch_keys: u64,
    /// Connections of the streams, if the user chose.
    pub(super) conns: Option<usize>,
    pub(super) threads: usize,
    pub(super) clients: usize,
    /// Largest number of connections that the writers open. They never open more than `clients`.
    pub(super) write_conns_max: usize,
    pub(super) rate: u64,
    pub(super) stop: RunLimit,
    pub(super) rss_bytes_max: Option<u64>,
    pub(super) common: CommonArgs,
}

const DURATION: Duration = Duration::from_secs(10);

impl WatchArgs {
    pub(super) fn spec(self) -> Result<Spec, CliError> {
        let duration = self.common.duration.unwrap_or(DURATION);
        let mode = match (self.idle, self.stall) {
            (true, _) => Mode::Idle { keys: self.keys, baseline: self.baseline.unwrap_or(duration) },
            (false, Some(stall)) => {
                let baseline = self.baseline.unwrap_or(stall);
                Mode::Stall { stall, baseline, fall_percent_max: self.fall_max }
            }
            (false, None) if self.baseline.is_some() => {
                return Err(CliError::Usage("--baseline needs --stall or --idle".to_owned()));
            }
            (false, None) => Mode::Load,
        };
        let spec = Spec {
            name: "watch",
            mode,
            streams: self.streams,
            watchers: self.watchers,
            watch_keys: self.watch_keys,
            conns: self.common.conns,
            threads: self.common.threads,
            clients: self.clients,
            write_conns_max: super::super::CONNS_MAX,
            rate: self.rate,
            stop: self.common.stop(),
            rss_bytes_max: self.rss_max,
            common: self.common,
        };
        spec.checked()
    }
}

impl WatchLatencyArgs {
    pub(super) fn spec(self) -> Result<Spec, CliError> {
        let spec = Spec {
            name: "watch-latency",
            mode: Mode::Load,
            streams: self.streams,
            watchers: self.watchers,
            watch_keys: self.watch_keys,
            conns: self.common.conns,
            threads: self.common.threads,
            clients: self.clients,
            write_conns_max: 1,
            rate: self.rate,
            stop: self.common.stop(),
            rss_bytes_max: None,
            common: self.common,
        };
        spec.checked()
    }
}

impl CommonArgs {
    fn stop(&self) -> RunLimit {
        match (self.total, self.duration) {
            (Some(total), _) => RunLimit::After(total),
            (None, duration) => RunLimit::At(duration.unwrap_or(DURATION)),
        }
    }
}

impl Spec {
    fn checked(self) -> Result<Self, CliError> {
        let (idle_keys, fall) = match self.mode {
            Mode::Load => (1, 0.0),
            Mode::Idle { keys, .. } => (keys, 0.0),
            Mode::Stall { fall_percent_max, .. } => (1, fall_percent_max),
        };
        let above_zero = [
            ("--streams", self.streams as u64),
            ("--watchers", self.watchers as u64),
            ("--watch-keys", self.watch_keys),
            ("--clients", self.clients as u64),
            ("--conns", self.conns.unwrap_or(1) as u64),
            ("--threads", self.threads as u64),
            ("--keys", idle_keys),
            ("--total", self.common.total.unwrap_or(1)),
        ];
        let refused = |why: String| Err(CliError::Usage(why));
        if let Some((flag, _)) = above_zero.iter().find(|(_, value)| *value == 0) {
            return refused(format!("{flag} must be above zero"));
        }
        let all = (self.streams as u64).saturating_mul(self.watchers as u64);
        if self.watch_keys > all {
            let why = "or some keys are watched by nobody; for such keys there is --idle";
            return refused(format!("--watch-keys must be at most --streams times --watchers ({all}), {why}"));
        }
        if self.common.val_size < STAMP_BYTES {
            return refused(format!(
                "--val-size must be at least {STAMP_BYTES}: a value begins with the time of its put"
            ));
        }
        if fall.is_nan() || fall < 0.0 {
            return refused("--fall-max must not be negative".to_owned());
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        watch: WatchArgs,
    }

    fn spec(line: &str) -> Result<Spec, String> {
        let words = ["x"].into_iter().chain(line.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        line.watch.spec().map_err(|error| error.to_string())
    }

    #[test]
    fn the_mode_follows_from_the_flags() {
        let seconds = Duration::from_secs;
        for (line, wanted) in [
            ("", Mode::Load),
            ("--idle", Mode::Idle { keys: 100_000, baseline: seconds(10) }),
            ("--idle --duration 3s --keys 5", Mode::Idle { keys: 5, baseline: seconds(3) }),
            (
                "--stall 60s --baseline 5s --fall-max 20",
                Mode::Stall { stall: seconds(60), baseline: seconds(5), fall_percent_max: 20.0 },
            ),
            ("--stall 4s", Mode::Stall { stall: seconds(4), baseline: seconds(4), fall_percent_max: 10.0 }),
        ] {
            assert_eq!(spec(line).unwrap().mode, wanted, "{line:?}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (line, text) in [
            ("--streams 0", "--streams must be above zero"),
            ("--watch-keys 101", "at most --streams times --watchers (100)"),
            ("--val-size 7", "--val-size must be at least 8"),
            ("--baseline 1s", "--baseline needs --stall or --idle"),
            ("--stall 1s --idle", "cannot be used with"),
            ("--stall 1s --fall-max=-1", "--fall-max must not be negative"),
            ("--idle --keys 0", "--keys must be above zero"),
            ("--rss-max 1GiB", "--pids"),
            ("--rss-max 1 --pids 1", "is not a size"),
            ("--total 0", "--total must be above zero"),
        ] {
            let error = spec(line).unwrap_err();
            assert!(error.contains(text), "{line:?}: {error}");
        }
    }
}
