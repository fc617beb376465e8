//! The command line, and the plan that it makes.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use rand::Rng;

use crate::enemy;
use crate::fault::{self, FAULTS, Fault, GROUPS, Need};
use crate::history::HISTORY;
use crate::rig::net::Kind;
use crate::rig::tool;
use crate::work::{Control, WORKLOADS, commit, rights};

/// Break a cluster on purpose, and prove that nothing was lost
///
/// Starts a cluster of real processes, lets clients work, breaks things by a schedule that follows
/// from the seed, heals them, and judges every answer that the clients received. The last line is
/// the verdict; the evidence stays in --dir.
#[derive(Clone, Debug, Parser)]
#[command(name = "scripts/chaos", max_term_width = 110, after_help = RUNS)]
pub(crate) struct Args {
    /// `list` prints every fault, group of faults, attack and workload
    #[arg(value_parser = ["list"])]
    command: Option<String>,
    /// Faults or groups of them, or all; see list [default: kills,pauses,partition; with --control
    /// the one that it needs]
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    fault: Vec<String>,
    /// Workloads; see list [default: all, rights only with --auth; with --control those that it
    /// needs]
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    workload: Vec<String>,
    /// Every fault that this machine allows; and every workload, unless --workload names some
    #[arg(long, conflicts_with = "fault")]
    all: bool,
    /// Both ports of all nodes speak TLS, and so does every client
    #[arg(long)]
    tls: bool,
    /// Clients must authenticate. Adds the workload rights, which changes the rights of users all
    /// the time, unless --workload names others
    #[arg(long, conflicts_with = "enemy")]
    auth: bool,
    /// An enemy attacks all nodes meanwhile, in every known way; see `chaos enemy --help`
    #[arg(long)]
    enemy: bool,
    /// How long faults are injected, minutes
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// Seed of the schedule and of all choices: repeats those of an earlier run [default: random]
    #[arg(long)]
    seed: Option<u64>,
    /// Number of nodes, three to seven: with fewer there is no majority without the broken node
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(3..=7))]
    nodes: u8,
    /// Makes something worse on purpose: the verdict must then be FAIL
    #[arg(long, value_enum)]
    control: Option<Control>,
    /// Folder for the evidence and the data; must not hold the history of another run [default: a
    /// new folder below the one for temporary files]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// The program under test [default: the one built beside this one]
    #[arg(long, env = "HEADWATER_BIN")]
    binary: Option<PathBuf>,
    /// The program of the next version, for the faults upgrade and upgrade-cycle
    #[arg(long, env = "HEADWATER_NEXT", value_name = "PROGRAM")]
    next: Option<PathBuf>,
    /// Moves the ports, for a second run beside the first (without root)
    #[arg(long, env = "HEADWATER_PORT_OFFSET", default_value_t = 0, allow_negative_numbers = true)]
    port_offset: i16,
    /// Use proxies even where network namespaces could be made
    #[arg(long)]
    proxies: bool,
    /// Nodes keep their whole Raft log, so that it can be replayed in the end; then no node needs a
    /// snapshot
    #[arg(long)]
    whole_log: bool,
    /// Only check whether the run could be made
    #[arg(long)]
    check: bool,
    /// Keep the nodes' data, too
    #[arg(long)]
    keep_data: bool,
}

/// Last part of the help: other command lines of `scripts/chaos`, which runs this program.
const RUNS: &str = "\
Runs that are put together, part of scripts/check:
  scripts/chaos --smoke     eight faults, once each, in a minute or two
  scripts/chaos --controls  every control must be found out by its checker
  scripts/chaos --mixed     members of two versions, upgraded and taken back between the faults
  scripts/chaos --lies      so must every lie about leases, rights and the enemy, in some minutes
  scripts/chaos enemy …     the enemy alone, against a cluster of your own";

/// The checked options of a run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub faults: Vec<&'static str>,
    /// Chosen faults that are left out, each with the reason.
    pub skipped: Vec<(&'static str, String)>,
    pub workloads: Vec<&'static str>,
    pub duration: Duration,
    pub seed: u64,
    pub nodes: usize,
    pub control: Option<Control>,
    pub tls: bool,
    pub auth: bool,
    pub enemy: bool,
    pub dir: PathBuf,
    pub binary: PathBuf,
    pub next: Option<PathBuf>,
    pub first_port: u16,
    pub proxies: bool,
    pub whole_log: bool,
    pub keep_data: bool,
    /// The command line that repeats this run, with its seed. Without folders, ports, the program
    /// under test and `--keep-data`.
    pub again: String,
}

/// Reason why `--all` leaves out faults that need a proxy.
const APART: &str = "it needs proxies, the others get namespaces; name it with --fault, or add --proxies";
/// First port without `--port-offset`: below the ports that Linux gives to outgoing connections.
const FIRST_PORT: u16 = 23_000;
/// By control: the fault, and the workloads (separated by commas), unless the command line names
/// others.
const CONTROL_FAULTS: [(Control, &str, &str); 22] = [
    (Control::NoFsync, "power-loss-all", "set,register"),
    (Control::DropWatchEvent, "kill", "watch"),
    (Control::UnfencedLock, "pause", "lock"),
    (Control::StaleRead, "partition-leader", "register"),
    (Control::LostWrite, "kill", "leases"),
    (Control::RefusedWrite, "kill", "leases"),
    (Control::RepeatedWrite, "kill", "leases"),
    (Control::WrongRevision, "kill", "leases"),
    (Control::WrongCompare, "kill", "leases"),
    (Control::WrongCount, "kill", "leases"),
    (Control::WrongBefore, "kill", "leases"),
    (Control::WrongRead, "kill", "leases"),
    (Control::LostRevoke, "kill", "leases"),
    (Control::SecretRevoke, "kill", "leases"),
    (Control::SecretDelete, "kill", "leases"),
    (Control::OpenDoor, "kill", "register"),
    (Control::IdleEnemy, "kill", "register"),
    (Control::BorrowedWatch, "kill", rights::NAME),
    (Control::BorrowedRead, "kill", rights::NAME),
    (Control::KeptRight, "kill", rights::NAME),
    (Control::HalfCommit, "kill", commit::NAME),
    (Control::Twice, "kill", commit::NAME),
];

impl Args {
    pub(crate) fn list(&self) -> bool {
        self.command.is_some()
    }

    /// Whether the program only checks that the run can be made.
    pub(crate) fn check(&self) -> bool {
        self.check
    }

    /// Checks the arguments, and makes the plan of the run.
    ///
    /// # Errors
    ///
    /// A description of the mistake, for the user.
    pub(crate) fn plan(&self) -> Result<Plan, String> {
        if !(self.minutes > 0.0 && self.minutes <= 10_000.0) {
            return Err("--minutes must lie above 0 and be at most 10000".to_owned());
        }
        let control = self.control.and_then(|control| CONTROL_FAULTS.iter().find(|(known, ..)| *known == control));
        let mut faults: Vec<&'static Fault> = Vec::new();
        let names: Vec<&str> = match (self.takes_all_faults(), self.fault.is_empty(), control) {
            (true, ..) => FAULTS.iter().map(|fault| fault.name).collect(),
            (false, false, _) => self.fault.iter().map(String::as_str).collect(),
            (false, true, Some((_, fault, _))) => vec![*fault],
            (false, true, None) => vec!["kills", "pauses", "partition"],
        };
        for name in names {
            let found =
                fault::named(name).ok_or_else(|| format!("there is no fault {name}; scripts/chaos list shows all"))?;
            faults.extend(found);
        }
        let (possible, impossible): (Vec<&Fault>, Vec<&Fault>) =
            faults.into_iter().partition(|fault| self.impossible(fault).is_none());
        let mut skipped: Vec<(&'static str, String)> =
            impossible.into_iter().map(|fault| (fault.name, self.impossible(fault).unwrap_or_default())).collect();
        // One kind of network for a run: faults that need a proxy must not take the namespaces from
        // the others.
        let elsewhere = |fault: &&Fault| {
            self.takes_all_faults()
                && !self.proxies
                && fault.needs(Need::Proxies)
                && fault::network() == Kind::Namespaces
        };
        let (apart, possible): (Vec<&Fault>, Vec<&Fault>) = possible.into_iter().partition(elsewhere);
        skipped.extend(apart.into_iter().map(|fault| (fault.name, APART.to_owned())));

        let workloads: Vec<&str> = match (self.workload.is_empty(), control) {
            (false, _) => self.workload.iter().map(String::as_str).collect(),
            (true, Some((.., workloads))) => workloads.split(',').collect(),
            // Without users there are no rights.
            (true, None) => WORKLOADS
                .iter()
                .map(|workload| workload.name)
                .filter(|name| self.auth || *name != rights::NAME)
                .collect(),
        };
        let mut known = Vec::new();
        for name in workloads {
            let workload = WORKLOADS.iter().find(|workload| workload.name == name);
            known.push(
                workload.ok_or_else(|| format!("there is no workload {name}; scripts/chaos list shows all"))?.name,
            );
        }
        let auth = self.auth || self.control.is_some_and(Control::needs_auth);
        if known.contains(&rights::NAME) && !auth {
            return Err("the workload rights needs --auth".to_owned());
        }
        if self.control == Some(Control::NoFsync) && tool::library("libeatmydata.so").is_none() {
            return Err("--control no-fsync needs libeatmydata; scripts/setup chaos installs it".to_owned());
        }
        let seed = self.seed.unwrap_or_else(|| rand::rng().random_range(0..1_000_000));
        let dir = self
            .dir
            .clone()
            .unwrap_or_else(|| std::env::temp_dir().join(format!("headwater-chaos-{seed}-{}", std::process::id())));
        if dir.join(HISTORY).exists() {
            return Err(format!("{} holds what another run left; name another --dir, or remove it", dir.display()));
        }
        let binary = self.binary.clone().or_else(beside).ok_or("no program to test; name it with --binary")?;
        if !binary.is_file() {
            return Err(format!(
                "{} is not there; scripts/chaos builds it, or name another with --binary",
                binary.display()
            ));
        }
        let binary = binary.canonicalize().map_err(|error| error.to_string())?;
        let found = |next: &PathBuf| next.canonicalize().map_err(|error| format!("{}: {error}", next.display()));
        let next = self.next.as_ref().map(found).transpose()?;
        Ok(Plan {
            faults: possible.iter().map(|fault| fault.name).collect(),
            skipped,
            workloads: known,
            duration: Duration::from_secs_f64(self.minutes * 60.0),
            seed,
            nodes: usize::from(self.nodes),
            control: self.control,
            tls: self.tls,
            auth,
            enemy: self.enemy || self.control.is_some_and(Control::needs_enemy),
            dir,
            binary,
            next,
            first_port: FIRST_PORT.saturating_add_signed(self.port_offset),
            proxies: self.proxies,
            whole_log: self.whole_log,
            keep_data: self.keep_data,
            again: self.again(seed),
        })
    }

    /// Whether `--all` or `--fault all` asks for every fault that this machine allows.
    fn takes_all_faults(&self) -> bool {
        self.all || self.fault.iter().any(|name| name == "all")
    }

    /// The reason why a fault cannot be injected in this run; `None` if it can.
    fn impossible(&self, fault: &Fault) -> Option<String> {
        let lacks_next = fault.needs(Need::Next) && self.next.is_none();
        let why = "it needs the next version's program: name it with --next, or use scripts/chaos --mixed";
        fault.impossible().or_else(|| lacks_next.then(|| why.to_owned()))
    }

    fn again(&self, seed: u64) -> String {
        let mut line = "scripts/chaos".to_owned();
        let mut add = |text: String| line.push_str(&format!(" {text}"));
        if self.all {
            add("--all".to_owned());
        }
        if !self.fault.is_empty() {
            add(format!("--fault {}", self.fault.join(",")));
        }
        if !self.workload.is_empty() {
            add(format!("--workload {}", self.workload.join(",")));
        }
        if let Some(value) = self.control.and_then(|control| clap::ValueEnum::to_possible_value(&control)) {
            add(format!("--control {}", value.get_name()));
        }
        if self.tls {
            add("--tls".to_owned());
        }
        if self.auth {
            add("--auth".to_owned());
        }
        if self.enemy {
            add("--enemy".to_owned());
        }
        if let Some(next) = &self.next {
            add(format!("--next {}", next.display()));
        }
        if self.proxies {
            add("--proxies".to_owned());
        }
        if self.whole_log {
            add("--whole-log".to_owned());
        }
        add(format!("--nodes {} --minutes {} --seed {seed}", self.nodes, self.minutes));
        line
    }
}

/// Path of the server in this program's folder, where both are built; it may not exist. `None` if
/// this program's own path is unknown.
fn beside() -> Option<PathBuf> {
    let exe = std::env::current_exe().ok()?;
    Some(exe.parent()?.join("headwater"))
}

/// Prints the faults, the groups of faults, the attacks and the workloads.
pub(crate) fn print_list() {
    println!("faults:");
    for fault in FAULTS {
        let note = fault.impossible().map_or_else(String::new, |why| format!("  [not here: {why}]"));
        let proxy = fault.needs(Need::Network) && fault::network() == Kind::Proxies;
        let proxy = proxy || fault.needs(Need::Proxies);
        let note = if proxy { "  [by proxies]".to_owned() } else { note };
        println!("  {:<18} {}{note}", fault.name, fault.help);
    }
    println!("groups of faults:");
    for (name, members) in GROUPS {
        println!("  {name:<18} {}", members.join(", "));
    }
    println!("attacks of the enemy (--enemy):");
    for attack in enemy::ATTACKS {
        let note = if attack.needs_tls { "  [with --tls]" } else { "" };
        println!("  {:<21} {}{note}", attack.name, attack.help);
    }
    println!("workloads:");
    for workload in WORKLOADS {
        println!("  {:<18} {}", workload.name, workload.help);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(line: &str) -> Result<Plan, String> {
        let own = std::env::current_exe().unwrap();
        let words = line.split_whitespace().chain(["--binary", own.to_str().unwrap()]);
        Args::try_parse_from(std::iter::once("chaos").chain(words)).map_err(|error| error.to_string())?.plan()
    }

    #[test]
    fn groups_are_unfolded_and_the_line_makes_the_run_again() {
        let line = "--fault kill-leader,partition --workload append --tls --enemy --nodes 5 --minutes 5 --seed 7";
        let made = plan(line).unwrap();
        assert_eq!(made.faults.len(), 5);
        assert_eq!(made.workloads, ["append"]);
        assert!(made.tls && made.enemy);
        assert_eq!(made.again, format!("scripts/chaos {line}"));
        assert_eq!(plan(made.again.strip_prefix("scripts/chaos").unwrap()).unwrap().faults, made.faults);
    }

    #[test]
    fn rights_are_a_workload_where_there_are_users() {
        let has_rights = |line: &str| plan(line).unwrap().workloads.contains(&rights::NAME);
        assert!(has_rights("--auth --fault kill") && !has_rights("--fault kill"));
        let some = plan("--workload append,set --all").unwrap();
        assert_eq!((&some.workloads[..], some.faults), (&["append", "set"][..], plan("--all").unwrap().faults));
        let made = plan("--workload rights,register --auth --seed 7").unwrap();
        assert!(made.auth && plan(made.again.strip_prefix("scripts/chaos").unwrap()).unwrap().auth);
        assert!(plan("--control kept-right").unwrap().auth);
    }

    #[test]
    fn what_another_run_left_is_not_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let line = format!("--fault kill --dir {}", dir.path().display());
        plan(&line).unwrap();
        std::fs::write(dir.path().join(HISTORY), "").unwrap();
        assert!(plan(&line).unwrap_err().contains("holds what another run left"));
    }

    #[test]
    fn every_control_has_a_fault_and_a_workload() {
        for control in <Control as clap::ValueEnum>::value_variants() {
            let (_, fault, workloads) = CONTROL_FAULTS.iter().find(|(known, ..)| known == control).unwrap();
            assert!(fault::named(fault).is_some(), "{control:?}");
            assert!(workloads.split(',').all(|name| WORKLOADS.iter().any(|known| known.name == name)), "{control:?}");
        }
    }

    #[test]
    fn what_only_a_proxy_breaks_takes_no_namespaces_from_the_rest() {
        let has = |line: &str| plan(line).unwrap().faults.contains(&"lossy-peers");
        assert!(has("--fault lossy-peers") && has("--all --proxies"));
        assert_eq!(has("--all"), fault::network() == Kind::Proxies);
    }

    #[test]
    fn mistakes_are_named() {
        for (line, wanted) in [
            ("--fault thunder", "there is no fault thunder"),
            ("--workload sleep", "there is no workload sleep"),
            ("--minutes 0", "--minutes must lie above 0"),
            ("--all --fault kill", "cannot be used with"),
            ("--nodes 2", "2 is not in 3..=7"),
            ("--nodes 8", "8 is not in 3..=7"),
            ("--auth --enemy", "cannot be used with"),
            ("--workload rights", "the workload rights needs --auth"),
        ] {
            let error = plan(line).unwrap_err();
            assert!(error.contains(wanted), "{line}: {error}");
        }
    }
}
