//! Errors of commands, with texts for people.
//!
//! `tonic::Status` and connection errors become [`CliError`] in `connect`, I/O errors here, other
//! errors in the command itself.

use std::fmt;
use std::io;

use thiserror::Error;
use tonic::Status;

/// The reason for which a command failed.
#[derive(Debug, Error)]
pub enum CliError {
    /// No endpoint could carry out the request. Nothing changed, except that an idempotent write
    /// ([`Repeat::Harmless`](headwater_client::Repeat)) may have been carried out.
    #[error("{}", unreachable_text(.0))]
    Unreachable(Vec<Tried>),
    /// A server refused the request. Nothing changed, except that an earlier attempt of an
    /// idempotent write may have been carried out.
    #[error("{}", refused_text(.endpoint, .status))]
    Refused {
        /// The endpoint that refused.
        endpoint: String,
        /// The status with the reason.
        status: Box<Status>,
    },
    /// A write was sent, and no answer came: it may have taken effect, or may still.
    #[error(
        "{endpoint}: {reason}\nThe write may or may not have taken effect, now or later: read before you repeat it."
    )]
    Indeterminate {
        /// The endpoint that the write was sent to.
        endpoint: String,
        /// The failure that came instead of an answer.
        reason: String,
    },
    /// The command line or the input is wrong.
    #[error("{0}")]
    Usage(String),
    /// The command ran to its end, and found the failure that the text describes.
    #[error("{0}")]
    Finding(String),
    /// A server has ended or refused a stream, for a reason that is the same at every endpoint.
    #[error("{}", .0.message())]
    StreamRefused(Box<Status>),
    /// The command ends with this exit status, for a reason that was printed: by the program that
    /// it has started, or by itself.
    #[error("the command ended with status {0}")]
    Exit(u8),
    /// The reader of standard output closed it.
    #[error("standard output was closed")]
    OutputClosed,
    /// Any other error.
    #[error("{0:#}")]
    Other(anyhow::Error),
}

/// A failed attempt at one endpoint, with the reason.
#[derive(Clone, Debug)]
pub struct Tried {
    /// The endpoint's name.
    pub endpoint: String,
    /// The reason of the failure, as a text for people.
    pub reason: String,
}

impl CliError {
    /// Wraps an error that has no kind of its own.
    pub fn other(error: impl Into<anyhow::Error>) -> Self {
        Self::Other(error.into())
    }

    /// The exit status of this program: 2 for [`Usage`](Self::Usage), the status in
    /// [`Exit`](Self::Exit), otherwise 1.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Exit(code) => *code,
            Self::Unreachable(_)
            | Self::Refused { .. }
            | Self::Indeterminate { .. }
            | Self::Finding(_)
            | Self::StreamRefused(_)
            | Self::OutputClosed
            | Self::Other(_) => 1,
        }
    }
}

impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe { Self::OutputClosed } else { Self::Other(error.into()) }
    }
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.endpoint, self.reason)
    }
}

fn unreachable_text(tried: &[Tried]) -> String {
    let mut text = match tried.len() {
        1 => "the endpoint did not answer:".to_owned(),
        count => format!("none of {count} endpoints answered:"),
    };
    for endpoint in tried {
        text.push_str("\n  ");
        text.push_str(&endpoint.to_string());
    }
    let says = |words| tried.iter().any(|endpoint| endpoint.reason.contains(words));
    text.push_str(if says("no leader") {
        "\nWhere a node answers that there is no leader, most of the others do not: start them (scripts/cluster up). \
         Meanwhile a member that was not restarted answers reads with --consistency s."
    } else if says("timed out") || says("no answer within") {
        "\nA node that is there and gives no answer in time may wait for others that are not: scripts/cluster status shows \
         them. Reads with --consistency s need none of them, once the node has recovered; --timeout waits for longer."
    } else {
        "\nIs the cluster running (scripts/cluster status, scripts/cluster up)? \
         Other nodes are named with --endpoints or HEADWATER_ENDPOINTS."
    });
    text
}

fn refused_text(endpoint: &str, status: &Status) -> String {
    if status.message().is_empty() {
        format!("{endpoint}: {}", status.code())
    } else {
        // The server's text comes first: other clients print it, and people search for it.
        format!("{} ({} from {endpoint})", status.message(), code_name(status.code()))
    }
}

/// The code's name, such as `NotFound`.
pub fn code_name(code: tonic::Code) -> String {
    format!("{code:?}")
}
