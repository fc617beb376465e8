//! Points of the history as people write them: a log index, `now`, a time ago, or a date.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::output::human_date;
use headwater_proto::pb::headwater_v1 as pb;

/// The forms of a point, for the help of commands.
pub(crate) const WHEN_HELP: &str = "\
WHEN is now, a log index (57 or #57), a time ago (10m, 1h30m, '5m ago'), or a date in UTC (2026-11-26, \
2026-11-26T14:00, 2026-11-26T14:00:00Z).";

/// A date this far in the future may come from a clock that is ahead of this one.
const CLOCK_DIFFERENCE: Duration = Duration::from_secs(300);

/// A point of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    Now,
    /// A log index.
    Index(u64),
    /// So long before the time at which the store is asked.
    Ago(Duration),
    /// A date, in milliseconds since the Unix epoch.
    UnixMs(i64),
}

impl When {
    /// Whether it is a time in the past, and no log index.
    pub(super) fn is_time(self) -> bool {
        match self {
            Self::Now | Self::Index(_) => false,
            Self::Ago(_) | Self::UnixMs(_) => true,
        }
    }

    /// The point as the API of the store takes it; `None` for now.
    pub(super) fn point(self) -> Option<pb::Point> {
        let point = match self {
            Self::Now => return None,
            Self::Index(index) => pb::point::Point::Index(index),
            Self::Ago(ago) => pb::point::Point::UnixMs(unix_ms(SystemTime::now() - ago)),
            Self::UnixMs(unix_ms) => pb::point::Point::UnixMs(unix_ms),
        };
        Some(pb::Point { point: Some(point), epoch: String::new() })
    }
}

fn unix_ms(time: SystemTime) -> i64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// Reads a point: `now`, `57`, `#57`, `10m`, `5m ago`, `2026-11-26`, `2026-11-26T14:00:00Z`.
///
/// # Errors
///
/// Text for the command line.
pub(super) fn parse_when(text: &str) -> Result<When, String> {
    let text = text.trim();
    if text == "now" {
        return Ok(When::Now);
    }
    if let Ok(index) = text.strip_prefix('#').unwrap_or(text).parse() {
        return Ok(When::Index(index));
    }
    if let Ok(ago) = humantime::parse_duration(text.trim_end_matches("ago").trim()) {
        return match SystemTime::now().checked_sub(ago) {
            Some(_) => Ok(When::Ago(ago)),
            None => Err("that is before any clock began".to_owned()),
        };
    }
    match date(text) {
        Some(time) if time > SystemTime::now() + CLOCK_DIFFERENCE => Err("that time is in the future".to_owned()),
        Some(time) => Ok(When::UnixMs(unix_ms(time))),
        None => Err("write now, a log index (57 or #57), a time ago (10m, '5m ago') or a date in UTC \
                     (2026-11-26, 2026-11-26T14:00, 2026-11-26T14:00:00Z)"
            .to_owned()),
    }
}

/// A date in UTC. A missing time of day, or missing seconds, are zero; the `Z` may be missing, too.
fn date(text: &str) -> Option<SystemTime> {
    const DAY: usize = "2026-11-26".len();
    const MINUTE: usize = "2026-11-26T14:00".len();
    let text = text.strip_suffix('Z').unwrap_or(text);
    let whole = match text.len() {
        DAY => format!("{text}T00:00:00"),
        MINUTE => format!("{text}:00"),
        _ => text.to_owned(),
    };
    humantime::parse_rfc3339_weak(&whole).ok()
}

/// A time, in milliseconds since the Unix epoch, for people, in UTC. Empty if it is 0 or negative,
/// which is an unknown time.
pub(super) fn time_text(unix_ms: i64) -> String {
    match u64::try_from(unix_ms) {
        Ok(unix_ms) if unix_ms > 0 => human_date(unix_ms, humantime::format_rfc3339_millis),
        Ok(_) | Err(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_read_as_people_write_them() {
        for (text, wanted) in [
            ("now", When::Now),
            ("57", When::Index(57)),
            ("#57", When::Index(57)),
            ("10m", When::Ago(Duration::from_secs(600))),
            ("5m ago", When::Ago(Duration::from_secs(300))),
            ("1h 30m ago", When::Ago(Duration::from_secs(5400))),
            ("1h30m", When::Ago(Duration::from_secs(5400))),
            ("1970-01-01T00:00:01Z", When::UnixMs(1000)),
            ("1970-01-01 00:00:01", When::UnixMs(1000)),
            ("1970-01-01T00:00:01.001Z", When::UnixMs(1001)),
            ("1970-01-02", When::UnixMs(86_400_000)),
            ("1970-01-01T00:01", When::UnixMs(60_000)),
            ("1970-01-01 00:01Z", When::UnixMs(60_000)),
        ] {
            assert_eq!(parse_when(text), Ok(wanted), "{text}");
        }
        for text in [
            "",
            "yesterday",
            "-5",
            "5",
            "10",
            "m ago",
            "#",
            "#x",
            "2026-13-01",
            "2026-11-26T1",
            "2026-11-2ä",
            "9999-01-01",
        ] {
            assert_eq!(parse_when(text).is_ok(), text.parse::<u64>().is_ok(), "{text}");
        }
    }

    #[test]
    fn times_are_told_in_utc() {
        assert_eq!(time_text(1001), "1970-01-01T00:00:01.001Z");
        assert_eq!(time_text(0), "");
        assert_eq!(time_text(-1), "");
        assert_eq!(time_text(i64::MAX), i64::MAX.to_string(), "no calendar has it");
        let Some(pb::Point { point: Some(pb::point::Point::UnixMs(unix_ms)), .. }) =
            When::Ago(Duration::from_secs(60)).point()
        else {
            panic!("a time ago is a time");
        };
        assert!((unix_ms - self::unix_ms(SystemTime::now()) + 60_000).abs() < 10_000);
    }
}
