//! `headwater lock`: holds a lock until interrupted, or while a command runs. The output is
//! etcdctl's.

use std::io::Write;
use std::process::ExitStatus;
use std::time::Duration;

use tokio::process::{Child, Command};

use super::session::Session;
use super::signals::interrupted;
use crate::connect::Cluster;
use crate::error::CliError;
use crate::output::{self, WriteOut, json};
use crate::{ClientArgs, parse_ttl};
use headwater_client::Repeat;
use headwater_proto::pb::etcdserverpb::{RangeRequest, RangeResponse};
use headwater_proto::pb::v3lockpb::{LockRequest, LockResponse};

/// Time between SIGTERM to the command and SIGKILL.
const TERM_TIMEOUT: Duration = Duration::from_secs(5);

/// Hold a lock until interrupted, or while a command runs
///
/// Prints the lock's key. Its create_revision is the fencing token: a holder that was stopped for
/// longer than TTL loses the lock without knowing it, and a transaction that compares create("KEY")
/// with the token refuses its late writes.
///
/// The command finds the key in ETCD_LOCK_KEY and HEADWATER_LOCK_KEY, the revision of the answer in
/// ETCD_LOCK_REV, and the token in HEADWATER_FENCING_TOKEN. It is sent SIGTERM if the lock is lost
/// or this command is interrupted, and SIGKILL if it does not end within 5 s. Its exit status is
/// this command's.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct LockArgs {
    /// The lock
    name: String,
    /// Time after the last keep-alive at which the lock is released, such as 10 or 10s
    #[arg(long, value_parser = parse_ttl, default_value = "10", value_name = "SECONDS")]
    ttl: i64,
    /// Longest wait for the lock, such as 30s; without it, as long as it takes
    #[arg(long, value_parser = humantime::parse_duration, value_name = "DURATION")]
    wait: Option<Duration>,
    /// Program to run while the lock is held, with its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub(crate) async fn run(args: LockArgs, cluster: &Cluster, client: &ClientArgs) -> Result<(), CliError> {
    let interrupted = interrupted()?;
    tokio::pin!(interrupted);
    let session = Session::open(cluster, args.ttl).await?;
    let kept = session.keep();
    tokio::pin!(kept);
    let request = || LockRequest { name: args.name.clone().into_bytes().into(), lease: session.lease() };
    let locked = tokio::select! {
        locked = session.contend(async |a| a.lock().lock(request()).await) => locked,
        () = &mut kept => Err(lost("before it was this command's turn")),
        () = &mut interrupted => {
            session.close().await?;
            return Err(CliError::Finding("interrupted while waiting for the lock".to_owned()));
        }
        wait = wait_limit(args.wait) => {
            session.close().await?;
            let wait = humantime::format_duration(wait);
            return Err(CliError::Finding(format!("the lock did not come free within {wait}; nothing was run")));
        }
    };
    let held = async {
        let locked = locked?;
        let key = RangeRequest { key: locked.key.clone(), ..Default::default() };
        let found = cluster.call(Repeat::Harmless, async |a| a.kv().range(a.request(key.clone())).await).await?;
        let Some(token) = found.kvs.first().map(|kv| kv.create_revision) else {
            return Err(lost("as soon as it was held"));
        };
        let revision = found.header.as_ref().map_or(0, |header| header.revision);
        let removed = session.removed(locked.key.clone(), revision);
        tokio::pin!(removed);
        if args.command.is_empty() {
            print(&mut std::io::stdout(), &found, client.write_out)?;
            tokio::select! {
                () = &mut interrupted => Ok(None),
                () = &mut kept => Err(lost("while it was held")),
                () = &mut removed => Err(taken("while it was held")),
            }
        } else {
            let mut child = spawn(&args.command, &locked, token)?;
            tokio::select! {
                status = child.wait() => Ok(Some(status?)),
                () = &mut kept => {
                    end(&mut child).await?;
                    Err(lost("while the command ran; it was told to stop"))
                }
                () = &mut removed => {
                    end(&mut child).await?;
                    Err(taken("while the command ran; it was told to stop"))
                }
                // A terminal sends SIGINT to the command as well; a supervisor does not.
                () = &mut interrupted => Ok(Some(end(&mut child).await?)),
            }
        }
    }
    .await;
    let closed = session.close().await;
    match held? {
        Some(status) if !status.success() => Err(CliError::Exit(exit_code(status))),
        Some(_) | None => closed,
    }
}

/// Resolves to `wait` after that time; never if it is `None`.
async fn wait_limit(wait: Option<Duration>) -> Duration {
    let Some(wait) = wait else { return std::future::pending().await };
    tokio::time::sleep(wait).await;
    wait
}

fn lost(when: &str) -> CliError {
    CliError::Finding(format!("the lock was lost {when}: its lease has ended. Somebody else may hold it"))
}

fn taken(when: &str) -> CliError {
    CliError::Finding(format!("the lock was lost {when}: somebody has removed its key. Somebody else may hold it"))
}

fn spawn(command: &[String], locked: &LockResponse, token: i64) -> Result<Child, CliError> {
    let key = String::from_utf8_lossy(&locked.key).into_owned();
    let revision = locked.header.as_ref().map_or(0, |header| header.revision);
    let (program, arguments) = command.split_first().expect("invariant: the caller has looked");
    Command::new(program)
        .args(arguments)
        .env("ETCD_LOCK_KEY", &key)
        .env("ETCD_LOCK_REV", revision.to_string())
        .env("HEADWATER_LOCK_KEY", &key)
        .env("HEADWATER_FENCING_TOKEN", token.to_string())
        .spawn()
        .map_err(|error| CliError::Usage(format!("{program} cannot be run: {error}")))
}

/// Sends SIGTERM to the command, and SIGKILL if it does not end within [`TERM_TIMEOUT`]. Returns
/// its status.
async fn end(child: &mut Child) -> Result<ExitStatus, CliError> {
    if let Some(pid) = child.id().and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw) {
        // An error means that the process has ended already.
        let _gone = rustix::process::kill_process(pid, rustix::process::Signal::TERM).is_err();
    }
    if let Ok(status) = tokio::time::timeout(TERM_TIMEOUT, child.wait()).await {
        return Ok(status?);
    }
    child.start_kill()?;
    Ok(child.wait().await?)
}

/// The exit code as shells report it: 128 plus the number of the signal, if a signal ended the
/// command.
fn exit_code(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    u8::try_from(code).unwrap_or(1)
}

pub(super) fn print(out: &mut impl Write, found: &RangeResponse, format: WriteOut) -> Result<(), CliError> {
    match format {
        WriteOut::Json => output::print_json(out, &json::Range::from(found))?,
        WriteOut::Simple => found.kvs.iter().try_for_each(|kv| output::print_pair(out, kv))?,
        WriteOut::Table => output::print_table(out, output::PAIR_HEADER, found.kvs.iter().map(output::pair_row))?,
    }
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;
    use headwater_proto::pb::mvccpb::KeyValue;

    #[test]
    fn the_command_s_status_is_passed_on() {
        for (raw, wanted) in [(0, 0), (3 << 8, 3), (255 << 8, 255), (9, 137), (15, 143)] {
            assert_eq!(exit_code(ExitStatus::from_raw(raw)), wanted);
        }
    }

    #[test]
    fn the_key_is_printed_as_etcdctl_prints_it() {
        let kv = KeyValue { key: "l/a".into(), create_revision: 5, mod_revision: 5, version: 1, ..Default::default() };
        let found = RangeResponse { kvs: vec![kv], count: 1, ..Default::default() };
        let printed = |format| {
            let mut out = Vec::new();
            print(&mut out, &found, format).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(printed(WriteOut::Simple), "l/a\n\n");
        assert_eq!(
            printed(WriteOut::Json),
            "{\"kvs\":[{\"key\":\"bC9h\",\"create_revision\":5,\"mod_revision\":5,\"version\":1}],\"count\":1}\n"
        );
    }
}
