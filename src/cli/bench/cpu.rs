//! Processor time and memory of processes, from /proc.

use std::fs;

use serde::Serialize;

/// The kernel reports processor time to programs in hundredths of a second, whatever it counts in itself (proc(5)).
const TICKS_PER_SECOND: f64 = 100.0;

/// Processor time at one moment, seconds.
pub(super) struct Sample {
    client: f64,
    servers: Vec<(u32, f64)>,
}

/// What was spent since a sample.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Spent {
    /// This process's processor time, seconds.
    pub(super) client_cpu_seconds: f64,
    /// The servers', in the order in which they were named.
    pub(super) servers: Vec<Server>,
}

/// One server's share.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Server {
    /// The process.
    pub(super) pid: u32,
    /// Processor time spent, seconds.
    pub(super) cpu_seconds: f64,
    /// Resident memory now, bytes.
    pub(super) rss_bytes: u64,
    /// Most resident memory ever, bytes.
    pub(super) rss_peak_bytes: u64,
}

impl Sample {
    pub(super) fn take(pids: &[u32]) -> Result<Self, String> {
        let servers = pids.iter().map(|pid| Ok((*pid, seconds(&pid.to_string())?))).collect::<Result<_, String>>()?;
        Ok(Self { client: seconds("self")?, servers })
    }

    pub(super) fn until_now(&self) -> Result<Spent, String> {
        let servers = self.servers.iter().map(|(pid, before)| {
            let name = pid.to_string();
            let status = read(&name, "status")?;
            Ok(Server {
                pid: *pid,
                cpu_seconds: seconds(&name)? - before,
                rss_bytes: kilobytes(&status, "VmRSS:") * 1024,
                rss_peak_bytes: kilobytes(&status, "VmHWM:") * 1024,
            })
        });
        Ok(Spent {
            client_cpu_seconds: seconds("self")? - self.client,
            servers: servers.collect::<Result<_, String>>()?,
        })
    }
}

/// Resident memory of a process now, bytes.
pub(super) fn resident_bytes(pid: u32) -> Result<u64, String> {
    Ok(kilobytes(&read(&pid.to_string(), "status")?, "VmRSS:") * 1024)
}

fn read(pid: &str, file: &str) -> Result<String, String> {
    let path = format!("/proc/{pid}/{file}");
    fs::read_to_string(&path).map_err(|error| format!("cannot read {path}: {error}; is process {pid} running?"))
}

fn seconds(pid: &str) -> Result<f64, String> {
    let stat = read(pid, "stat")?;
    cpu_ticks(&stat)
        .map(|ticks| ticks as f64 / TICKS_PER_SECOND)
        .ok_or_else(|| format!("/proc/{pid}/stat is malformed"))
}

/// Fields 14 and 15, user and system time. The second field is a name that may hold anything, in parentheses.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

fn kilobytes(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_ascii_whitespace().next()?.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_shift_the_fields() {
        let stat = "42 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 300 25 0 0 20 0 4 0 100 1 2";
        assert_eq!(cpu_ticks(stat), Some(325));
        assert_eq!(cpu_ticks("42 (x) S 1"), None);
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
