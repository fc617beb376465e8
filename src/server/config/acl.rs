//! Settings of Consul's access control lists: their bounds, and the files with secrets.
//!
//! Owns the section `acl`. Invariant: a secret is read from a file, and never shown.

use std::path::PathBuf;

use anyhow::Context;

use super::check::Findings;
use super::draft::Draft;
use headwater_node::{AclOptions, Secret};
use headwater_types::LogIndex;

/// Longest secret in a file, bytes.
const SECRET_BYTES_MAX: usize = 256;
/// Longest file with a secret, bytes: there may be space around it.
const SECRET_FILE_BYTES_MAX: u64 = 4096;

/// Consul's access control lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AclConfig {
    /// Whether the access control lists apply. If not, they allow every request.
    pub enabled: bool,
    /// Whether a token may access names that none of its rules covers. Has no effect while etcd's
    /// authentication is on.
    pub default_allow: bool,
    /// Whether keys below a prefix are listed only with the right `list`.
    pub key_list_policy: bool,
    /// The file with the secret of a token with all rights. The leader makes the token if no token
    /// has this secret. `None` for no such token.
    pub initial_management: Option<PathBuf>,
    /// The file with the secret of the token whose rights DNS questions have. `None`: they have
    /// those of the anonymous token.
    pub dns_token: Option<PathBuf>,
    /// One more bootstrap of the ACLs is allowed if the last one has this log index. Zero allows
    /// only the first.
    pub bootstrap_reset: u64,
}

impl AclConfig {
    /// The settings for the node, with the secrets read from their files. An error names the
    /// setting and its file.
    pub(crate) fn options(&self) -> anyhow::Result<AclOptions> {
        let secret = |key: &str, file: &Option<PathBuf>| {
            let Some(file) = file else { return Ok(None) };
            let content = headwater_files::read_secret(file, SECRET_FILE_BYTES_MAX)
                .with_context(|| format!("{key}: cannot read the file {}", file.display()))?;
            let text = String::from_utf8_lossy(&content);
            let secret = text.trim();
            let is_usable =
                (1..=SECRET_BYTES_MAX).contains(&secret.len()) && secret.bytes().all(|it| it.is_ascii_graphic());
            anyhow::ensure!(is_usable, "{key}: the file {} has no secret in one line of ASCII", file.display());
            Ok(Some(Secret::new(secret)))
        };
        Ok(AclOptions {
            enabled: self.enabled,
            default_allow: self.default_allow,
            initial_management: secret("acl.initial-management-token", &self.initial_management)?,
            dns_token: secret("acl.dns-token", &self.dns_token)?,
            bootstrap_reset: LogIndex(self.bootstrap_reset),
            key_list_policy: self.key_list_policy,
        })
    }
}

/// The section `acl` of a draft; problems go into `found`.
pub(super) fn of(draft: &Draft, found: &mut Findings) -> AclConfig {
    let default_allow = match draft.acl_default_policy.as_deref() {
        None | Some("allow") => true,
        Some("deny") => false,
        Some(other) => {
            found.add("acl.default-policy", format!("must be allow or deny, not {other:?}"));
            true
        }
    };
    let acl = AclConfig {
        enabled: draft.acl_enabled.unwrap_or(false),
        default_allow,
        key_list_policy: draft.acl_key_list_policy.unwrap_or(false),
        initial_management: draft.acl_initial_management.clone().flatten(),
        dns_token: draft.acl_dns_token.clone().flatten(),
        bootstrap_reset: draft.acl_bootstrap_reset.unwrap_or(0),
    };
    for (key, file) in [("acl.initial-management-token", &acl.initial_management), ("acl.dns-token", &acl.dns_token)] {
        if file.is_some() && !acl.enabled {
            found.add(key, "needs acl.enabled");
        }
    }
    acl
}
