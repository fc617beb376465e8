//! Processor time and memory of processes, from /proc.

use std::time::Duration;

use procfs::process::{Process, Stat, Status};
use procfs::{ProcError, ProcResult};
use serde::Serialize;

/// Processor time that this process and the servers had spent at one moment, seconds.
pub(super) struct Sample {
    client: f64,
    servers: Vec<(u32, f64)>,
}

/// Processor time of this process and of the servers since a sample, and the servers' memory at the
/// end of that time.
#[derive(Clone, Debug, Serialize)]
pub(super) struct CpuUsage {
    /// This process's processor time, seconds.
    pub(super) client_cpu_seconds: f64,
    /// Processor time and memory of the servers, in the order in which they were named.
    pub(super) servers: Vec<Server>,
}

/// Processor time and memory of one server.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Server {
    /// Id of the server's process.
    pub(super) pid: u32,
    /// Processor time since the sample, seconds.
    pub(super) cpu_seconds: f64,
    /// Resident memory now, bytes.
    pub(super) rss_bytes: u64,
    /// Most resident memory since the process started, bytes.
    pub(super) rss_peak_bytes: u64,
}

impl Sample {
    pub(super) fn take(pids: &[u32]) -> Result<Self, String> {
        let servers = pids.iter().map(|pid| Ok((*pid, seconds(&stat(*pid)?)))).collect::<Result<_, String>>()?;
        Ok(Self { client: seconds(&stat(std::process::id())?), servers })
    }

    pub(super) fn until_now(&self) -> Result<CpuUsage, String> {
        let servers = self.servers.iter().map(|(pid, before)| {
            let status = status(*pid)?;
            Ok(Server {
                pid: *pid,
                cpu_seconds: seconds(&stat(*pid)?) - before,
                rss_bytes: bytes(status.vmrss),
                rss_peak_bytes: bytes(status.vmhwm),
            })
        });
        Ok(CpuUsage {
            client_cpu_seconds: seconds(&stat(std::process::id())?) - self.client,
            servers: servers.collect::<Result<_, String>>()?,
        })
    }
}

/// Takes this much processor time on the calling thread. Time in which the thread does not run does
/// not count.
pub(super) fn work(time: Duration) {
    if time.is_zero() {
        return;
    }
    let end = thread_time() + time;
    while thread_time() < end {
        std::hint::spin_loop();
    }
}

/// Processor time that the calling thread has taken.
fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("the clock is never negative")
}

/// Resident memory of a process now, bytes.
pub(super) fn resident_bytes(pid: u32) -> Result<u64, String> {
    Ok(bytes(status(pid)?.vmrss))
}

fn status(pid: u32) -> Result<Status, String> {
    process(pid).and_then(|process| process.status()).map_err(|error| unreadable(pid, "status", &error))
}

fn stat(pid: u32) -> Result<Stat, String> {
    process(pid).and_then(|process| process.stat()).map_err(|error| unreadable(pid, "stat", &error))
}

fn process(pid: u32) -> ProcResult<Process> {
    Process::new(i32::try_from(pid).map_err(|error| ProcError::Other(error.to_string()))?)
}

fn unreadable(pid: u32, file: &str, error: &ProcError) -> String {
    format!("cannot read /proc/{pid}/{file}: {error}; is process {pid} running?")
}

/// User and system time, seconds.
fn seconds(stat: &Stat) -> f64 {
    (stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64
}

/// Memory in bytes, from the kilobytes that the kernel reports. 0 for a process that is ending, for
/// which it reports none.
fn bytes(kilobytes: Option<u64>) -> u64 {
    kilobytes.unwrap_or_default() * 1024
}

#[cfg(test)]
mod tests {
    use procfs::FromRead;

    use super::*;

    #[test]
    fn work_takes_processor_time() {
        let before = thread_time();
        work(Duration::from_millis(2));
        let taken = thread_time() - before;
        assert!(taken >= Duration::from_millis(2), "{taken:?}");
    }

    #[test]
    fn names_cannot_shift_the_fields() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 300 25 0 0 20 0 4 0 100 1 2 0 0 0 0 0 0 0 0 0 0 0 0 0 17 3 0 0 0 0 0 0 0 0 0 0 0 0 0";
        let stat = Stat::from_read(format!("42 (a) b (c) {rest}").as_bytes()).unwrap();
        assert_eq!(stat.utime + stat.stime, 325);
        assert!(Stat::from_read("42 (x) S 1".as_bytes()).is_err());
    }

    #[test]
    fn this_process_can_be_measured() {
        let pid = std::process::id();
        let spent = Sample::take(&[pid]).unwrap().until_now().unwrap();
        assert_eq!(spent.servers[0].pid, pid);
        assert!(spent.servers[0].rss_bytes > 0 && spent.servers[0].rss_peak_bytes >= spent.servers[0].rss_bytes);
        let error = Sample::take(&[u32::MAX]).err().unwrap();
        assert!(error.contains("is process 4294967295 running?"), "{error}");
    }
}
