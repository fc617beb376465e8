//! `headwater bench flush`: how long a disk needs until a majority of members have flushed a small
//! write. Threads of this process stand for the members; no server is asked.
//!
//! No put is acknowledged faster, and no event comes sooner, by any store that loses nothing: the
//! figures of `bench put` and `bench watch-latency` on the same disk are this time plus the
//! store's.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;

use super::drive::new_histogram;
use super::report::{Latency, latency_table};
use crate::error::CliError;
use crate::output::{self, WriteOut};
use crate::{ClientArgs, parse_duration};

/// Largest number of writers: a cluster has no more voters.
const WRITERS_MAX: usize = 9;

/// Flush small writes of several members on one disk: how long until most are through? No server is
/// asked
#[derive(Clone, Debug, clap::Args)]
pub(super) struct FlushArgs {
    /// Directory for the files, which are removed in the end
    #[arg(long, value_name = "DIRECTORY")]
    dir: PathBuf,
    /// Members that flush at the same time, each to a file of its own
    #[arg(long, default_value_t = 3, value_name = "NUMBER")]
    writers: usize,
    /// Bytes of a write
    #[arg(long, default_value_t = 512, value_name = "BYTES")]
    bytes: usize,
    /// Writes per second, for each member
    #[arg(long, default_value_t = 100, value_name = "NUMBER")]
    rate: u32,
    /// Duration of the measurement
    #[arg(long, default_value = "10s", value_parser = parse_duration, value_name = "DURATION")]
    duration: Duration,
}

/// Result of the measurement.
#[derive(Debug, Serialize)]
struct Report {
    workload: &'static str,
    dir: PathBuf,
    writers: usize,
    /// Number of writers that are a majority.
    majority: usize,
    bytes: usize,
    rate: u32,
    /// Time of one write, from its beginning until it is flushed, microseconds.
    flush_us: Latency,
    /// Time from the beginning of the first write of a round until a majority has flushed,
    /// microseconds.
    majority_us: Latency,
}

/// The beginning and the end of each write of one writer.
type Spans = Vec<(Instant, Instant)>;

pub(super) fn run(args: &FlushArgs, client: &ClientArgs) -> Result<(), CliError> {
    let rounds = (args.duration.as_secs_f64() * f64::from(args.rate)) as u32;
    if !(1..=WRITERS_MAX).contains(&args.writers) || args.bytes == 0 || args.rate == 0 || rounds == 0 {
        let why =
            format!("--writers is 1 to {WRITERS_MAX}, and --bytes, --rate and --duration allow for one write at least");
        return Err(CliError::Usage(why));
    }
    let in_dir = |error: std::io::Error| CliError::Usage(format!("{}: {error}", args.dir.display()));
    let folder = tempfile::Builder::new().prefix("headwater-flush-").tempdir_in(&args.dir).map_err(in_dir)?;
    let writers = measure(folder.path(), args, rounds).map_err(in_dir)?;
    let report = Report::new(args, &writers);
    folder.close().map_err(in_dir)?;
    report.print(client.write_out)
}

fn measure(folder: &Path, args: &FlushArgs, rounds: u32) -> std::io::Result<Vec<Spans>> {
    let period = Duration::from_secs(1) / args.rate;
    let together = Barrier::new(args.writers);
    let began = Instant::now();
    let write = |number: usize| {
        let file = File::create_new(folder.join(number.to_string()));
        let bytes = vec![b'x'; args.bytes];
        let mut spans = Spans::with_capacity(rounds as usize);
        for round in 0..rounds {
            thread::sleep((began + period * round).saturating_duration_since(Instant::now()));
            together.wait();
            // A thread that has failed still reaches the barrier, so that no thread waits in vain.
            let Ok(mut file) = file.as_ref() else { continue };
            let start = Instant::now();
            if file.write_all(&bytes).and_then(|()| file.sync_data()).is_ok() {
                spans.push((start, Instant::now()));
            }
        }
        match file {
            Err(error) => Err(error),
            Ok(_) if spans.len() < rounds as usize => Err(std::io::Error::other("a write or its flush failed")),
            Ok(_) => Ok(spans),
        }
    };
    thread::scope(|scope| {
        let writers: Vec<_> = (0..args.writers).map(|number| scope.spawn(move || write(number))).collect();
        writers.into_iter().map(|writer| writer.join().expect("a writer does not panic")).collect()
    })
}

impl Report {
    fn new(args: &FlushArgs, writers: &[Spans]) -> Self {
        let majority = args.writers / 2 + 1;
        let (mut flushes, mut majorities) = (new_histogram(), new_histogram());
        for round in 0..writers[0].len() {
            let spans: Vec<(Instant, Instant)> = writers.iter().map(|spans| spans[round]).collect();
            spans.iter().for_each(|(start, end)| record(&mut flushes, *end - *start));
            record(&mut majorities, until_most(&spans, majority));
        }
        Self {
            workload: "flush",
            dir: args.dir.clone(),
            writers: args.writers,
            majority,
            bytes: args.bytes,
            rate: args.rate,
            flush_us: Latency::of(&flushes),
            majority_us: Latency::of(&majorities),
        }
    }

    fn print(&self, write_out: WriteOut) -> Result<(), CliError> {
        let mut out = std::io::stdout().lock();
        if write_out == WriteOut::Json {
            return output::print_json(&mut out, self);
        }
        let most = format!("{} of {}", self.majority, self.writers);
        latency_table(&mut out, [("one flush", &self.flush_us), (most.as_str(), &self.majority_us)].into_iter())?;
        Ok(writeln!(
            out,
            "no put is acknowledged faster than {most} members flush it; a put has a network and a store besides"
        )?)
    }
}

/// Time from the earliest beginning until `count` writes have ended.
fn until_most(spans: &[(Instant, Instant)], count: usize) -> Duration {
    let start = spans.iter().map(|(start, _)| *start).min();
    let mut ends: Vec<Instant> = spans.iter().map(|(_, end)| *end).collect();
    ends.sort();
    start.map_or(Duration::ZERO, |start| ends[count - 1] - start)
}

fn record(histogram: &mut Histogram<u64>, span: Duration) {
    histogram.saturating_record(u64::try_from(span.as_micros()).unwrap_or(u64::MAX));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_majority_is_through_when_the_slowest_of_it_is() {
        let zero = Instant::now();
        let at = |micros| zero + Duration::from_micros(micros);
        let spans = [(at(10), at(500)), (at(0), at(300)), (at(20), at(90))];
        for (count, micros) in [(1, 90), (2, 300), (3, 500)] {
            assert_eq!(until_most(&spans, count), Duration::from_micros(micros), "{count}");
        }
    }

    #[test]
    fn every_write_is_counted_and_nothing_stays_behind() {
        let dir = tempfile::tempdir().unwrap();
        let args = FlushArgs {
            dir: dir.path().to_owned(),
            writers: 3,
            bytes: 512,
            rate: 1000,
            duration: Duration::from_millis(20),
        };
        let folder = tempfile::tempdir_in(dir.path()).unwrap();
        let writers = measure(folder.path(), &args, 20).unwrap();
        assert_eq!(std::fs::metadata(folder.path().join("2")).unwrap().len(), 20 * 512);
        drop(folder);
        assert!(writers.iter().all(|spans| spans.len() == 20));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        let gone = measure(&dir.path().join("gone"), &args, 2);
        assert_eq!(gone.unwrap_err().kind(), std::io::ErrorKind::NotFound);
    }
}
