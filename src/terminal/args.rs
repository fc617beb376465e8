//! Options that all client commands share.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;

use super::error::CliError;
use super::output::WriteOut;
use headwater_tls::{CertificateFiles, ClientTls, Dialer, MinVersion};

/// How client commands reach a cluster and print what they get.
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
    /// How answers are printed
    #[arg(long, short = 'w', global = true, value_enum, default_value_t = WriteOut::Simple, value_name = "FORMAT")]
    pub write_out: WriteOut,
    /// How fresh reads are: l (linearizable) or s (serializable: what the asked node has)
    #[arg(long, global = true, value_enum, default_value_t = Freshness::Linearizable, value_name = "l|s")]
    pub consistency: Freshness,
    /// Longest wait for one node's answer; nodes give up after 7s and say why
    #[arg(long, global = true, value_parser = parse_duration, default_value = "10s", value_name = "DURATION")]
    pub timeout: Duration,
}

impl ClientArgs {
    /// Connects to the endpoints, with the certificates that the user named.
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
        // What is good enough is the server's decision.
        let tls = ClientTls::load(files, MinVersion::V1_2).map_err(|error| CliError::Usage(error.to_string()))?;
        Ok(Dialer::new(Some(tls)))
    }
}

/// How fresh reads are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Freshness {
    /// Sees every write acknowledged before
    #[value(name = "l", alias = "linearizable")]
    Linearizable,
    /// From the asked node's own state
    #[value(name = "s", alias = "serializable")]
    Serializable,
}

/// A duration with a unit, such as `5s`.
///
/// # Errors
///
/// Text for the command line.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| format!("{error}; write a number with a unit, such as 5s or 200ms"))
}

/// The time to live of a lease, seconds: a number, as etcdctl takes it, or a duration with a unit.
///
/// # Errors
///
/// Text for the command line.
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
