//! Durations as Go writes and reads them: `1m30s`, `300ms`, `1.5h`.

use std::time::Duration;

/// Nanoseconds of each unit. Microseconds have two spellings besides `us`: with the micro sign and
/// with the Greek letter.
const UNITS: [(&str, u128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60 * 1_000_000_000),
    ("h", 3600 * 1_000_000_000),
];

/// Reads a duration that is not negative: numbers with units, one after the other, or `0`, with or
/// without a `+` in front. `None` for anything else, and for more than Go can hold: `i64::MAX`
/// nanoseconds, 292 years.
pub fn parse(text: &str) -> Option<Duration> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total_ns = 0_u128;
    while !rest.is_empty() {
        let whole_len = digits(rest);
        let (whole, after) = rest.split_at(whole_len);
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => after.split_at(digits(after)),
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() || whole.len() > 20 || fraction.len() > 20 {
            return None;
        }
        let unit_len = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_len);
        let (_, unit_ns) = *UNITS.iter().find(|(name, _)| *name == unit)?;
        let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        total_ns = total_ns.checked_add(whole.checked_mul(unit_ns)?)?;
        if !fraction.is_empty() {
            let value: u128 = fraction.parse().ok()?;
            total_ns += value.checked_mul(unit_ns)? / 10_u128.pow(u32::try_from(fraction.len()).ok()?);
        }
        rest = after;
    }
    (total_ns <= i64::MAX as u128)
        .then(|| Duration::new((total_ns / 1_000_000_000) as u64, (total_ns % 1_000_000_000) as u32))
}

fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

/// Writes a duration as Go does: `1h0m0s`, `1.5s`, `300ms`, `0s`.
pub fn format(duration: Duration) -> String {
    let ns = duration.as_nanos();
    let fraction = |value: u128, unit_ns: u128, unit: &str| {
        let (whole, rest) = (value / unit_ns, value % unit_ns);
        if rest == 0 {
            return format!("{whole}{unit}");
        }
        let width = unit_ns.ilog10() as usize;
        format!("{whole}.{}{unit}", format!("{rest:0width$}").trim_end_matches('0'))
    };
    match ns {
        0 => "0s".to_owned(),
        1..1_000 => format!("{ns}ns"),
        1_000..1_000_000 => fraction(ns, 1_000, "µs"),
        1_000_000..1_000_000_000 => fraction(ns, 1_000_000, "ms"),
        _ => {
            let minutes = duration.as_secs() / 60;
            let seconds = fraction(ns - u128::from(minutes) * 60_000_000_000, 1_000_000_000, "s");
            match minutes {
                0 => seconds,
                1..60 => format!("{minutes}m{seconds}"),
                _ => format!("{}h{}m{seconds}", minutes / 60, minutes % 60),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, wanted_ms) in [
            ("30s", Some(30_000)),
            ("5m", Some(300_000)),
            ("300000ms", Some(300_000)),
            ("1m30s", Some(90_000)),
            ("1h0m0.5s", Some(3_600_500)),
            ("1.5h", Some(5_400_000)),
            (".5s", Some(500)),
            ("5.s", Some(5000)),
            ("0", Some(0)),
            ("+1s", Some(1000)),
            ("0s", Some(0)),
            ("2000000µs", Some(2000)),
            ("", None),
            ("+", None),
            ("5", None),
            ("s", None),
            (".s", None),
            ("-5s", None),
            ("5 s", None),
            ("5sec", None),
            ("9999999999h", None),
            ("99999999999999999999999s", None),
            ("soon", None),
        ] {
            assert_eq!(parse(text), wanted_ms.map(Duration::from_millis), "{text:?}");
        }
    }

    #[test]
    fn durations_are_written_as_go_writes_them() {
        for (ns, wanted) in [
            (0, "0s"),
            (1, "1ns"),
            (1500, "1.5µs"),
            (300_000_000, "300ms"),
            (1_050_000_000, "1.05s"),
            (10_000_000_000, "10s"),
            (90_000_000_000, "1m30s"),
            (3_600_000_000_000, "1h0m0s"),
            (3_661_500_000_000, "1h1m1.5s"),
        ] {
            let duration = Duration::from_nanos(ns);
            assert_eq!(format(duration), wanted);
            assert_eq!(parse(wanted), Some(duration), "{wanted}");
        }
    }
}
