//! `headwater txn`: reads a transaction in etcdctl's grammar and runs it.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use super::{del, get, grammar, put};
use crate::ClientArgs;
use crate::connect::Cluster;
use crate::error::CliError;
use crate::notice;
use crate::output::{self, WriteOut, json};
use headwater_client::Repeat;
use headwater_proto::pb::etcdserverpb::response_op::Response;
use headwater_proto::pb::etcdserverpb::{ResponseOp, TxnResponse};

/// Compare, then do one of two lists of operations, all at once
///
/// Three sections, each ended by an empty line: comparisons, what is done if all hold, what is done
/// otherwise.
///
///   mod("key1") > "0"
///   value("key2") = "blue"
///
///   put key1 "new value"
///   get key2
///
///   del key1 --prev-kv
///
/// Targets are value, create, mod, version and lease; operators are =, !=, < and >.
#[derive(Clone, Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct TxnArgs {
    /// File with the transaction; standard input if missing or -
    file: Option<PathBuf>,
}

pub(crate) async fn run(args: TxnArgs, cluster: &Cluster, client: &ClientArgs) -> Result<(), CliError> {
    let request = match &args.file {
        Some(path) if path.as_os_str() != "-" => {
            let text = std::fs::read_to_string(path)
                .map_err(|error| CliError::Usage(format!("cannot read {}: {error}", path.display())))?;
            grammar::parse(text.lines().map(|line| Ok(line.to_owned())), |_| {}, client.consistency)?
        }
        _ => {
            let stdin = std::io::stdin();
            let prompt = |text: &str| {
                if std::io::stdin().is_terminal() {
                    notice!("{text}");
                }
            };
            grammar::parse(stdin.lines(), prompt, client.consistency)?
        }
    };
    let response = cluster.call(Repeat::Harmful, async |a| a.kv().txn(a.request(request.clone())).await).await?;
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    match client.write_out {
        WriteOut::Simple | WriteOut::Table => print_simple(&mut out, &response)?,
        WriteOut::Json => output::print_json(&mut out, &json::Txn::from(&response))?,
    }
    Ok(out.flush()?)
}

fn print_simple(out: &mut impl Write, response: &TxnResponse) -> Result<(), CliError> {
    writeln!(out, "{}", if response.succeeded { "SUCCESS" } else { "FAILURE" })?;
    for ResponseOp { response } in &response.responses {
        writeln!(out)?;
        match response {
            Some(Response::ResponseRange(range)) => get::print_simple(out, range)?,
            Some(Response::ResponsePut(done)) => put::print_simple(out, done)?,
            Some(Response::ResponseDeleteRange(done)) => del::print_simple(out, done)?,
            Some(Response::ResponseTxn(done)) => print_simple(out, done)?,
            None => {}
        }
    }
    Ok(())
}
