//! Options that all client commands share.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;

use super::error::CliError;
use super::output::WriteOut;
use super::password::ask_password;
use headwater_client::Credentials;
use headwater_tls::{CertificateFiles, ClientTls, Dialer, MinVersion};

/// Options of client commands: endpoints, TLS, user and token, and the form of answers.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Client options")]
pub struct ClientArgs {
    /// Nodes to talk to; the next one is tried when one cannot be reached
    #[arg(
        long,
        global = true,
        env = "HEADWATER_ENDPOINTS",
        value_delimiter = ',',
        default_value = "127.0.0.1:2379",
        value_name = "[https://]HOST:PORT|unix:///PATH,…"
    )]
    pub endpoints: Vec<String>,
    /// Authorities that judge the nodes' certificates, PEM; asks for TLS where no scheme is written
    #[arg(long = "cacert", id = "client_cacert", global = true, env = "HEADWATER_CACERT", value_name = "FILE")]
    pub cacert: Option<PathBuf>,
    /// This client's certificate, PEM
    #[arg(
        long = "cert",
        id = "client_cert",
        global = true,
        env = "HEADWATER_CERT",
        value_name = "FILE",
        requires = "client_key"
    )]
    pub cert: Option<PathBuf>,
    /// The private key of this client's certificate, PEM
    #[arg(
        long = "key",
        id = "client_key",
        global = true,
        env = "HEADWATER_KEY",
        value_name = "FILE",
        requires = "client_cert"
    )]
    pub key: Option<PathBuf>,
    /// The user to ask as, perhaps with a colon and the password; a password that is not given is
    /// asked for
    #[arg(
        long = "user",
        id = "client_user",
        global = true,
        env = "HEADWATER_USER",
        hide_env_values = true,
        value_name = "NAME[:PASSWORD]"
    )]
    pub user: Option<String>,
    /// The user's password
    #[arg(
        long = "password",
        id = "client_password",
        global = true,
        env = "HEADWATER_PASSWORD",
        hide_env_values = true,
        value_name = "PASSWORD",
        requires = "client_user"
    )]
    pub password: Option<String>,
    /// Secret of a token of Consul's access control lists, for the commands of the catalog; without
    /// it, CONSUL_HTTP_TOKEN
    #[arg(long, global = true, env = "HEADWATER_TOKEN", hide_env_values = true, value_name = "SECRET")]
    pub token: Option<String>,
    /// File with that secret
    #[arg(long, global = true, env = "HEADWATER_TOKEN_FILE", value_name = "FILE", conflicts_with = "token")]
    pub token_file: Option<PathBuf>,
    /// How answers are printed
    #[arg(long, short = 'w', global = true, value_enum, default_value_t = WriteOut::Simple, value_name = "FORMAT")]
    pub write_out: WriteOut,
    /// Consistency of reads: l (linearizable) or s (serializable: the state of the asked node)
    #[arg(long, global = true, value_enum, default_value_t = Freshness::Linearizable, value_name = "l|s")]
    pub consistency: Freshness,
    /// Longest wait for one node's answer; nodes give up after 7s and say why
    #[arg(long, global = true, value_parser = parse_duration, default_value = "10s", value_name = "DURATION")]
    pub timeout: Duration,
}

impl ClientArgs {
    /// The user's name and password; `None` if `--user` is missing or empty. With `--password` all
    /// of `--user` is the name. Reads a password that was not given from standard input, with a
    /// prompt if that is a terminal.
    ///
    /// # Errors
    ///
    /// [`CliError::Usage`] if the name is empty, or the input ends before a password;
    /// [`CliError::Other`] if the terminal or the input fails.
    pub fn credentials(&self) -> Result<Option<Credentials>, CliError> {
        let Some(user) = self.user.as_ref().filter(|user| !user.is_empty()) else { return Ok(None) };
        let (name, password) = match (&self.password, user.split_once(':')) {
            (Some(password), _) => (user.as_str(), password.clone()),
            (None, Some((name, password))) => (name, password.to_owned()),
            (None, None) => (user.as_str(), ask_password("Password: ", true)?),
        };
        if name.is_empty() {
            return Err(CliError::Usage("--user names no user: write NAME or NAME:PASSWORD".to_owned()));
        }
        Ok(Some(Credentials::new(name, password)))
    }

    /// The dialler for the endpoints, with the certificate files that the user named; without TLS
    /// if no file is named. Opens no connection.
    ///
    /// # Errors
    ///
    /// [`CliError::Usage`] if a file cannot be used.
    pub fn dialer(&self) -> Result<Dialer, CliError> {
        let files = CertificateFiles {
            cert: self.cert.clone(),
            key: self.key.clone(),
            trusted_ca: self.cacert.clone(),
            crl: None,
        };
        if files.is_empty() {
            return Ok(Dialer::default());
        }
        // The server decides about the lowest version of TLS.
        let tls = ClientTls::load(files, MinVersion::V1_2).map_err(|error| CliError::Usage(error.to_string()))?;
        Ok(Dialer::new(Some(tls)))
    }
}

impl ClientArgs {
    /// The secret of the token: the content of `--token-file` without surrounding white space, else
    /// `--token`, else `CONSUL_HTTP_TOKEN`. `None` if none is given, or the first of them that is
    /// given is empty.
    ///
    /// # Errors
    ///
    /// [`CliError::Usage`] if the file cannot be read.
    pub fn token(&self) -> Result<Option<String>, CliError> {
        let named = match &self.token_file {
            Some(file) => {
                let text = std::fs::read_to_string(file)
                    .map_err(|error| CliError::Usage(format!("--token-file {}: {error}", file.display())))?;
                Some(text.trim().to_owned())
            }
            None => self.token.clone().or_else(|| std::env::var("CONSUL_HTTP_TOKEN").ok()),
        };
        Ok(named.filter(|token| !token.is_empty()))
    }
}

/// How fresh reads are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Freshness {
    /// Sees every write that was acknowledged before the read began
    #[value(name = "l", alias = "linearizable")]
    Linearizable,
    /// Reads the state of the asked node
    #[value(name = "s", alias = "serializable")]
    Serializable,
}

/// Reads a duration with a unit, such as `5s`.
///
/// # Errors
///
/// Text for the user.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| format!("{error}; write a number with a unit, such as 5s or 200ms"))
}

/// Reads the time to live of a lease, whole seconds: a number without a unit, as for etcdctl, or a
/// duration with a unit.
///
/// # Errors
///
/// Text for the user.
pub fn parse_ttl(text: &str) -> Result<i64, String> {
    if let Ok(seconds) = text.parse() {
        return Ok(seconds);
    }
    let advice = "write seconds, such as 60, or a duration of whole seconds with a unit, such as 60s or 5m";
    let ttl = humantime::parse_duration(text).map_err(|error| format!("{error}; {advice}"))?;
    match i64::try_from(ttl.as_secs()) {
        Ok(seconds) if ttl.subsec_nanos() == 0 => Ok(seconds),
        _ => Err(format!("a lease lives for whole seconds; {advice}")),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        client: ClientArgs,
    }

    fn token(option: &str, value: &str) -> Option<String> {
        Program::parse_from(["headwater", option, value]).client.token().unwrap()
    }

    #[test]
    fn an_empty_token_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        for (text, wanted) in [("", None), (" \n", None), ("secret\n", Some("secret"))] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(token("--token-file", path.to_str().unwrap()).as_deref(), wanted, "{text:?}");
        }
        assert_eq!(token("--token", ""), None);
        assert_eq!(token("--token", "secret").as_deref(), Some("secret"));
    }
}
