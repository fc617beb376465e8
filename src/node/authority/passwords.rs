//! Passwords: hashed with argon2id, checked in constant time, never kept.
//!
//! Owns the parameters and the bound on concurrent work: a hash takes memory and tens of
//! milliseconds of a core by intent. Knows no user. Invariants: no hash is computed on the threads
//! of requests or of apply; a password is overwritten in memory when its last holder drops it.

use std::sync::{Arc, LazyLock};

use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString};
use argon2::{Argon2, Params};
use tokio::sync::Semaphore;

use super::super::{NodeError, RequestContext, Secret};
use crate::shares::Shares;
use headwater_types::auth::{AuthRefusal, SecretHash};
use headwater_types::limits::{PASSWORD_BYTES_MAX, PASSWORDS_HASHED_AT_ONCE, PASSWORDS_WAITING_MAX};

/// Most memory that a check against a hash may take, if a client gave the hash, KiB.
const HASH_KIB_MAX: u32 = 256 * 1024;
/// Most passes that a check against a hash may take, if a client gave the hash, count.
const HASH_PASSES_MAX: u32 = 16;

/// The hash that is checked for a user without one, such as a missing user. Its refusal then takes
/// as long as that of a wrong password.
static NOBODY: LazyLock<String> = LazyLock::new(|| hash_now("nobody").unwrap_or_default());

/// Hashing and checking of passwords, with bounds. Each password takes one of `permits`, or is
/// refused. It holds the permit while it waits and while it is hashed or checked; the request may
/// go on after that. One client cannot hold all permits. One of `turns` is held while a password
/// is hashed or checked; passwords get one in the order in which they began to wait.
pub(super) struct Passwords {
    turns: Arc<Semaphore>,
    permits: Shares,
}

impl Passwords {
    pub(super) fn new() -> Self {
        Self { turns: Arc::new(Semaphore::new(PASSWORDS_HASHED_AT_ONCE)), permits: Shares::new(PASSWORDS_WAITING_MAX) }
    }

    /// The hash of a new password.
    ///
    /// # Errors
    ///
    /// [`NodeError::TooManyRequests`] if too many passwords wait, in all or of this client;
    /// [`NodeError::Timeout`] if this one still waits at the deadline;
    /// [`NodeError::RequestTooLarge`] for a password of more than [`PASSWORD_BYTES_MAX`] bytes;
    /// [`NodeError::Stopped`] if hashing fails.
    pub(super) async fn hash(&self, ctx: &RequestContext, password: Secret) -> Result<SecretHash, NodeError> {
        if password.reveal().len() > PASSWORD_BYTES_MAX {
            return Err(NodeError::RequestTooLarge);
        }
        let hashed = self.run(ctx, move || hash_now(password.reveal())).await?;
        hashed.map(|hash| SecretHash(hash.into())).ok_or(NodeError::Stopped)
    }

    /// Whether a password matches the hash. False without a hash: the check then takes as long as
    /// with one. False at once for a password that is too long.
    ///
    /// # Errors
    ///
    /// [`NodeError::TooManyRequests`] if too many passwords wait, in all or of this client;
    /// [`NodeError::Timeout`] if this one still waits at the deadline.
    pub(super) async fn matches(
        &self,
        ctx: &RequestContext,
        password: Secret,
        hash: Option<SecretHash>,
    ) -> Result<bool, NodeError> {
        if password.reveal().len() > PASSWORD_BYTES_MAX {
            return Ok(false);
        }
        self.run(ctx, move || match &hash {
            Some(SecretHash(hash)) => verify(password.reveal(), std::str::from_utf8(hash).unwrap_or_default()),
            None => {
                verify(password.reveal(), &NOBODY);
                false
            }
        })
        .await
    }

    async fn run<T: Send + 'static>(
        &self,
        ctx: &RequestContext,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NodeError> {
        let _permit = self.permits.take(ctx.client).ok_or(NodeError::TooManyRequests)?;
        let turn = tokio::time::timeout_at(ctx.deadline.into(), self.turns.clone().acquire_owned()).await;
        let turn = turn.map_err(|_| NodeError::Timeout)?.map_err(|_| NodeError::Stopped)?;
        let done = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            work()
        });
        done.await.map_err(|_| NodeError::Stopped)
    }
}

/// Checks a password hash that a client sends instead of a password.
///
/// # Errors
///
/// [`AuthRefusal::InvalidManagement`] if `text` is no argon2id hash, or if a check against it would
/// take too much memory or too many passes.
pub(super) fn take_hash(text: &str) -> Result<SecretHash, AuthRefusal> {
    let is_bearable = PasswordHash::new(text).is_ok_and(|hash| {
        let bearable = |params: Params| params.m_cost() <= HASH_KIB_MAX && params.t_cost() <= HASH_PASSES_MAX;
        hash.algorithm == argon2::ARGON2ID_IDENT
            && hash.hash.is_some()
            && hash.salt.is_some()
            && Params::try_from(&hash).is_ok_and(bearable)
    });
    match is_bearable {
        true => Ok(SecretHash(text.to_owned().into())),
        false => Err(AuthRefusal::InvalidManagement),
    }
}

fn hash_now(password: &str) -> Option<String> {
    let salt = SaltString::encode_b64(&rand::random::<[u8; 16]>()).ok()?;
    Argon2::default().hash_password(password.as_bytes(), &salt).ok().map(|hash| hash.to_string())
}

fn verify(password: &str, hash: &str) -> bool {
    PasswordHash::new(hash).is_ok_and(|hash| Argon2::default().verify_password(password.as_bytes(), &hash).is_ok())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::ClientKey;

    #[tokio::test]
    async fn a_password_fits_its_own_hash_only() {
        let passwords = Passwords::new();
        let ctx = &RequestContext::within(Duration::from_secs(60));
        let hash = passwords.hash(ctx, Secret::new("right")).await.unwrap();
        let text = std::str::from_utf8(&hash.0).unwrap();
        assert!(text.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{text}");
        assert_eq!(take_hash(text), Ok(hash.clone()));
        assert!(passwords.matches(ctx, Secret::new("right"), Some(hash.clone())).await.unwrap());
        assert!(!passwords.matches(ctx, Secret::new("wrong"), Some(hash.clone())).await.unwrap());
        assert!(!passwords.matches(ctx, Secret::new(""), Some(hash.clone())).await.unwrap());
        assert!(!passwords.matches(ctx, Secret::new("nobody"), None).await.unwrap());
        let again = passwords.hash(ctx, Secret::new("right")).await.unwrap();
        assert_ne!(again.0, text.as_bytes(), "salted");
        let long = "x".repeat(PASSWORD_BYTES_MAX + 1);
        assert_eq!(passwords.hash(ctx, Secret::new(long)).await, Err(NodeError::RequestTooLarge));
    }

    #[tokio::test]
    async fn a_stranger_leaves_places_to_others() {
        let passwords = Passwords::new();
        let by = |client| RequestContext { client, ..RequestContext::within(Duration::from_secs(60)) };
        let (stranger, root) = (by(ClientKey::Named(1)), by(ClientKey::Named(2)));
        let held: Vec<_> = std::iter::from_fn(|| passwords.permits.take(stranger.client)).collect();
        assert_eq!(passwords.hash(&stranger, Secret::new("p")).await, Err(NodeError::TooManyRequests));
        assert!(passwords.hash(&root, Secret::new("p")).await.is_ok());
        drop(held);
        assert!(passwords.hash(&stranger, Secret::new("p")).await.is_ok());
    }

    #[test]
    fn a_given_hash_cannot_demand_too_much() {
        let salt_and_hash = "$c29tZXNhbHQ$RdescudvJCsgt3ub+b4dWRWJTmaaJObG";
        for (head, taken) in [
            ("$argon2id$v=19$m=65536,t=2,p=1", true),
            ("$argon2id$v=19$m=4194304,t=2,p=1", false),
            ("$argon2id$v=19$m=65536,t=1000,p=1", false),
            ("$argon2i$v=19$m=65536,t=2,p=1", false),
            ("$2b$10", false),
        ] {
            assert_eq!(take_hash(&format!("{head}{salt_and_hash}")).is_ok(), taken, "{head}");
        }
        assert!(take_hash("").is_err());
    }
}
