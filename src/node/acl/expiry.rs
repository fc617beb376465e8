//! The leader's task that removes tokens that have ended, and makes the configured management
//! token.
//!
//! A token has ended if it has expired, or its auth method is gone. Every lookup refuses it at
//! once; the task removes it from the state later. The task keeps only the earliest expiry, and the
//! log index of the last change of the ACL lists as of which it read that expiry.

use std::sync::Weak;
use std::time::Duration;

use super::{AclKind, hash_secret, management_token};
use crate::{Consistency, Inner, Node, NodeError, RequestContext, tasks};
use headwater_storage::state::AclReader;
use headwater_types::acl::{AclCommand, AclRefusal, AclRow};
use headwater_types::limits::ACL_EXPIRED_MAX;
use headwater_types::{Feature, LogIndex, Refusal};

/// Pause between two rounds.
const INTERVAL: Duration = Duration::from_secs(1);
/// Timeout of one read or proposal.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Runs a [`round`] at intervals while this node leads and the cluster's version has ACLs. Returns
/// when the node is dropped.
pub(crate) async fn keep(inner: Weak<Inner>) {
    if !tasks::once_serving(&inner).await {
        return;
    }
    let mut seen = Seen { as_of: LogIndex::ZERO, earliest_ms: None };
    loop {
        {
            let Some(inner) = inner.upgrade() else { return };
            let node = Node { inner };
            let leads = node.leadership().leader == Some(node.identity().node_id);
            let has_lists = Feature::Acl.is_in(node.versions().cluster().version);
            if leads
                && has_lists
                && let Err(error) = round(&node, &mut seen).await
            {
                tracing::debug!(%error, "tokens are ended later");
            }
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// The earliest expiry of a token, and the state from which it was read. A round reads the tokens
/// again only after a change of the ACL lists or after that expiry.
struct Seen {
    /// Log index of the last change of the ACL lists in that state.
    as_of: LogIndex,
    /// The earliest expiry of a token that had not ended, milliseconds since the Unix epoch; `None`
    /// if no token expires.
    earliest_ms: Option<u64>,
}

/// Makes the configured management token if it is missing, then removes the tokens that have ended.
/// Reads the tokens only after a change of the ACL lists or after the earliest expiry.
async fn round(node: &Node, seen: &mut Seen) -> Result<(), NodeError> {
    make_initial(node).await?;
    let (changed, now_ms) = (node.inner.store.current().head().acl_changed, crate::unix_ms());
    if seen.as_of == changed && seen.earliest_ms.is_none_or(|end_ms| end_ms > now_ms) {
        return Ok(());
    }
    let rows = node.acl().rows(&RequestContext::own(TIMEOUT), Consistency::Serializable, AclKind::Token).await?;
    let tokens = rows.value.value.into_iter().filter_map(|row| match row {
        AclRow::Token(token) => Some(token),
        AclRow::Policy(_) | AclRow::Role(_) | AclRow::Method(_) | AclRow::Binding(_) => None,
    });
    let (mut ended, mut earliest_ms): (Vec<(String, LogIndex)>, _) = (Vec::new(), None);
    node.inner.store.read(|view| {
        for token in tokens {
            if token.has_expired(now_ms) || view.acl_method_is_gone(&token)? {
                ended.push((token.accessor, token.modified));
            } else if token.expires_ms != 0 {
                earliest_ms = Some(earliest_ms.map_or(token.expires_ms, |end_ms: u64| end_ms.min(token.expires_ms)));
            }
        }
        Ok(())
    })?;
    for part in ended.chunks(ACL_EXPIRED_MAX) {
        node.acl().propose(&RequestContext::own(TIMEOUT), AclCommand::Expire(part.to_vec())).await?;
    }
    // After the removals: one that failed is tried again.
    *seen = Seen { as_of: changed, earliest_ms };
    Ok(())
}

/// Makes the management token of the settings, if one is configured, ACLs are on, and no token has
/// its secret. Makes it by a bootstrap if the last one has the log index `bootstrap_reset` of the
/// settings (zero: there was none), so that no client can make that bootstrap. Otherwise adds the
/// token as any other.
async fn make_initial(node: &Node) -> Result<(), NodeError> {
    let acl = node.acl();
    let Some(secret) = acl.options().initial_management.as_ref().filter(|_| acl.is_enabled()) else { return Ok(()) };
    let hash = hash_secret(secret.reveal());
    if node.inner.store.read(|view| view.acl_token_of_secret(&hash.0))?.is_some() {
        return Ok(());
    }
    let accessor = crate::new_uuid();
    let token = management_token(accessor, secret, "Initial Management Token", crate::unix_ms());
    let bootstrap = AclCommand::Bootstrap { token: Box::new(token.clone()), reset: acl.options().bootstrap_reset };
    match acl.propose(&RequestContext::own(TIMEOUT), bootstrap).await {
        Err(NodeError::Refused(Refusal::Acl(AclRefusal::Bootstrapped))) => {
            acl.put(&RequestContext::own(TIMEOUT), AclRow::Token(Box::new(token)), true).await?;
        }
        made => {
            made?;
        }
    }
    tracing::info!("made the management token of the settings");
    Ok(())
}
