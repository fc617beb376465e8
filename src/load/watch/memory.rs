//! Resident memory of the servers, and the most that was seen of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::super::cpu;
use crate::notice;

const BETWEEN_SAMPLES: Duration = Duration::from_millis(100);

/// Samples the servers' memory at intervals.
pub(super) struct Memory {
    shared: Arc<Shared>,
    sampler: Option<JoinHandle<()>>,
}

struct Shared {
    pids: Vec<u32>,
    peaks: Vec<AtomicU64>,
    is_over: AtomicBool,
}

impl Memory {
    /// Starts the sampler.
    ///
    /// # Errors
    ///
    /// The text of the error if a process cannot be read.
    pub(super) fn watch(pids: &[u32]) -> Result<Self, String> {
        let shared = Arc::new(Shared {
            pids: pids.to_vec(),
            peaks: pids.iter().map(|_| AtomicU64::new(0)).collect(),
            is_over: AtomicBool::new(false),
        });
        shared.sample()?;
        let sampler = Arc::clone(&shared);
        let sampler = std::thread::spawn(move || {
            while !sampler.is_over.load(Ordering::Relaxed) {
                // A server that has ended shows in all other results.
                if sampler.sample().is_err() {
                    return;
                }
                std::thread::sleep(BETWEEN_SAMPLES);
            }
        });
        Ok(Self { shared, sampler: Some(sampler) })
    }

    /// Resident memory now, bytes, in the order of the pids.
    pub(super) fn now(&self) -> Result<Vec<u64>, String> {
        self.shared.sample()
    }

    /// Most resident memory in any sample since [`watch`](Self::watch), bytes, in the order of the
    /// pids.
    pub(super) fn peaks(&self) -> Vec<u64> {
        self.shared.peaks.iter().map(|peak| peak.load(Ordering::Relaxed)).collect()
    }
}

impl Shared {
    fn sample(&self) -> Result<Vec<u64>, String> {
        let servers = self.pids.iter().zip(&self.peaks).map(|(pid, peak)| {
            let bytes = cpu::resident_bytes(*pid)?;
            peak.fetch_max(bytes, Ordering::Relaxed);
            Ok(bytes)
        });
        servers.collect()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        if let Some(sampler) = self.sampler.take()
            && sampler.join().is_err()
        {
            notice!("the thread that looks at the servers' memory panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_is_remembered() {
        let memory = Memory::watch(&[std::process::id()]).unwrap();
        let now = memory.now().unwrap();
        assert!(now[0] > 0 && memory.peaks()[0] >= now[0]);
        assert!(Memory::watch(&[u32::MAX]).is_err());
    }
}
