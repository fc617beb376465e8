//! One node's process: start, signals, its end, its log.
//!
//! A life is the time from one start to the next. Invariant: an end that nobody of the rig brought
//! about is remembered.

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
use crate::check::crash::Life;
use crate::client::Target;

/// How a node is started.
pub(crate) struct Launch {
    pub binary: PathBuf,
    /// The program of the next version.
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
    lives: Vec<Running>,
    /// Arguments of every start.
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    /// Whether later starts are of the next version's program.
    runs_next: bool,
}

struct Running {
    pid: Pid,
    /// Where the node's log file ended when this life began.
    log_from: u64,
    /// How the process ended, once it has.
    end: watch::Receiver<Option<ExitStatus>>,
    /// The rig ended it.
    wanted: bool,
    excused: bool,
}

impl Node {
    pub(crate) fn new(number: usize, target: Target, launch: Launch) -> Self {
        let (arguments, environment) = (launch.arguments.clone(), Vec::new());
        let state = State { lives: Vec::new(), arguments, environment, runs_next: false };
        Self { number, target, launch, state: Arc::new(Mutex::new(state)) }
    }

    pub(crate) fn log_path(&self) -> &Path {
        &self.launch.log
    }

    /// Variables for later starts, besides those of the launch.
    pub(crate) fn set_environment(&self, environment: &[(String, String)]) {
        self.state.lock().environment = environment.to_vec();
    }

    /// Sets the arguments of later starts.
    pub(crate) fn set_arguments(&self, arguments: Vec<String>) {
        self.state.lock().arguments = arguments;
    }

    /// Whether the node runs the next version's program, or will when it is started.
    pub(crate) fn runs_next(&self) -> bool {
        self.state.lock().runs_next
    }

    /// Chooses the program of later starts.
    pub(crate) fn run_next(&self, next: bool) -> anyhow::Result<()> {
        if next && self.launch.next.is_none() {
            bail!("the program of the next version is not named");
        }
        self.state.lock().runs_next = next;
        Ok(())
    }

    /// Starts the process and returns its id.
    pub(crate) fn start(&self) -> anyhow::Result<u32> {
        let mut state = self.state.lock();
        if state.lives.last().is_some_and(|life| life.end.borrow().is_none()) {
            bail!("node {} runs already", self.number + 1);
        }
        let log = OpenOptions::new().create(true).append(true).open(&self.launch.log).context("a node's log")?;
        let log_from = log.metadata()?.len();
        let enter = tool::find("nsenter").unwrap_or_else(|| "nsenter".into());
        let variables: Vec<String> = self
            .launch
            .environment
            .iter()
            .chain(&state.environment)
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        // All of them become the program: the process id stays. Not `ip netns exec`, which copies
        // the mounts: a disk could not be taken away any more.
        let mut line: Vec<OsString> = Vec::new();
        if let Some(program) = tool::find("setpriv") {
            // Even if the harness is killed, its nodes end.
            line.extend([program.into(), "--pdeathsig".into(), "KILL".into()]);
        }
        if let Some(name) = &self.launch.namespace {
            line.extend([enter.into(), format!("--net=/run/netns/{name}").into()]);
        }
        line.push("/usr/bin/env".into());
        let program = self.launch.next.as_ref().filter(|_| state.runs_next).unwrap_or(&self.launch.binary);
        let mut command = Command::new(&line[0]);
        command.args(&line[1..]).args(variables).arg(program).args(&state.arguments);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).kill_on_drop(true);
        // Ctrl-C ends the run, which then ends the nodes.
        command.process_group(0);
        let mut child = command.spawn().with_context(|| self.launch.binary.display().to_string())?;
        let id = child.id().context("the process has ended")?;
        let pid = Pid::from_raw(id as i32).context("a process id")?;
        let (ended, end) = watch::channel(None);
        tokio::spawn(async move {
            let status = child.wait().await.ok();
            ended.send_replace(status.or(Some(ExitStatus::default())));
        });
        state.lives.push(Running { pid, log_from, end, wanted: false, excused: false });
        Ok(id)
    }

    /// How the process ended, if it has.
    pub(crate) fn ended(&self) -> Option<String> {
        let state = self.state.lock();
        let life = state.lives.last()?;
        let end = *life.end.borrow();
        end.map(|status| status.to_string())
    }

    /// Whether the process runs (a paused one does).
    pub(crate) fn runs(&self) -> bool {
        self.pid().is_some()
    }

    /// The process, while it runs.
    fn pid(&self) -> Option<Pid> {
        let state = self.state.lock();
        let life = state.lives.last()?;
        let has_ended = life.end.borrow().is_some();
        (!has_ended).then_some(life.pid)
    }

    /// Resolves when the process has ended.
    pub(crate) async fn wait_ended(&self) {
        let end = self.state.lock().lives.last().map(|life| life.end.clone());
        if let Some(mut end) = end {
            // The sender is gone only after it has sent.
            let _gone = end.wait_for(Option::is_some).await.is_err();
        }
    }

    /// Ends the process at once, and waits until it is gone.
    pub(crate) async fn kill(&self) {
        self.signal(Signal::KILL, true);
        self.wait_ended().await;
    }

    /// Sends SIGKILL without waiting.
    pub(crate) fn strike(&self) {
        self.signal(Signal::KILL, true);
    }

    /// Asks the process to stop in order, and waits until it has.
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

    /// From here on this life may end by itself: its disk is being broken.
    pub(crate) fn excuse(&self) {
        if let Some(life) = self.state.lock().lives.last_mut() {
            life.excused = true;
        }
    }

    /// Its disk is well again: if this life goes on, nothing excuses its end any more.
    pub(crate) fn pardon(&self) {
        if let Some(life) = self.state.lock().lives.last_mut().filter(|life| life.end.borrow().is_none()) {
            life.excused = false;
        }
    }

    fn signal(&self, signal: Signal, wanted: bool) {
        let mut state = self.state.lock();
        let Some(life) = state.lives.last_mut().filter(|life| life.end.borrow().is_none()) else { return };
        life.wanted |= wanted;
        if let Err(error) = kill_process(life.pid, signal) {
            eprintln!("node {}: {error}", self.number + 1);
        }
    }

    /// Output so far of the present life, or of the last one.
    pub(crate) fn last_log(&self) -> String {
        self.lives().pop().map(|life| life.text).unwrap_or_default()
    }

    /// Output of each life, and its end.
    pub(crate) fn lives(&self) -> Vec<Life> {
        let text = std::fs::read(&self.launch.log).unwrap_or_default();
        let state = self.state.lock();
        let ends = state.lives.iter().skip(1).map(|life| life.log_from as usize).chain([text.len()]);
        let lives = state.lives.iter().zip(ends).map(|(life, to)| {
            let ended = life.end.borrow().filter(|status| !life.wanted || is_foreign(*status));
            Life {
                node: self.number,
                text: String::from_utf8_lossy(&text[(life.log_from as usize).min(to)..to]).into_owned(),
                ended: ended.map(|status| status.to_string()),
                by_signal: ended.is_some_and(|status| status.signal().is_some()),
                excused: life.excused,
            }
        });
        lives.collect()
    }

    /// Files and connections that the process has open.
    pub(crate) fn open_files(&self) -> u64 {
        let Some(pid) = self.pid() else { return 0 };
        std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, |files| files.count() as u64)
    }

    /// Bytes of memory that the process holds.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let Some(pid) = self.pid() else { return 0 };
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        line.and_then(|text| text.trim().trim_end_matches(" kB").parse::<u64>().ok()).map_or(0, |kib| kib * 1024)
    }
}

/// Whether a signal ended the process that the rig never sends: it fell over while it was told to
/// end.
fn is_foreign(status: ExitStatus) -> bool {
    status.signal().is_some_and(|signal| signal != Signal::KILL.as_raw() && signal != Signal::TERM.as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that only waits, in the place of a node.
    fn waiting(dir: &Path) -> Node {
        let (binary, arguments) = ("/bin/sleep".into(), vec!["1000".to_owned()]);
        let launch =
            Launch { binary, next: None, arguments, namespace: None, environment: Vec::new(), log: dir.join("log") };
        let node = Node::new(0, Target::new(0, "127.0.0.1:1"), launch);
        node.start().unwrap();
        node
    }

    /// Ends the process as if nobody of the rig had.
    async fn end(node: &Node, signal: Signal) -> Life {
        kill_process(node.pid().unwrap(), signal).unwrap();
        node.wait_ended().await;
        node.lives().pop().unwrap()
    }

    #[tokio::test]
    async fn an_excuse_is_over_when_the_disk_is_well() {
        let dir = tempfile::tempdir().unwrap();
        let node = waiting(dir.path());
        node.excuse();
        node.pardon();
        let life = end(&node, Signal::USR1).await;
        assert!(!life.excused && life.by_signal && life.ended.is_some());
        // Its earlier ends are excused as before.
        let node = waiting(dir.path());
        node.excuse();
        let excused = end(&node, Signal::USR1).await;
        node.pardon();
        assert!(excused.excused && node.lives().pop().unwrap().excused);
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
        assert!(node.lives().pop().unwrap().ended.is_none());
        let node = waiting(dir.path());
        node.state.lock().lives.last_mut().unwrap().wanted = true;
        assert!(end(&node, Signal::USR1).await.by_signal);
    }
}
