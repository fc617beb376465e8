//! One node's process: start, signals, end, output.
//!
//! An incarnation is one run of the process, with its output until the next start. Invariant: an
//! end that the rig did not cause is recorded.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;

use anyhow::{Context, bail};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Command;
use tokio::sync::watch;

use super::tool;
use crate::check::crash::Incarnation;
use crate::client::Target;

/// Options of a node's starts. [`Node::set_arguments`] replaces `arguments` for later starts;
/// [`Node::run_next`] chooses between `binary` and `next`.
pub(crate) struct Launch {
    pub binary: PathBuf,
    /// The program of the next version; `None` for a run without an upgrade.
    pub next: Option<PathBuf>,
    pub arguments: Vec<String>,
    pub namespace: Option<String>,
    pub environment: Vec<(String, String)>,
    pub log: PathBuf,
}

/// A node and its process, if it runs.
pub(crate) struct Node {
    pub number: usize,
    pub target: Target,
    launch: Launch,
    state: Arc<Mutex<State>>,
}

struct State {
    incarnations: Vec<Running>,
    /// Arguments of later starts.
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    /// Whether the next start runs the next version's program.
    runs_next: bool,
}

struct Running {
    pid: Pid,
    /// Length of the node's log file when this incarnation began.
    log_from: u64,
    /// Exit status of the process, once it has ended.
    end: watch::Receiver<Option<ExitStatus>>,
    /// Whether the rig has sent the process a signal that ends it.
    wanted: bool,
    excused: bool,
}

impl Node {
    pub(crate) fn new(number: usize, target: Target, launch: Launch) -> Self {
        let (arguments, environment) = (launch.arguments.clone(), Vec::new());
        let state = State { incarnations: Vec::new(), arguments, environment, runs_next: false };
        Self { number, target, launch, state: Arc::new(Mutex::new(state)) }
    }

    pub(crate) fn log_path(&self) -> &Path {
        &self.launch.log
    }

    /// Sets environment variables for later starts, besides those in [`Launch`]. Replaces those of
    /// an earlier call.
    pub(crate) fn set_environment(&self, environment: &[(String, String)]) {
        self.state.lock().environment = environment.to_vec();
    }

    /// Sets the arguments of later starts.
    pub(crate) fn set_arguments(&self, arguments: Vec<String>) {
        self.state.lock().arguments = arguments;
    }

    /// Whether a start without data will make the node join a cluster.
    pub(crate) fn joins(&self) -> bool {
        self.state.lock().arguments.iter().any(|argument| argument == "--join")
    }

    /// Whether later starts run the next version's program; [`Self::run_next`] chooses it.
    pub(crate) fn runs_next(&self) -> bool {
        self.state.lock().runs_next
    }

    /// Chooses the program of later starts: the next version's (`next`), or the one under test. An
    /// error if the next version's is not known.
    pub(crate) fn run_next(&self, next: bool) -> anyhow::Result<()> {
        if next && self.launch.next.is_none() {
            bail!("the program of the next version is not named");
        }
        self.state.lock().runs_next = next;
        Ok(())
    }

    /// Starts the process and returns its id. An error if it runs already.
    pub(crate) fn start(&self) -> anyhow::Result<u32> {
        let mut state = self.state.lock();
        if state.incarnations.last().is_some_and(|incarnation| incarnation.end.borrow().is_none()) {
            bail!("node {} runs already", self.number + 1);
        }
        let log = OpenOptions::new().create(true).append(true).open(&self.launch.log).context("a node's log")?;
        let log_from = log.metadata()?.len();
        let variables: Vec<String> = self
            .launch
            .environment
            .iter()
            .chain(&state.environment)
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let line = command_line(self.launch.namespace.as_deref());
        let program = self.launch.next.as_ref().filter(|_| state.runs_next).unwrap_or(&self.launch.binary);
        let mut command = Command::new(&line[0]);
        // The run's networks are private. A variable, as older programs do not know the flag.
        command.env("HEADWATER_INSECURE", "true");
        command.args(&line[1..]).args(variables).arg(program).args(&state.arguments);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).kill_on_drop(true);
        // Ctrl-C ends the harness, which then ends the nodes.
        command.process_group(0);
        let mut child = command.spawn().with_context(|| self.launch.binary.display().to_string())?;
        let id = child.id().context("the process has ended")?;
        let pid = Pid::from_raw(id as i32).context("a process id")?;
        let (ended, end) = watch::channel(None);
        tokio::spawn(async move {
            let status = child.wait().await.ok();
            ended.send_replace(status.or(Some(ExitStatus::default())));
        });
        state.incarnations.push(Running { pid, log_from, end, wanted: false, excused: false });
        Ok(id)
    }

    /// Exit status of the last process, in words; `None` while it runs or before the first start.
    pub(crate) fn ended(&self) -> Option<String> {
        let state = self.state.lock();
        let incarnation = state.incarnations.last()?;
        let end = *incarnation.end.borrow();
        end.map(|status| status.to_string())
    }

    /// Whether the process runs. A paused process counts as running.
    pub(crate) fn runs(&self) -> bool {
        self.pid().is_some()
    }

    /// The id of the process; `None` if it does not run.
    fn pid(&self) -> Option<Pid> {
        let state = self.state.lock();
        let incarnation = state.incarnations.last()?;
        let has_ended = incarnation.end.borrow().is_some();
        (!has_ended).then_some(incarnation.pid)
    }

    /// Resolves when the process has ended; at once if none was started.
    pub(crate) async fn wait_ended(&self) {
        let end = self.state.lock().incarnations.last().map(|incarnation| incarnation.end.clone());
        if let Some(mut end) = end {
            // The sender is dropped only after it has sent.
            let _gone = end.wait_for(Option::is_some).await.is_err();
        }
    }

    /// Sends SIGKILL, and waits until the process has ended.
    pub(crate) async fn kill(&self) {
        self.signal(Signal::KILL, true);
        self.wait_ended().await;
    }

    /// Sends SIGKILL without waiting.
    pub(crate) fn strike(&self) {
        self.signal(Signal::KILL, true);
    }

    /// Sends SIGTERM, at which the process stops in order, and waits until it has ended.
    pub(crate) async fn terminate(&self) {
        self.signal(Signal::TERM, true);
        self.wait_ended().await;
    }

    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP, false);
    }

    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT, false);
    }

    /// Allows this incarnation to end by itself from now on: a fault is about to give it a reason,
    /// such as a broken disk.
    pub(crate) fn excuse(&self) {
        if let Some(incarnation) = self.state.lock().incarnations.last_mut() {
            incarnation.excused = true;
        }
    }

    /// Withdraws [`Self::excuse`] from an incarnation that still runs: the fault is healed.
    pub(crate) fn pardon(&self) {
        if let Some(incarnation) =
            self.state.lock().incarnations.last_mut().filter(|incarnation| incarnation.end.borrow().is_none())
        {
            incarnation.excused = false;
        }
    }

    fn signal(&self, signal: Signal, wanted: bool) {
        let mut state = self.state.lock();
        let Some(incarnation) = state.incarnations.last_mut().filter(|incarnation| incarnation.end.borrow().is_none())
        else {
            return;
        };
        incarnation.wanted |= wanted;
        if let Err(error) = kill_process(incarnation.pid, signal) {
            eprintln!("node {}: {error}", self.number + 1);
        }
    }

    /// Output so far of the last incarnation.
    pub(crate) fn last_log(&self) -> String {
        self.incarnations().pop().map(|incarnation| incarnation.text).unwrap_or_default()
    }

    /// All incarnations, oldest first, with their output, and with their end if the rig did not
    /// cause it.
    pub(crate) fn incarnations(&self) -> Vec<Incarnation> {
        let text = std::fs::read(&self.launch.log).unwrap_or_default();
        let state = self.state.lock();
        let ends =
            state.incarnations.iter().skip(1).map(|incarnation| incarnation.log_from as usize).chain([text.len()]);
        let incarnations = state.incarnations.iter().zip(ends).map(|(incarnation, to)| {
            let ended = incarnation.end.borrow().filter(|status| !incarnation.wanted || is_foreign(*status));
            Incarnation {
                node: self.number,
                text: String::from_utf8_lossy(&text[(incarnation.log_from as usize).min(to)..to]).into_owned(),
                ended: ended.map(|status| status.to_string()),
                by_signal: ended.is_some_and(|status| status.signal().is_some()),
                excused: incarnation.excused,
            }
        });
        incarnations.collect()
    }

    /// Open files and connections of the process, count; 0 if it does not run.
    pub(crate) fn open_files(&self) -> u64 {
        let Some(pid) = self.pid() else { return 0 };
        std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, |files| files.count() as u64)
    }

    /// Resident memory of the process, bytes; 0 if it does not run.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let Some(pid) = self.pid() else { return 0 };
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        line.and_then(|text| text.trim().trim_end_matches(" kB").parse::<u64>().ok()).map_or(0, |kib| kib * 1024)
    }
}

/// The first words of the command line of a child process. They make the child end when this
/// process ends, if `setpriv` is installed. It runs in `namespace`; `None` for the machine's own.
/// The caller appends `NAME=VALUE` variables, program and arguments.
pub(super) fn command_line(namespace: Option<&str>) -> Vec<OsString> {
    // Each of these programs execs the next one, so that the process id stays. Not `ip netns exec`:
    // it copies the mounts, and a disk could not be unmounted any more.
    let mut line: Vec<OsString> = Vec::new();
    if let Some(program) = tool::find("setpriv") {
        // The processes end even if the harness is killed.
        line.extend([program.into(), "--pdeathsig".into(), "KILL".into()]);
    }
    if let Some(name) = namespace {
        let enter = tool::find("nsenter").unwrap_or_else(|| "nsenter".into());
        line.extend([enter.into(), format!("--net=/run/netns/{name}").into()]);
    }
    line.push("/usr/bin/env".into());
    line
}

/// Whether the process was ended by a signal other than the rig's (SIGKILL, SIGTERM): it crashed
/// while it was stopping.
fn is_foreign(status: ExitStatus) -> bool {
    status.signal().is_some_and(|signal| signal != Signal::KILL.as_raw() && signal != Signal::TERM.as_raw())
}

#[cfg(test)]
mod tests {
    use headwater_tls::Dialer;

    use super::*;

    /// A process that only waits, in place of a node.
    fn waiting(dir: &Path) -> Node {
        let (binary, arguments) = ("/bin/sleep".into(), vec!["1000".to_owned()]);
        let launch =
            Launch { binary, next: None, arguments, namespace: None, environment: Vec::new(), log: dir.join("log") };
        let node = Node::new(0, Target::new(0, "127.0.0.1:1", &Dialer::default()), launch);
        node.start().unwrap();
        node
    }

    /// Ends the process by a signal that the rig did not send; returns the record of its
    /// incarnation.
    async fn end(node: &Node, signal: Signal) -> Incarnation {
        kill_process(node.pid().unwrap(), signal).unwrap();
        node.wait_ended().await;
        node.incarnations().pop().unwrap()
    }

    #[tokio::test]
    async fn an_excuse_is_over_when_the_disk_is_well() {
        let dir = tempfile::tempdir().unwrap();
        let node = waiting(dir.path());
        node.excuse();
        node.pardon();
        let incarnation = end(&node, Signal::USR1).await;
        assert!(!incarnation.excused && incarnation.by_signal && incarnation.ended.is_some());
        // An earlier incarnation stays excused.
        let node = waiting(dir.path());
        node.excuse();
        let excused = end(&node, Signal::USR1).await;
        node.pardon();
        assert!(excused.excused && node.incarnations().pop().unwrap().excused);
    }

    #[tokio::test]
    async fn what_a_process_takes_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let node = waiting(dir.path());
        assert!(node.open_files() >= 3 && node.resident_bytes() > 0, "{} files", node.open_files());
        node.kill().await;
        assert_eq!((node.open_files(), node.resident_bytes()), (0, 0));
    }

    #[tokio::test]
    async fn a_node_that_falls_over_while_it_is_told_to_end_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let node = waiting(dir.path());
        node.terminate().await;
        assert!(node.incarnations().pop().unwrap().ended.is_none());
        let node = waiting(dir.path());
        node.state.lock().incarnations.last_mut().unwrap().wanted = true;
        assert!(end(&node, Signal::USR1).await.by_signal);
    }
}
