//! Signed tokens (JWT): the user, and the auth revision at which the password was checked.
//!
//! Owns the claims, which are etcd's, and the keys. The crate `jsonwebtoken` signs and verifies.
//! Invariant: only the configured algorithm is accepted, whichever algorithm a token names.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use serde::{Deserialize, Serialize};

use super::super::{NodeError, Secret};
use headwater_types::auth::AuthRefusal;

/// The keys of signed tokens.
#[derive(Clone)]
pub struct TokenKeys {
    algorithm: Algorithm,
    /// The private key. `None` on a member that only verifies tokens.
    sign: Option<EncodingKey>,
    verify: DecodingKey,
    ttl: Duration,
}

impl fmt::Debug for TokenKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenKeys").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}

/// The reason for which keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadTokenKeys {
    /// The method is unknown, or signs with a shared secret.
    #[error("the sign-method must be RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384 or EdDSA")]
    Method,
    /// A key cannot be read, or does not fit the method. The text is the key's setting.
    #[error("the {0} is no PEM of a key for that sign-method")]
    Key(&'static str),
    /// The keys do not belong together.
    #[error("the pub-key does not verify what the priv-key signs")]
    Mismatch,
}

/// etcd's claims.
#[derive(Serialize, Deserialize)]
struct Claims {
    username: String,
    revision: u64,
    /// Seconds since the Unix epoch.
    exp: u64,
}

impl TokenKeys {
    /// Takes keys as PEM. `method` is the name of the algorithm as in a token's header. `ttl` is
    /// the life of a token that these keys sign.
    ///
    /// # Errors
    ///
    /// If the method is unknown or signs with a shared secret, if a key does not fit the method, or
    /// if the two keys do not belong together.
    pub fn new(method: &str, public: &[u8], private: Option<&[u8]>, ttl: Duration) -> Result<Self, BadTokenKeys> {
        let algorithm: Algorithm = method.parse().map_err(|_| BadTokenKeys::Method)?;
        let (verify, sign) = match algorithm {
            Algorithm::RS256
            | Algorithm::RS384
            | Algorithm::RS512
            | Algorithm::PS256
            | Algorithm::PS384
            | Algorithm::PS512 => (DecodingKey::from_rsa_pem(public), private.map(EncodingKey::from_rsa_pem)),
            Algorithm::ES256 | Algorithm::ES384 => {
                (DecodingKey::from_ec_pem(public), private.map(EncodingKey::from_ec_pem))
            }
            Algorithm::EdDSA => (DecodingKey::from_ed_pem(public), private.map(EncodingKey::from_ed_pem)),
            // A shared secret in a file that every member has signs for all of them.
            Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512 => return Err(BadTokenKeys::Method),
        };
        let verify = verify.map_err(|_| BadTokenKeys::Key("pub-key"))?;
        let sign = sign.transpose().map_err(|_| BadTokenKeys::Key("priv-key"))?;
        let keys = Self { algorithm, sign, verify, ttl };
        if keys.sign.is_some() {
            let trial = keys.issue("trial", 1).map_err(|_| BadTokenKeys::Key("priv-key"))?;
            keys.read(trial.reveal()).map_err(|_| BadTokenKeys::Mismatch)?;
        }
        Ok(keys)
    }

    /// Whether this member has the private key.
    pub(super) fn can_sign(&self) -> bool {
        self.sign.is_some()
    }

    /// Signs a token for the user `name`; it expires after the keys' time to live.
    /// [`NodeError::CannotSign`] without the private key, or if signing fails.
    pub(super) fn issue(&self, name: &str, auth_revision: u64) -> Result<Secret, NodeError> {
        let sign = self.sign.as_ref().ok_or(NodeError::CannotSign)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let claims = Claims { username: name.to_owned(), revision: auth_revision, exp: (now + self.ttl).as_secs() };
        let token = jsonwebtoken::encode(&Header::new(self.algorithm), &claims, sign);
        token.map(Secret::new).map_err(|_| NodeError::CannotSign)
    }

    /// The user and the auth revision in a token. Refuses a text that is no token, and a token that
    /// is expired, of another algorithm, or not signed by these keys.
    pub(super) fn read(&self, token: &str) -> Result<(String, u64), AuthRefusal> {
        let mut validation = Validation::new(self.algorithm);
        validation.leeway = 0;
        validation.validate_aud = false;
        let read = jsonwebtoken::decode::<Claims>(token, &self.verify, &validation);
        let claims = read.map_err(|_| AuthRefusal::InvalidToken)?.claims;
        Ok((claims.username, claims.revision))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A pair that was made for this test (ed25519).
    const PRIVATE: &str = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n-----END PRIVATE KEY-----\n";
    const PUBLIC: &str = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n-----END PUBLIC KEY-----\n";

    fn keys(ttl: Duration) -> TokenKeys {
        TokenKeys::new("EdDSA", PUBLIC.as_bytes(), Some(PRIVATE.as_bytes()), ttl).unwrap()
    }

    #[test]
    fn what_was_signed_is_read() {
        let keys = keys(Duration::from_secs(60));
        let token = keys.issue("u", 7).unwrap();
        assert_eq!(keys.read(token.reveal()), Ok(("u".to_owned(), 7)));
        let (rest, signature) = token.reveal().rsplit_once('.').unwrap();
        let flipped: String = signature.chars().rev().collect();
        assert_eq!(keys.read(&format!("{rest}.{flipped}")), Err(AuthRefusal::InvalidToken));
    }

    #[test]
    fn a_token_runs_out_and_names_no_algorithm_of_its_own() {
        let keys = keys(Duration::from_secs(60));
        let claims = Claims { username: "u".to_owned(), revision: 7, exp: 1 };
        let sign = keys.sign.clone().unwrap();
        let stale = jsonwebtoken::encode(&Header::new(Algorithm::EdDSA), &claims, &sign).unwrap();
        assert_eq!(keys.read(&stale), Err(AuthRefusal::InvalidToken));
        // Unsigned, and signed with the public key as a shared secret.
        let claims = Claims { username: "root".to_owned(), revision: 1, exp: u64::MAX };
        let shared = EncodingKey::from_secret(PUBLIC.as_bytes());
        let forged = jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &shared).unwrap();
        assert_eq!(keys.read(&forged), Err(AuthRefusal::InvalidToken));
        assert_eq!(keys.read("eyJhbGciOiJub25lIn0.eyJ1c2VybmFtZSI6InJvb3QifQ."), Err(AuthRefusal::InvalidToken));
    }

    #[test]
    fn keys_must_fit() {
        let new = |method, public: &str, private: Option<&str>| {
            TokenKeys::new(method, public.as_bytes(), private.map(str::as_bytes), Duration::from_secs(1))
        };
        assert!(new("EdDSA", PUBLIC, None).is_ok());
        assert!(matches!(new("none", PUBLIC, None), Err(BadTokenKeys::Method)));
        assert!(matches!(new("HS256", PUBLIC, None), Err(BadTokenKeys::Method)));
        assert!(matches!(new("RS256", PUBLIC, None), Err(BadTokenKeys::Key("pub-key"))));
        assert!(matches!(new("EdDSA", PUBLIC, Some(PUBLIC)), Err(BadTokenKeys::Key(_))));
        let lone = new("EdDSA", PUBLIC, None).unwrap();
        assert!(!lone.can_sign());
        assert_eq!(lone.issue("u", 1).err(), Some(NodeError::CannotSign));
    }
}
