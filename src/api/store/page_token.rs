//! Page tokens: the start of a further page, as bytes that are opaque to clients.
//!
//! Owns the format, which outlives the program: a version, the lineage, the hash of the targets,
//! the log index, the number of the target, the last entity, and a checksum that rejects other
//! bytes. It holds no secret: a forged token reveals only data that its user may read anyway.

use thiserror::Error;

use headwater_node::StorePage;
use headwater_types::{LogIndex, StoreEpoch};

/// Version of the format; the first byte of a token.
const VERSION: u8 = 1;
/// Length of the part before the last entity, bytes.
const HEAD_BYTES: usize = 1 + 8 + 8 + 8 + 4;
/// Length of the checksum, bytes.
const CHECKSUM_BYTES: usize = 4;

/// The fault of a page token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(super) enum Invalid {
    #[error("page_token is none that this store has made; begin without one")]
    Garbage,
    #[error("page_token is from a read of other targets; begin without one")]
    OtherTargets,
}

/// Writes a token. `targets` is the hash of the targets.
pub(super) fn write(targets: u64, page: &StorePage) -> Vec<u8> {
    let mut token = Vec::with_capacity(HEAD_BYTES + page.after.len() + CHECKSUM_BYTES);
    token.push(VERSION);
    token.extend_from_slice(&page.epoch.get().to_be_bytes());
    token.extend_from_slice(&targets.to_be_bytes());
    token.extend_from_slice(&page.at.get().to_be_bytes());
    let target = u32::try_from(page.target).expect("invariant: the number of targets is bounded");
    token.extend_from_slice(&target.to_be_bytes());
    token.extend_from_slice(&page.after);
    token.extend_from_slice(&crc32c::crc32c(&token).to_be_bytes());
    token
}

/// Reads a token, which must be for the targets with the hash `targets`.
pub(super) fn read(targets: u64, token: &[u8]) -> Result<StorePage, Invalid> {
    let body = token.len().checked_sub(CHECKSUM_BYTES).filter(|body| *body >= HEAD_BYTES).ok_or(Invalid::Garbage)?;
    let (checked, checksum) = token.split_at(body);
    if checked[0] != VERSION || crc32c::crc32c(checked).to_be_bytes() != checksum {
        return Err(Invalid::Garbage);
    }
    let number = |at: usize| u64::from_be_bytes(checked[at..at + 8].try_into().expect("eight bytes"));
    if number(9) != targets {
        return Err(Invalid::OtherTargets);
    }
    let target = u32::from_be_bytes(checked[25..HEAD_BYTES].try_into().expect("four bytes"));
    Ok(StorePage {
        epoch: StoreEpoch(number(1)),
        at: LogIndex(number(17)),
        target: target as usize,
        after: checked[HEAD_BYTES..].to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> StorePage {
        StorePage { epoch: StoreEpoch(0x0102), at: LogIndex(10), target: 3, after: b"app/a".to_vec() }
    }

    #[test]
    fn the_format_is_pinned() {
        let token = write(0x1112, &page());
        let wanted = b"\x01\0\0\0\0\0\0\x01\x02\0\0\0\0\0\0\x11\x12\0\0\0\0\0\0\0\x0a\0\0\0\x03app/a";
        assert_eq!(&token[..token.len() - CHECKSUM_BYTES], wanted);
        assert_eq!(read(0x1112, &token), Ok(page()));
        let first = StorePage { after: Vec::new(), ..page() };
        assert_eq!(read(1, &write(1, &first)), Ok(first));
    }

    #[test]
    fn what_is_no_token_is_refused() {
        let good = write(1, &page());
        assert_eq!(read(2, &good), Err(Invalid::OtherTargets));
        for length in 0..good.len() {
            assert_eq!(read(1, &good[..length]), Err(Invalid::Garbage), "{length}");
        }
        for at in 0..good.len() {
            let mut wrong = good.clone();
            wrong[at] ^= 1;
            assert_eq!(read(1, &wrong), Err(Invalid::Garbage), "{at}");
        }
        assert_eq!(read(1, &vec![0; 1 << 20]), Err(Invalid::Garbage));
    }
}
