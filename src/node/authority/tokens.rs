//! Simple tokens: random letters, a dot, and the log index at which they were issued.
//!
//! Owns the tokens that this member knows: those that have not ended, and whose log entries it has
//! applied since it started. It keeps hashes only, in memory. A restarted member refuses older
//! tokens, and clients authenticate again. Invariant: a token expires a fixed time after its last
//! use on this member, and ends with its user or password. If there are too many tokens, those that
//! expire first are dropped.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rand::Rng;
use sha2::{Digest, Sha256};

use super::super::Secret;
use headwater_types::LogIndex;
use headwater_types::auth::{SecretHash, TokenChange};
use headwater_types::limits::SIMPLE_TOKENS_MAX;

/// Random letters of a token, count.
const LETTERS: usize = 16;

/// The tokens that this member knows.
pub(super) struct SimpleTokens {
    ttl: Duration,
    known: Mutex<HashMap<Key, Entry>>,
}

/// SHA-256 of the letters, and the index.
type Key = ([u8; 32], LogIndex);

struct Entry {
    name: Arc<str>,
    expires: Instant,
}

/// The parts of a simple token.
#[derive(Clone, Copy)]
pub(super) struct Parts<'a> {
    letters: &'a str,
    pub(super) index: LogIndex,
}

/// The parts of a token's text; `None` if it does not have the form of a simple token.
pub(super) fn parse(token: &str) -> Option<Parts<'_>> {
    let (letters, index) = token.split_once('.')?;
    let is_shaped = letters.len() == LETTERS && letters.bytes().all(|byte| byte.is_ascii_alphabetic());
    let is_number = !index.is_empty() && index.bytes().all(|byte| byte.is_ascii_digit());
    if !is_shaped || !is_number {
        return None;
    }
    Some(Parts { letters, index: LogIndex(index.parse().ok()?) })
}

/// New random letters, and their hash for the log.
pub(super) fn new_letters() -> (Secret, SecretHash) {
    const ALPHABET: &[u8; 52] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    // The thread's generator is seeded by the system and cryptographically secure.
    let mut random = rand::rng();
    let letters: String = (0..LETTERS).map(|_| char::from(ALPHABET[random.random_range(0..ALPHABET.len())])).collect();
    let hash = SecretHash(digest(&letters).to_vec().into());
    (Secret::new(letters), hash)
}

/// The whole token: its letters, and the index of the log entry that issued it.
pub(super) fn complete(letters: &Secret, index: LogIndex) -> Secret {
    Secret::new(format!("{}.{index}", letters.reveal()))
}

fn digest(letters: &str) -> [u8; 32] {
    Sha256::digest(letters).into()
}

impl SimpleTokens {
    pub(super) fn new(ttl: Duration) -> Self {
        Self { ttl, known: Mutex::default() }
    }

    /// The user of a token; `None` if the token is unknown or expired. Extends its time to live.
    pub(super) fn user(&self, token: Parts<'_>, now: Instant) -> Option<Arc<str>> {
        // A hash is looked up: the time of a comparison says nothing about the token.
        let key = (digest(token.letters), token.index);
        let mut known = self.known.lock();
        let entry = known.get_mut(&key)?;
        if entry.expires <= now {
            known.remove(&key);
            return None;
        }
        entry.expires = now + self.ttl;
        Some(Arc::clone(&entry.name))
    }

    /// Applies the changes of one commit. A token that it issued begins its time to live at `now`.
    pub(super) fn apply(&self, changes: &[TokenChange], now: Instant) {
        let mut known = self.known.lock();
        for change in changes {
            match change {
                TokenChange::Issued { name, token, index } => {
                    let Ok(hash) = <[u8; 32]>::try_from(token.0.as_ref()) else { continue };
                    if known.len() >= SIMPLE_TOKENS_MAX {
                        evict_excess(&mut known, now);
                    }
                    known.insert((hash, *index), Entry { name: name.as_str().into(), expires: now + self.ttl });
                }
                TokenChange::UserEnded(name) => known.retain(|_, entry| *entry.name != **name),
                TokenChange::AllEnded => known.clear(),
            }
        }
    }

    /// Forgets all tokens, because the whole state was replaced.
    pub(super) fn clear(&self) {
        self.known.lock().clear();
    }
}

/// Drops the expired tokens. If more than nine tenths of the bound are left, also drops those that
/// expire first, down to nine tenths.
fn evict_excess(known: &mut HashMap<Key, Entry>, now: Instant) {
    known.retain(|_, entry| entry.expires > now);
    let most = SIMPLE_TOKENS_MAX - SIMPLE_TOKENS_MAX / 10;
    if known.len() > most {
        let mut ends: Vec<Instant> = known.values().map(|entry| entry.expires).collect();
        let excess = known.len() - most;
        let (_, bound, _) = ends.select_nth_unstable(excess);
        let bound = *bound;
        known.retain(|_, entry| entry.expires >= bound);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(300);

    fn issued(name: &str, index: u64) -> (Secret, TokenChange) {
        let (letters, token) = new_letters();
        let index = LogIndex(index);
        (complete(&letters, index), TokenChange::Issued { name: name.to_owned(), token, index })
    }

    fn user(tokens: &SimpleTokens, token: &Secret, now: Instant) -> Option<String> {
        tokens.user(parse(token.reveal()).unwrap(), now).map(|name| name.to_string())
    }

    #[test]
    fn tokens_have_etcds_shape() {
        let (token, _) = issued("u", 42);
        let (letters, index) = token.reveal().split_once('.').unwrap();
        assert!(letters.len() == 16 && letters.bytes().all(|byte| byte.is_ascii_alphabetic()));
        assert_eq!(index, "42");
        for bad in
            ["", ".", "abcdefghijklmnop", "abcdefghijklmnop.", "abcdefghijklmnop.-1", "abc.1", "abcdefghijklmno1.1"]
        {
            assert!(parse(bad).is_none(), "{bad:?}");
        }
        assert!(!format!("{token:?}").contains(letters));
    }

    #[test]
    fn a_token_lives_as_long_as_it_is_used() {
        let (tokens, now) = (SimpleTokens::new(TTL), Instant::now());
        let (token, change) = issued("u", 7);
        tokens.apply(&[change], now);
        let later = now + TTL - Duration::from_secs(1);
        assert_eq!(user(&tokens, &token, later).as_deref(), Some("u"));
        assert_eq!(user(&tokens, &token, later + TTL - Duration::from_secs(1)).as_deref(), Some("u"));
        assert_eq!(user(&tokens, &token, later + 2 * TTL), None);
        assert_eq!(user(&tokens, &token, now), None, "what has run out is forgotten");
        let other = Secret::new(token.reveal().replace(".7", ".8"));
        assert_eq!(user(&tokens, &other, now), None, "the index belongs to the token");
    }

    #[test]
    fn tokens_end_with_their_user() {
        let (tokens, now) = (SimpleTokens::new(TTL), Instant::now());
        let ((one, a), (two, b)) = (issued("a", 1), issued("b", 2));
        tokens.apply(&[a, b, TokenChange::UserEnded("a".to_owned())], now);
        assert_eq!(user(&tokens, &one, now), None);
        assert_eq!(user(&tokens, &two, now).as_deref(), Some("b"));
        tokens.apply(&[TokenChange::AllEnded], now);
        assert_eq!(user(&tokens, &two, now), None);
    }

    #[test]
    fn the_number_of_tokens_is_bounded() {
        let (tokens, start) = (SimpleTokens::new(TTL), Instant::now());
        let mut last = None;
        for index in 0..=SIMPLE_TOKENS_MAX as u64 {
            let token = SecretHash(Sha256::digest(index.to_be_bytes()).to_vec().into());
            let change = TokenChange::Issued { name: "u".to_owned(), token, index: LogIndex(index) };
            tokens.apply(&[change], start + Duration::from_millis(index));
            last = Some(index);
        }
        let known = tokens.known.lock();
        assert!(known.len() <= SIMPLE_TOKENS_MAX && known.len() >= SIMPLE_TOKENS_MAX * 9 / 10, "{}", known.len());
        assert!(known.keys().any(|(_, index)| Some(index.get()) == last), "the newest stays");
        assert!(!known.keys().any(|(_, index)| index.get() == 0), "the oldest goes");
    }
}
