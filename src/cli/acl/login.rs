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

/// Writes a file that its owner alone can read, in place of an earlier one. Refuses a path that has
/// something other than a regular file, such as a link or a device: the new file would take its
/// place.
fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    if std::fs::symlink_metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(std::io::Error::other("not a regular file"));
    }
    Ok(headwater_files::replace(path, text.as_bytes())?)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_secret_is_for_its_owner_alone_also_in_place_of_another_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        fs::write(&path, "a longer text of before").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        write_private(&path, "secret").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "secret");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

        let link = dir.path().join("link");
        symlink("/dev/null", &link).unwrap();
        assert!(write_private(&link, "secret").is_err() && link.is_symlink());
    }
}
