//! Prints answers: as etcdctl does (`simple`, `json`), or as a table.

pub mod json;

use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::ValueEnum;
use comfy_table::{Table, presets};
use humantime::Rfc3339Timestamp;
use serde::Serialize;

use super::error::CliError;
use headwater_proto::pb::mvccpb::KeyValue;

/// Format of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WriteOut {
    /// Lines, as etcdctl prints them
    Simple,
    /// One JSON object, with etcdctl's names
    Json,
    /// A table
    Table,
}

/// Prints a value as one line of JSON.
pub fn print_json(out: &mut impl Write, value: &impl Serialize) -> Result<(), CliError> {
    let text = serde_json::to_string(value).map_err(CliError::other)?;
    Ok(writeln!(out, "{text}")?)
}

/// Prints a table with a header.
pub fn print_table(
    out: &mut impl Write,
    header: &[&str],
    rows: impl IntoIterator<Item = Vec<String>>,
) -> Result<(), CliError> {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_FULL_CONDENSED).set_header(header).add_rows(rows);
    Ok(writeln!(out, "{table}")?)
}

/// Prints the key and the value as raw bytes, each on a line of its own.
pub fn print_pair(out: &mut impl Write, kv: &KeyValue) -> Result<(), CliError> {
    print_bytes(out, &kv.key)?;
    print_bytes(out, &kv.value)
}

/// Prints raw bytes and an end of line.
pub fn print_bytes(out: &mut impl Write, bytes: &[u8]) -> Result<(), CliError> {
    out.write_all(bytes)?;
    Ok(out.write_all(b"\n")?)
}

/// Names of the columns of [`pair_row`].
pub const PAIR_HEADER: &[&str] = &["KEY", "VALUE", "CREATE REVISION", "MOD REVISION", "VERSION", "LEASE"];

/// A key-value pair as a row of a table. Bytes that are not UTF-8 are replaced. The id of the lease
/// is hexadecimal; without a lease the cell is empty.
pub fn pair_row(kv: &KeyValue) -> Vec<String> {
    vec![
        String::from_utf8_lossy(&kv.key).into_owned(),
        String::from_utf8_lossy(&kv.value).into_owned(),
        kv.create_revision.to_string(),
        kv.mod_revision.to_string(),
        kv.version.to_string(),
        if kv.lease == 0 { String::new() } else { format!("{:x}", kv.lease) },
    ]
}

/// A number of bytes as a text with a binary unit, such as `1.5 MiB`.
pub fn human_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    // From here on, one decimal shows 1024.0.
    const NEXT_UNIT: f64 = 1023.95;
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= NEXT_UNIT && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// The first moment of the year 10000: dates have four digits.
const YEAR_10000_UNIX_MS: u64 = 253_402_300_800_000;

/// A time as a date in UTC, as `format` writes it. After the year 9999, the number itself.
pub fn human_date(unix_ms: u64, format: fn(SystemTime) -> Rfc3339Timestamp) -> String {
    match unix_ms {
        ..YEAR_10000_UNIX_MS => format(UNIX_EPOCH + Duration::from_millis(unix_ms)).to_string(),
        _ => unix_ms.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_for_people() {
        use humantime::{format_rfc3339_millis, format_rfc3339_seconds};
        assert_eq!(human_date(1001, format_rfc3339_millis), "1970-01-01T00:00:01.001Z");
        assert_eq!(human_date(YEAR_10000_UNIX_MS - 1, format_rfc3339_seconds), "9999-12-31T23:59:59Z");
        for far in [YEAR_10000_UNIX_MS, u64::MAX] {
            assert_eq!(human_date(far, format_rfc3339_millis), far.to_string());
        }
    }

    #[test]
    fn bytes_for_people() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1_048_524, "1023.9 KiB"),
            (1_048_525, "1.0 MiB"),
            (1_048_575, "1.0 MiB"),
            (1_572_864, "1.5 MiB"),
            ((1 << 40) - 1, "1.0 TiB"),
            (u64::MAX, "16777216.0 TiB"),
        ] {
            assert_eq!(human_bytes(bytes), text);
        }
    }
}
