//! Markers: positions to resume from, as bytes that are opaque to clients.
//!
//! Owns the format, which outlives the program: a version, the lineage, the target, the log index,
//! and a checksum that rejects other bytes. It holds no secret: a forged marker reveals only data
//! that its user may follow anyway.

use thiserror::Error;

use headwater_node::Position;
use headwater_types::{LogIndex, StoreEpoch};

/// Version of the format; the first byte of a marker.
const VERSION: u8 = 1;
/// Length of a marker, bytes.
pub(super) const MARKER_BYTES: usize = 29;
/// Length of the checked part, bytes.
const CHECKED_BYTES: usize = MARKER_BYTES - 4;

/// The fault of a marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(super) enum Invalid {
    #[error("resume_marker is none that this store has made; begin without one, or with \"now\"")]
    Garbage,
    #[error("resume_marker is from a stream about another target; begin without one")]
    OtherTarget,
}

/// Writes a marker. `target` is the hash of its target.
pub(super) fn write(target: u64, position: Position) -> Vec<u8> {
    let mut marker = Vec::with_capacity(MARKER_BYTES);
    marker.push(VERSION);
    marker.extend_from_slice(&position.epoch.map_or(0, StoreEpoch::get).to_be_bytes());
    marker.extend_from_slice(&target.to_be_bytes());
    marker.extend_from_slice(&position.index.get().to_be_bytes());
    marker.extend_from_slice(&crc32c::crc32c(&marker).to_be_bytes());
    marker
}

/// Reads a marker, which must be for the target with the hash `target`.
pub(super) fn read(target: u64, marker: &[u8]) -> Result<Position, Invalid> {
    let marker: &[u8; MARKER_BYTES] = marker.try_into().map_err(|_| Invalid::Garbage)?;
    let (checked, checksum) = marker.split_at(CHECKED_BYTES);
    if marker[0] != VERSION || crc32c::crc32c(checked).to_be_bytes() != checksum {
        return Err(Invalid::Garbage);
    }
    let number = |at: usize| u64::from_be_bytes(marker[at..at + 8].try_into().expect("eight bytes"));
    if number(9) != target {
        return Err(Invalid::OtherTarget);
    }
    let epoch = Some(StoreEpoch(number(1))).filter(|epoch| epoch.get() != 0);
    Ok(Position { epoch, index: LogIndex(number(17)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position() -> Position {
        Position { epoch: Some(StoreEpoch(0x0102_0304_0506_0708)), index: LogIndex(10) }
    }

    #[test]
    fn the_format_is_pinned() {
        let marker = write(0x1112_1314_1516_1718, position());
        let wanted = b"\x01\x01\x02\x03\x04\x05\x06\x07\x08\x11\x12\x13\x14\x15\x16\x17\x18\0\0\0\0\0\0\0\x0a";
        assert_eq!(&marker[..CHECKED_BYTES], wanted);
        assert_eq!(marker.len(), MARKER_BYTES);
        assert_eq!(read(0x1112_1314_1516_1718, &marker), Ok(position()));
    }

    #[test]
    fn w14_the_marker_of_another_target() {
        assert_eq!(read(2, &write(1, position())), Err(Invalid::OtherTarget));
    }

    #[test]
    fn w15_what_is_no_marker() {
        let good = write(1, position());
        for length in 0..good.len() {
            assert_eq!(read(1, &good[..length]), Err(Invalid::Garbage), "{length}");
        }
        for at in 0..good.len() {
            let mut wrong = good.clone();
            wrong[at] ^= 1;
            assert_eq!(read(1, &wrong), Err(Invalid::Garbage), "{at}");
        }
        let long = [good.clone(), vec![0]].concat();
        for wrong in [&long[..], &[0; MARKER_BYTES], &[0], &vec![0; 1 << 20], b"NOW", b"now ", b"now\0"] {
            assert_eq!(read(1, wrong), Err(Invalid::Garbage));
        }
    }
}
