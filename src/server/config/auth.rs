//! The check of the settings of users' tokens.

use std::time::Duration;

use super::check::Findings;
use super::draft::Draft;
use super::{AuthConfig, TokenConfig};
use headwater_node::AuthOptions;

/// Largest `auth.token-ttl`, and largest `ttl` of signed tokens.
const TOKEN_TTL_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Smallest `auth.token-ttl`, and smallest `ttl` of signed tokens.
const TOKEN_TTL_MIN: Duration = Duration::from_secs(1);

/// The settings of users' tokens from a draft; problems go into `found`.
pub(super) fn of(draft: &Draft, found: &mut Findings) -> AuthConfig {
    let token = draft.auth_token.clone().unwrap_or_default();
    let token_ttl = draft.auth_token_ttl.unwrap_or(AuthOptions::default().token_ttl);
    let mut bounds = |key: &str, ttl: Duration| {
        if !(TOKEN_TTL_MIN..=TOKEN_TTL_MAX).contains(&ttl) {
            found.add(key, "a token lives for 1s to 24h".to_owned());
        }
    };
    bounds("auth.token-ttl", token_ttl);
    if let TokenConfig::Signed(signed) = &token {
        bounds("auth.token", signed.ttl);
    }
    AuthConfig { token, token_ttl }
}
