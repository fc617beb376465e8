//! The enemy: one process that attacks a cluster in every known way, again and again by its seed,
//! and reports for each attack whether the node refused it.
//!
//! Has the attacks and their expected answers. Does not depend on faults, workloads or the rig,
//! which starts it as `chaos enemy`: it can also be started against another cluster
//! (`scripts/show-attacks`). Invariant: each attack cleans up after itself as far as the node
//! answers, and a refused attack writes no key.

mod attack;
mod certificates;
mod clients;
mod ground;
mod peers;
mod silence;
mod window;

use std::collections::BTreeMap;
use std::io::Write;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use futures::future::join_all;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

use attack::Raid;
pub(crate) use attack::{ATTACKS, Attack, Outcome, possible};
use ground::{Ground, NodeAddresses};

/// Ids of the enemy's leases. The run revokes the leases with these ids that exist after the enemy
/// has ended. A small part of all ids, because nodes choose the ids for other clients at random.
pub(crate) const LEASE_IDS: std::ops::Range<i64> = LEASES_FROM..LEASES_FROM + (1 << 44);
/// The first of [`LEASE_IDS`].
const LEASES_FROM: i64 = 0x6e65_0000_0000_0000;
/// Pause between two repetitions of one attack, milliseconds.
const PAUSE_MS: std::ops::Range<u64> = 200..1500;
/// Most attempts of one attack on one node with `--once`. The first clear answer ends the attempts.
const ATTEMPTS: usize = 5;
const AGAIN: Duration = Duration::from_secs(1);

/// Attack a cluster in every known way
///
/// Never attack a cluster of which you are not in charge. With --once every attack is made on every
/// node until it has an answer, at most five times, and a table is printed; the exit status is 1
/// unless every node has refused every attack. Without --once it attacks until it is told to stop.
#[derive(Debug, Parser)]
#[command(name = "scripts/chaos enemy", max_term_width = 110)]
pub(crate) struct EnemyArgs {
    /// Client ports, HOST:PORT
    #[arg(long, value_delimiter = ',', required = true)]
    clients: Vec<String>,
    /// Peer ports of the same nodes in the same order, HOST:PORT
    #[arg(long, value_delimiter = ',', required = true)]
    peers: Vec<String>,
    /// Folder of `headwater certs` with the keys of both authorities, if the ports speak TLS; nodes
    /// are named node1, node2 and so on
    #[arg(long)]
    certs: Option<PathBuf>,
    /// Address to connect from
    #[arg(long)]
    source: Option<IpAddr>,
    /// Seed of the random choices: attacked nodes, pauses, and forms of the attacks
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// These attacks instead of all
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    only: Vec<String>,
    /// All attacks but these
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    without: Vec<String>,
    /// Make each attack on each node until it has an answer, print a table, and end
    #[arg(long)]
    once: bool,
    /// An attack that is replaced by a legal request, so that the cluster lets it through; not with
    /// --once
    #[arg(long, hide = true)]
    harmless: Option<String>,
}

/// The outcome of one attempt of an attack on one node: a line of the enemy's output, as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct AttackReport {
    pub attack: String,
    /// Index of the attacked node in `--clients`.
    pub node: usize,
    pub outcome: Outcome,
}

/// Runs `chaos enemy`: attacks the nodes that `args` names, and prints the outcome of each attack.
/// Exit status: 2 after an error, 1 after `--once` unless every node refused every attack, else 0.
pub(crate) async fn run(args: EnemyArgs) -> ExitCode {
    match attack(args).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

async fn attack(args: EnemyArgs) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(args.clients.len() == args.peers.len(), "--clients and --peers name the same nodes");
    let addresses =
        args.clients.into_iter().zip(args.peers).map(|(client, peer)| NodeAddresses { client, peer }).collect();
    let ground = Arc::new(Ground::new(addresses, args.source, args.certs.as_deref())?);
    for name in args.only.iter().chain(&args.without).chain(&args.harmless) {
        anyhow::ensure!(ATTACKS.iter().any(|attack| attack.name == name), "there is no attack {name}");
    }
    let chosen = |attack: &&Attack| {
        let is = |names: &[String]| names.iter().any(|name| name == attack.name);
        (args.only.is_empty() || is(&args.only)) && !is(&args.without)
    };
    let chosen: Vec<&'static Attack> = possible(ground.has_tls()).filter(chosen).collect();
    if args.once {
        return once(&ground, &chosen, args.seed).await;
    }
    let harmless = args.harmless.as_deref();
    let loops = chosen.into_iter().enumerate().map(|(number, attack)| {
        let rng = StdRng::seed_from_u64(args.seed.wrapping_add(number as u64));
        repeat(Arc::clone(&ground), attack, rng, harmless == Some(attack.name))
    });
    join_all(loops).await;
    Ok(ExitCode::SUCCESS)
}

/// Makes an attack again and again, on nodes that `rng` chooses. Prints each outcome as an
/// [`AttackReport`]; ends when the output is closed.
async fn repeat(ground: Arc<Ground>, attack: &'static Attack, mut rng: StdRng, is_harmless: bool) {
    loop {
        let node = rng.random_range(0..ground.addresses.len());
        let pause = Duration::from_millis(rng.random_range(PAUSE_MS));
        // The draws of an attack depend on the cluster, and must not change later ones.
        let mut own = StdRng::seed_from_u64(rng.random());
        let mut raid = Raid { ground: &ground, node, rng: &mut own, is_harmless };
        let outcome = (attack.strike)(&mut raid).await;
        let report = AttackReport { attack: attack.name.to_owned(), node, outcome };
        let line = serde_json::to_string(&report).unwrap_or_default();
        if writeln!(std::io::stdout().lock(), "{line}").is_err() {
            return;
        }
        tokio::time::sleep(pause).await;
    }
}

/// Makes each attack on each node until its outcome is clear, at most [`ATTEMPTS`] times; prints a
/// table.
async fn once(ground: &Arc<Ground>, chosen: &[&'static Attack], seed: u64) -> anyhow::Result<ExitCode> {
    let count = ground.addresses.len();
    let all = chosen.iter().flat_map(|attack| (0..count).map(move |node| (*attack, node)));
    let raids = all.map(|(attack, node)| async move {
        let mut rng = StdRng::seed_from_u64(seed.wrapping_add(node as u64));
        let mut outcome = Outcome::Unclear("nothing was tried".to_owned());
        for _ in 0..ATTEMPTS {
            outcome = (attack.strike)(&mut Raid { ground, node, rng: &mut rng, is_harmless: false }).await;
            if !matches!(outcome, Outcome::Unclear(_)) {
                break;
            }
            tokio::time::sleep(AGAIN).await;
        }
        (attack.name, outcome)
    });
    let mut rows: BTreeMap<&str, Vec<Outcome>> = BTreeMap::new();
    for (name, outcome) in join_all(raids).await {
        rows.entry(name).or_default().push(outcome);
    }
    let mut out = std::io::stdout().lock();
    writeln!(out, "{:<21} {:>7} {:>8}  answer", "attack", "finding", "refused")?;
    let mut is_good = true;
    for attack in chosen {
        let outcomes = &rows[attack.name];
        let refused = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Refused(_))).count();
        is_good &= refused == count;
        let shown = outcomes.iter().find(|outcome| !matches!(outcome, Outcome::Refused(_))).or(outcomes.first());
        let (mark, text) = match shown {
            Some(Outcome::Refused(text)) => ("", text.as_str()),
            Some(Outcome::LetThrough(text)) => ("LET THROUGH: ", text.as_str()),
            Some(Outcome::Unclear(text)) => ("no answer: ", text.as_str()),
            None => ("", ""),
        };
        let finding = if attack.finding == 0 { "TLS".to_owned() } else { attack.finding.to_string() };
        let text: String = text.chars().take(110).collect();
        writeln!(out, "{:<21} {finding:>7} {:>8}  {mark}{text}", attack.name, format!("{refused}/{count}"))?;
    }
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
