//! `headwater acl login`.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::{read_text, show};
use crate::catalog::http::Call;
use crate::connect::Cluster;
use crate::error::CliError;
use crate::output::WriteOut;

/// Get a token for a JSON web token
#[derive(Clone, Debug, Args)]
pub(super) struct LoginArgs {
    /// The auth method
    #[arg(long, value_name = "NAME")]
    method: String,
    /// File with the JSON web token, or - for the standard input
    #[arg(long, value_name = "FILE|-")]
    bearer_token_file: String,
    /// File that gets the secret of the token, readable by its owner alone [default: it is printed]
    #[arg(long, value_name = "FILE")]
    token_sink_file: Option<PathBuf>,
}

pub(super) async fn login(args: LoginArgs, cluster: &Cluster, out: WriteOut) -> Result<(), CliError> {
    let bearer = match args.bearer_token_file.as_str() {
        "-" => read_text("-")?,
        file => read_text(&format!("@{file}"))?,
    };
    let body = json!({"AuthMethod": args.method, "BearerToken": bearer.trim()});
    let token = Call::create("/v1/acl/login", &body).send(cluster).await?;
    let Some(sink) = args.token_sink_file else { return show::one(&token, out) };
    let secret = token["SecretID"].as_str().unwrap_or_default();
    write_private(&sink, secret)
        .map_err(|error| CliError::Usage(format!("--token-sink-file {}: {error}", sink.display())))?;
    show::done(&format!("token {} written", token["AccessorID"].as_str().unwrap_or_default()), out)
}

/// Writes a file that its owner alone can read.
fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}
