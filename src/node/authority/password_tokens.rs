//! Users that send name and password with every request, as browsers and `curl -u` do.
//!
//! Owns the tokens that stand for them, so that a password is not hashed for each request.
//! Invariant: no password is kept, only a keyed hash of it. A token ends with the user's password,
//! or by its time to live; the next request's password is checked again then.

use std::collections::HashMap;

use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use super::super::{NodeError, Principal, RequestContext, Secret};
use super::Auth;
use headwater_types::limits::PASSWORD_TOKENS_MAX;

/// The tokens of users, by the keyed hash of name and password.
pub(super) struct PasswordTokens {
    /// Random, and private to this process: the hashes are useless to any other.
    key: [u8; 32],
    tokens: Mutex<HashMap<[u8; 32], Secret>>,
}

impl PasswordTokens {
    pub(super) fn new() -> Self {
        Self { key: rand::random(), tokens: Mutex::default() }
    }

    fn digest(&self, name: &str, password: &Secret) -> [u8; 32] {
        let length = (name.len() as u64).to_be_bytes();
        let parts = [&self.key[..], &length, name.as_bytes(), password.reveal().as_bytes()];
        parts.iter().fold(Sha256::new(), |hash, part| hash.chain_update(part)).finalize().into()
    }

    fn find(&self, key: &[u8; 32]) -> Option<Secret> {
        self.tokens.lock().get(key).cloned()
    }

    fn keep(&self, key: [u8; 32], token: Secret) {
        let mut tokens = self.tokens.lock();
        if tokens.len() >= PASSWORD_TOKENS_MAX {
            // Active users authenticate again with their next request.
            tokens.clear();
        }
        tokens.insert(key, token);
    }
}

impl Auth<'_> {
    /// The principal of a name and a password. Reuses the token that an earlier call got for them,
    /// while it is valid. Otherwise checks the password, issues a token, and waits until this
    /// member knows it.
    ///
    /// # Errors
    ///
    /// As [`Auth::authenticate`].
    pub async fn authenticate_cached(
        self,
        ctx: &RequestContext,
        name: &str,
        password: &Secret,
    ) -> Result<Principal, NodeError> {
        let password_tokens = &self.node.inner.authority.password_tokens;
        let key = password_tokens.digest(name, password);
        if let Some(token) = password_tokens.find(&key) {
            let principal = Principal::Bearer(token);
            let asked = RequestContext { principal: principal.clone(), ..ctx.clone() };
            if self.node.authorizer(&asked).is_ok() {
                return Ok(principal);
            }
        }
        let (_, _, token) = self.authenticate(ctx, name, password).await?;
        password_tokens.keep(key, token.clone());
        let principal = Principal::Bearer(token);
        // The log entry that issued the token may not be applied on this member yet.
        let asked = RequestContext { principal: principal.clone(), ..ctx.clone() };
        if let Some(index) = self.node.index_of_token(&asked) {
            self.node.inner.reads.barrier.wait_applied(index, ctx.deadline).await?;
        }
        Ok(principal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_passwords_are_told_apart() {
        let password_tokens = PasswordTokens::new();
        let digest = |name: &str, password: &str| password_tokens.digest(name, &Secret::new(password));
        assert_eq!(digest("a", "b"), digest("a", "b"));
        assert_ne!(digest("a", "bc"), digest("ab", "c"));
        assert_ne!(digest("a", "b"), PasswordTokens::new().digest("a", &Secret::new("b")), "another process");
    }

    #[test]
    fn their_number_is_bounded() {
        let password_tokens = PasswordTokens::new();
        for number in 0..=PASSWORD_TOKENS_MAX {
            password_tokens.keep(password_tokens.digest(&number.to_string(), &Secret::new("")), Secret::new("t"));
        }
        assert_eq!(password_tokens.tokens.lock().len(), 1);
    }
}
