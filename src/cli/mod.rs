//! The command line: `headwater serve`, the client commands, loading and checking data, and the
//! load generator.
//!
//! Owns the arguments and the output. Client commands talk to servers through the public APIs only,
//! and work against any endpoint that speaks them. `serve`, and the commands on data directories
//! and backups, call `headwater_server`. Invariant: a write that got no answer is reported as
//! indeterminate, never as failed. It is sent a second time only if it was certainly not carried
//! out, or if a repetition leaves the same behind.

mod acl;
mod alarm;
mod auth;
mod catalog;
mod certs;
mod commit;
mod contest;
mod data;
mod defrag;
mod entity;
mod follow;
mod history;
mod invitations;
mod kv;
mod lease;
mod log;
mod members;
mod open_call;
mod recover;
mod resource;
mod serve;
mod snapshot;
mod status;
mod subscribe;
mod version;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use connect::Cluster;
use error::CliError;
use headwater_terminal::{ClientArgs, Freshness, connect, error, notice, output, parse_duration, parse_ttl, progress};
use headwater_types::{MemberProgram, Supported};

/// Runs the program and returns its exit status: 0 if the command did its work or its output was
/// closed, 2 for wrong use, else 1. If a program that `lock` has run failed, it is the status of
/// that program. Ends the process itself for arguments that do not parse, and for `--help` and
/// `--version`. `program` is the version, commit and profile; `supported` are the versions of
/// clusters that its node can be a member of.
pub fn main(program: &'static str, supported: Supported) -> ExitCode {
    let matches = Cli::command().version(program).get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    match dispatch(cli, MemberProgram { program: program.to_owned(), supported }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(CliError::OutputClosed) => ExitCode::SUCCESS,
        // The command has printed the reason.
        Err(CliError::Exit(code)) => ExitCode::from(code),
        Err(error) => {
            notice!("error: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

/// A replicated store that you can subscribe to; speaks etcd's v3 API.
#[derive(Debug, Parser)]
#[command(name = "headwater", version, propagate_version = true, max_term_width = 110)]
struct Cli {
    #[command(flatten)]
    client: ClientArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a node
    Serve(serve::ServeArgs),
    /// Write one key
    Put(kv::put::PutArgs),
    /// Read a key or a range of keys
    Get(kv::get::GetArgs),
    /// Remove a key or a range of keys
    Del(kv::del::DelArgs),
    /// Compare, then do one of two lists of operations, all at once
    Txn(kv::txn::TxnArgs),
    /// Print changes as they happen
    Watch(kv::watch::WatchArgs),
    Follow(follow::FollowArgs),
    Commit(commit::CommitArgs),
    /// Give up the history below a revision
    Compact(kv::compact::CompactArgs),
    /// Make leases, keep them alive, end them
    Lease(lease::LeaseArgs),
    /// Hold a lock until interrupted, or while a command runs
    Lock(contest::lock::LockArgs),
    /// Stand for election and lead until interrupted, or print the leaders
    Elect(contest::elect::ElectArgs),
    /// List and disarm alarms
    Alarm(alarm::AlarmArgs),
    Auth(auth::AuthArgs),
    User(auth::user::UserArgs),
    Role(auth::role::RoleArgs),
    /// Return freed space to the file system now
    Defrag(defrag::DefragArgs),
    /// Take backups, look at them, restore them
    Snapshot(snapshot::SnapshotArgs),
    Log(log::LogArgs),
    Show(history::show::ShowArgs),
    Diff(history::diff::DiffArgs),
    Undo(history::undo::UndoArgs),
    Recover(recover::RecoverArgs),
    /// Show the state of each endpoint
    Status(status::StatusArgs),
    /// List, add, promote, remove, update or invite the cluster's members
    Member(members::MemberArgs),
    /// List the members, as `member list` does
    #[command(hide = true)]
    Members,
    /// Hand leadership to another member
    MoveLeader(members::MoveLeaderArgs),
    Version(version::VersionArgs),
    Downgrade(version::DowngradeArgs),
    Resource(resource::ResourceArgs),
    /// Tokens, policies and roles of Consul's access control lists
    Acl(acl::AclArgs),
    Register(catalog::RegisterArgs),
    Deregister(catalog::DeregisterArgs),
    Nodes(catalog::NodesArgs),
    Services(catalog::ServicesArgs),
    Health(catalog::HealthArgs),
    Subscribe(subscribe::SubscribeArgs),
    /// Write every line of a file as a key
    Load(data::load::LoadArgs),
    /// Read the keys that `load` wrote and compare them with the file
    Verify(data::verify::VerifyArgs),
    Certs(certs::CertsArgs),
    /// Generate load and measure
    Bench(headwater_load::BenchArgs),
}

fn dispatch(cli: Cli, program: MemberProgram) -> Result<(), CliError> {
    let client = &cli.client;
    let supported = program.supported;
    if matches!(cli.command, Command::Serve(_) | Command::Snapshot(_) | Command::Log(_) | Command::Recover(_)) {
        // Before the first file: RocksDB's are made with the umask alone.
        headwater_files::set_private_umask();
    }
    match cli.command {
        Command::Serve(args) => serve::run(args, program),
        Command::Certs(args) => certs::run(args),
        Command::Bench(args) => headwater_load::run(args, client),
        Command::Put(args) => on_cluster(client, async |c| kv::put::run(args, c, client).await),
        Command::Get(args) => on_cluster(client, async |c| kv::get::run(args, c, client).await),
        Command::Del(args) => on_cluster(client, async |c| kv::del::run(args, c, client).await),
        Command::Txn(args) => on_cluster(client, async |c| kv::txn::run(args, c, client).await),
        Command::Watch(args) => on_cluster(client, async |c| kv::watch::run(args, c, client).await),
        Command::Follow(args) => on_cluster(client, async |c| follow::run(args, c, client).await),
        Command::Commit(args) => on_cluster(client, async |c| commit::run(args, c, client).await),
        Command::Compact(args) => on_cluster(client, async |c| kv::compact::run(args, c, client).await),
        Command::Lease(args) => on_cluster(client, async |c| lease::run(args, c, client).await),
        Command::Lock(args) => on_cluster(client, async |c| contest::lock::run(args, c, client).await),
        Command::Elect(args) => on_cluster(client, async |c| contest::elect::run(args, c, client).await),
        Command::Alarm(args) => on_cluster(client, async |c| alarm::run(args, c, client).await),
        Command::Auth(args) => on_cluster(client, async |c| auth::run(args, c, client).await),
        Command::User(args) => on_cluster(client, async |c| auth::user::run(args, c, client).await),
        Command::Role(args) => on_cluster(client, async |c| auth::role::run(args, c, client).await),
        Command::Defrag(args) => on_cluster(client, async |c| defrag::run(args, c, client).await),
        Command::Snapshot(args) => snapshot::run(args, client, supported),
        Command::Log(args) => log::run(args, client, supported),
        Command::Show(args) => on_cluster(client, async |c| history::show::run(args, c, client).await),
        Command::Diff(args) => on_cluster(client, async |c| history::diff::run(args, c, client).await),
        Command::Undo(args) => on_cluster(client, async |c| history::undo::run(args, c, client).await),
        Command::Recover(args) => recover::run(args, client.write_out, supported),
        Command::Status(args) => on_cluster(client, async |c| status::run(args, c, client).await),
        Command::Member(args) => on_cluster(client, async |c| members::run(args, c, client).await),
        Command::Members => on_cluster(client, async |c| members::list(c, client).await),
        Command::MoveLeader(args) => on_cluster(client, async |c| members::move_leader(args, c, client).await),
        Command::Version(args) => on_cluster(client, async |c| version::run(args, &program.program, c, client).await),
        Command::Downgrade(args) => on_cluster(client, async |c| version::downgrade(args, c).await),
        Command::Resource(args) => on_cluster(client, async |c| resource::run(args, c, client).await),
        Command::Acl(args) => on_cluster(client, async |c| acl::run(args, c, client).await),
        Command::Register(args) => on_cluster(client, async |c| catalog::register(args, c, client).await),
        Command::Deregister(args) => on_cluster(client, async |c| catalog::deregister(args, c, client).await),
        Command::Nodes(args) => on_cluster(client, async |c| catalog::nodes(args, c, client).await),
        Command::Services(args) => on_cluster(client, async |c| catalog::services(args, c, client).await),
        Command::Health(args) => on_cluster(client, async |c| catalog::health(args, c, client).await),
        Command::Subscribe(args) => on_cluster(client, async |c| subscribe::run(args, c, client).await),
        Command::Load(args) => on_cluster(client, async |c| data::load::run(args, c, client).await),
        Command::Verify(args) => on_cluster(client, async |c| data::verify::run(args, c, client).await),
    }
}

/// Runs a client command with the cluster that the arguments name. One thread is enough: it waits
/// for servers most of the time.
fn on_cluster(
    client: &ClientArgs,
    command: impl AsyncFnOnce(&Cluster) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let cluster = Cluster::new(&client.endpoints, client.timeout, &client.dialer()?)?
        .as_user(client.credentials()?)
        .with_token(client.token()?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CliError::other)?;
    runtime.block_on(command(&cluster))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use output::WriteOut;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn leases_are_named_as_etcdctl_names_them() {
        for line in [
            "headwater lease grant 60",
            "headwater lease grant -5",
            "headwater lease grant 5m",
            "headwater lease revoke 32695410dcc0ca06",
            "headwater lease keep-alive 32695410dcc0ca06 --once",
            "headwater lease timetolive 32695410dcc0ca06 --keys",
            "headwater lease list -w json",
            "headwater put k v --lease 32695410dcc0ca06",
            "headwater put k v --lease=32695410dcc0ca06",
        ] {
            assert!(Cli::try_parse_from(line.split(' ')).is_ok(), "{line}");
        }
    }

    #[test]
    fn times_to_live_are_seconds_or_durations() {
        for (text, wanted) in
            [("60", Some(60)), ("-5", Some(-5)), ("60s", Some(60)), ("5m", Some(300)), ("1500ms", None), ("x", None)]
        {
            assert_eq!(parse_ttl(text).ok(), wanted, "{text}");
        }
    }

    #[test]
    fn locks_and_elections_take_what_etcdctl_takes() {
        for (line, is_good) in [
            ("headwater lock l", true),
            ("headwater lock l --ttl 5s", true),
            ("headwater lock l --wait 30s -- sh -c true", true),
            ("headwater lock l --wait soon", false),
            ("headwater lock l --ttl 5 -- sh -c true", true),
            ("headwater lock l sh -c true", true),
            ("headwater lock", false),
            ("headwater elect e v", true),
            ("headwater elect e --listen", true),
            ("headwater elect -l e", true),
            ("headwater elect e", false),
            ("headwater elect e v --listen", false),
        ] {
            assert_eq!(Cli::try_parse_from(line.split(' ')).is_ok(), is_good, "{line}");
        }
    }

    #[test]
    fn a_user_who_asks_is_not_the_user_who_is_meant() {
        let cli = Cli::try_parse_from("headwater --user root:pw user grant-role alice web".split(' ')).unwrap();
        assert_eq!(cli.client.user.as_deref(), Some("root:pw"));
        let cli = Cli::try_parse_from("headwater user revoke-role alice web --user=root".split(' ')).unwrap();
        assert_eq!(cli.client.user.as_deref(), Some("root"));
    }

    #[test]
    fn members_are_changed_as_with_etcdctl() {
        for line in [
            "headwater member list -w json",
            "headwater member add node4 --peer-urls=http://127.0.0.1:1 --learner",
            "headwater member promote 4",
            "headwater member remove node4",
            "headwater member update 4 --peer-urls http://127.0.0.1:1",
            "headwater member invite",
            "headwater member invite --name rack2 --uses 3 --ttl 30m --learner --out token",
            "headwater member invite --reusable --ttl 600",
            "headwater member invitations -w json",
            "headwater member uninvite 57",
            "headwater move-leader node2",
            "headwater serve --join 127.0.0.1:2379,127.0.0.1:22379 --learner",
            "headwater serve --join 127.0.0.1:2379 --learner=false",
        ] {
            assert!(Cli::try_parse_from(line.split(' ')).is_ok(), "{line}");
        }
    }

    #[test]
    fn resources_are_named_by_type_and_name() {
        for (line, is_good) in [
            ("headwater resource apply -f examples/", true),
            ("headwater resource apply -f a.yaml -f - --dry-run", true),
            ("headwater resource apply", false),
            ("headwater resource read Artist korn --output json", true),
            ("headwater resource read Artist", false),
            ("headwater resource list demo.v2.Artist --prefix k -o yaml -w json", true),
            ("headwater resource list Artist -A", true),
            ("headwater resource list Artist -A --namespace x", false),
            ("headwater resource list-by-owner Artist korn -n music", true),
            ("headwater resource delete Artist korn --version 7", true),
            ("headwater resource watch Artist --resume 7", true),
            ("headwater resource types", true),
        ] {
            assert_eq!(Cli::try_parse_from(line.split(' ')).is_ok(), is_good, "{line}");
        }
    }

    #[test]
    fn directories_of_dead_nodes_are_named_by_their_path() {
        for (line, is_good) in [
            ("headwater log inspect data1", true),
            ("headwater log inspect data1 --from 5 --to 9 --limit 3 -w json", true),
            ("headwater log inspect", false),
            ("headwater log inspect data1 --follow", false),
            ("headwater log /kv inspect", false),
            ("headwater snapshot save --from data1 b.db --skip 485 --skip 486 --committed-only --progress", true),
            ("headwater snapshot save b.db", true),
            ("headwater snapshot save b.db --skip 485", false),
            ("headwater snapshot save --from data1", false),
            ("headwater snapshot restore b.db --data-dir data2 --cluster-token t --bump-index 5", true),
            ("headwater recover data1 --data-dir data2 --cluster-token t --yes-i-have-lost-the-majority", true),
            ("headwater recover --data-dir data2", false),
        ] {
            assert_eq!(Cli::try_parse_from(line.split(' ')).is_ok(), is_good, "{line}");
        }
    }

    #[test]
    fn the_history_is_looked_at_by_points() {
        for (line, is_good) in [
            ("headwater log", true),
            ("headwater log /kv/app --since 10m --patch -w json", true),
            ("headwater log --follow --face etcd --face node -n 5", true),
            ("headwater log --since yesterday", false),
            ("headwater show /kv/app --at 57", true),
            ("headwater show /kv/app -r --at 2026-11-26T14:00:00Z", true),
            ("headwater show", false),
            ("headwater diff --from 10m", true),
            ("headwater diff --from 10m --to now /kv", true),
            ("headwater diff /kv", false),
            ("headwater undo /kv/app --to 57", true),
            ("headwater undo /kv/app --to 10m --yes", true),
            ("headwater undo --to 57", false),
            ("headwater undo /kv/app", false),
            ("headwater commit -f x.yaml --idempotency-key k", true),
            ("headwater commit", false),
        ] {
            assert_eq!(Cli::try_parse_from(line.split(' ')).is_ok(), is_good, "{line}");
        }
        assert!(Cli::try_parse_from(["headwater", "show", "/kv", "--at", "5m ago"]).is_ok());
    }

    #[test]
    fn services_are_registered_and_looked_up() {
        for (line, is_good) in [
            ("headwater register web --port 80 --tag a", true),
            ("headwater register", false),
            ("headwater register --node n1 --node-address 10.0.0.1", true),
            ("headwater deregister web-1 --node n1", true),
            ("headwater deregister --check c", true),
            ("headwater deregister", false),
            ("headwater nodes -w table --node-meta rack:1", true),
            ("headwater services --filter web -w json", true),
            ("headwater health web --passing --tag a", true),
            ("headwater health", false),
        ] {
            assert_eq!(Cli::try_parse_from(line.split(' ')).is_ok(), is_good, "{line}");
        }
    }

    #[test]
    fn anything_is_followed_by_its_path() {
        for (line, is_good) in [
            ("headwater follow /", true),
            ("headwater follow /kv/app --recursive --from now -w json", true),
            ("headwater follow /kv/app -r --from AcLy --markers", true),
            ("headwater follow", false),
            ("headwater bench follow --followers 10 --slow 1 --rate 0", true),
        ] {
            assert_eq!(Cli::try_parse_from(line.split(' ')).is_ok(), is_good, "{line}");
        }
    }

    #[test]
    fn a_load_takes_no_option_that_does_nothing_for_it() {
        for (line, is_good) in [
            ("headwater bench put --clients 64 --val-size 16", true),
            ("headwater bench put --limit 5", false),
            ("headwater bench get --txn-ops 2", false),
            ("headwater bench get --work 60us", true),
            ("headwater bench lease --work 60us", false),
            ("headwater bench get --rw-ratio 2", false),
            ("headwater bench range --limit 5 --fill", true),
            ("headwater bench range --txn-ops 2", false),
            ("headwater bench txn --txn-ops 2 --total 10", true),
            ("headwater bench txn --limit 5", false),
            ("headwater bench mixed --rw-ratio 2 --sequential", true),
            ("headwater bench mixed --limit 5", false),
            ("headwater bench resource --rw-ratio 2", true),
            ("headwater bench resource --txn-ops 2", false),
        ] {
            assert_eq!(Cli::try_parse_from(line.split(' ')).is_ok(), is_good, "{line}");
        }
    }

    #[test]
    fn client_options_go_before_or_after_the_command() {
        for line in
            ["headwater --endpoints a:1,b:2 get k -w json", "headwater get k --endpoints a:1,b:2 --write-out json"]
        {
            let cli = Cli::try_parse_from(line.split(' ')).unwrap();
            assert_eq!(cli.client.endpoints, ["a:1", "b:2"]);
            assert_eq!(cli.client.write_out, WriteOut::Json);
        }
    }
}
