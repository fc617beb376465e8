//! The enemy's process, and the tally of its attacks.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use anyhow::Context;
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::node::command_line;
use crate::check::enemy::Tally;
use crate::enemy::AttackReport;

/// Options of the enemy's process.
pub(crate) struct EnemyOptions<'a> {
    pub seed: u64,
    pub without: &'a [&'static str],
    /// The attack that is replaced by a legal request. Only for a control: the checker must report
    /// that it was let through.
    pub harmless: Option<&'static str>,
}

/// A running enemy. Its process ends when this value is dropped.
pub(crate) struct Enemy {
    process: Child,
    tally: Arc<Mutex<BTreeMap<String, Tally>>>,
}

impl Enemy {
    /// Starts this program a second time, as the enemy, in `namespace`; `None` for the machine's
    /// own. Its reports are kept in `enemy.jsonl` below `dir`, its error output in `enemy.log`.
    pub(super) fn start(
        namespace: Option<String>,
        arguments: Vec<String>,
        options: &EnemyOptions<'_>,
        dir: &Path,
    ) -> anyhow::Result<Self> {
        let line = command_line(namespace.as_deref());
        let mut command = Command::new(&line[0]);
        command.args(&line[1..]).arg(std::env::current_exe()?).arg("enemy").args(arguments);
        command.args(["--seed", &options.seed.to_string()]);
        if !options.without.is_empty() {
            command.args(["--without", &options.without.join(",")]);
        }
        command.args(options.harmless.iter().flat_map(|name| ["--harmless", name]));
        let log = File::create(dir.join("enemy.log")).context("the enemy's log")?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).kill_on_drop(true).process_group(0);
        let mut process = command.spawn().context("the enemy")?;
        let output = process.stdout.take().context("the enemy's output")?;
        let tally = Arc::<Mutex<BTreeMap<String, Tally>>>::default();
        let mut file = File::create(dir.join("enemy.jsonl")).context("the enemy's output")?;
        let shared = Arc::clone(&tally);
        tokio::spawn(async move {
            let mut lines = BufReader::new(output).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                // Evidence; a full disk must not end the run.
                drop(std::io::Write::write_all(&mut file, format!("{line}\n").as_bytes()));
                if let Ok(report) = serde_json::from_str::<AttackReport>(&line) {
                    shared.lock().entry(report.attack.clone()).or_default().add(report);
                }
            }
        });
        Ok(Self { process, tally })
    }

    /// Outcomes so far, by attack.
    pub(crate) fn tally(&self) -> BTreeMap<String, Tally> {
        self.tally.lock().clone()
    }

    /// Ends the enemy; returns its exit status if it had ended by itself before.
    pub(crate) async fn stop(mut self) -> Option<String> {
        let ended = self.process.try_wait().ok().flatten().map(|status| status.to_string());
        // An error means that it had ended.
        drop(self.process.kill().await);
        ended
    }
}
