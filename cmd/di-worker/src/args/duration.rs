//! Durations of the command line.

use std::time::Duration;

/// Parses `500ms`, `90`, `90s`, `5m`, `1h`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let units = [
        ("ms", 1),
        ("s", 1000),
        ("m", 60_000),
        ("h", 3_600_000),
        ("", 1000),
    ];
    let parsed = units.iter().find_map(|(unit, milliseconds)| {
        let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
        number.checked_mul(*milliseconds)
    });
    parsed
        .map(Duration::from_millis)
        .ok_or_else(|| "must be a duration like 500ms, 90s, 5m or 1h".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_units_are_parsed() {
        for (text, milliseconds) in [
            ("500ms", 500),
            ("90s", 90_000),
            ("90", 90_000),
            ("5m", 300_000),
            ("1h", 3_600_000),
        ] {
            assert_eq!(
                parse_duration(text),
                Ok(Duration::from_millis(milliseconds)),
                "{text}"
            );
        }
        for text in ["", "s", "-1s", "1d", "1.5s", "99999999999999999h"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
