//! `headwater elect`: stands for election and leads until interrupted, or prints the leaders.

use super::lock::print;
use super::session::Session;
use super::signals::interrupted;
use crate::connect::Cluster;
use crate::error::CliError;
use crate::open_call::{Contact, ended, keep_open};
use crate::output::WriteOut;
use crate::{ClientArgs, parse_ttl};
use headwater_client::{Attempt, Repeat};
use headwater_proto::pb::etcdserverpb::{RangeRequest, RangeResponse};
use headwater_proto::pb::v3electionpb::{CampaignRequest, LeaderRequest};

/// Stand for election and lead until interrupted, or print the leaders
///
/// Prints the leader's key and value. The key's create_revision is the fencing token of the
/// leadership, as with `lock`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ElectArgs {
    /// The election
    name: String,
    /// Value to proclaim as leader
    #[arg(required_unless_present = "listen", conflicts_with = "listen")]
    value: Option<String>,
    /// Print the leader and every change instead
    #[arg(long, short)]
    listen: bool,
    /// Time after the last keep-alive at which the leadership ends, such as 60 or 60s
    #[arg(long, value_parser = parse_ttl, default_value = "60", value_name = "SECONDS")]
    ttl: i64,
}

pub(crate) async fn run(args: ElectArgs, cluster: &Cluster, client: &ClientArgs) -> Result<(), CliError> {
    match args.value {
        Some(value) => campaign(&args.name, &value, args.ttl, cluster, client.write_out).await,
        None => listen(&args.name, cluster, client.write_out).await,
    }
}

async fn campaign(name: &str, value: &str, ttl: i64, cluster: &Cluster, format: WriteOut) -> Result<(), CliError> {
    let interrupted = interrupted()?;
    tokio::pin!(interrupted);
    let session = Session::open(cluster, ttl).await?;
    let kept = session.keep();
    tokio::pin!(kept);
    let request = || CampaignRequest {
        name: name.to_owned().into_bytes().into(),
        lease: session.lease(),
        value: value.to_owned().into_bytes().into(),
    };
    let elected = tokio::select! {
        elected = session.contend(async |a| a.election().campaign(request()).await) => elected,
        () = &mut kept => Err(lost("before it was this candidate's turn")),
        () = &mut interrupted => {
            session.close().await?;
            return Err(CliError::Finding("interrupted while waiting to be elected".to_owned()));
        }
    };
    let led = async {
        let key = elected?.leader.unwrap_or_default().key;
        let own = RangeRequest { key: key.clone(), ..Default::default() };
        let found = cluster.call(Repeat::Harmless, async |a| a.kv().range(a.request(own.clone())).await).await?;
        if found.kvs.is_empty() {
            return Err(lost("as soon as it was won"));
        }
        print(&mut std::io::stdout(), &found, format)?;
        let revision = found.header.as_ref().map_or(0, |header| header.revision);
        tokio::select! {
            () = &mut interrupted => Ok(()),
            () = &mut kept => Err(lost("while it was held")),
            () = session.removed(key, revision) => Err(CliError::Finding(
                "the leadership was lost while it was held: somebody has removed its key. Somebody else may lead".to_owned(),
            )),
        }
    }
    .await;
    let closed = session.close().await;
    led.and(closed)
}

fn lost(when: &str) -> CliError {
    CliError::Finding(format!("the leadership was lost {when}: its lease has ended. Somebody else may lead"))
}

async fn listen(name: &str, cluster: &Cluster, format: WriteOut) -> Result<(), CliError> {
    let mut seen = 0;
    keep_open(cluster, async |attempt, contact| follow(attempt, name, &mut seen, contact, format).await).await
}

/// Prints each leader that one endpoint reports. Skips a leader whose key was last changed at the
/// revision `seen` or before; `seen` becomes that of the last printed one. Returns the reason to
/// try the next endpoint; an error if every endpoint would refuse.
async fn follow(
    attempt: &Attempt,
    name: &str,
    seen: &mut i64,
    contact: &mut Contact,
    format: WriteOut,
) -> Result<String, CliError> {
    let request = LeaderRequest { name: name.to_owned().into_bytes().into() };
    let mut answers = match attempt.election().observe(request).await {
        Ok(answers) => answers.into_inner(),
        Err(status) => return ended(&status),
    };
    contact.made();
    loop {
        match answers.message().await {
            Ok(Some(answer)) => {
                let Some(kv) = answer.kv else { continue };
                // Another endpoint begins with the leader that is known already.
                if kv.mod_revision <= *seen {
                    continue;
                }
                *seen = kv.mod_revision;
                let found = RangeResponse { header: answer.header, kvs: vec![kv], more: false, count: 1 };
                print(&mut std::io::stdout(), &found, format)?;
            }
            Ok(None) => return Ok("the stream ended".to_owned()),
            Err(status) => return ended(&status),
        }
    }
}
