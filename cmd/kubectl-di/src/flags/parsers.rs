//! Parsers of flag values.

use std::time::Duration;

/// Parses a duration as kubectl does: `30s`, `5m`, `1h30m`; a number without a unit is in seconds.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse() {
        return Ok(Duration::from_secs(seconds));
    }
    let signed: jiff::SignedDuration = text
        .parse()
        .map_err(|_| "expected a duration such as 30s, 5m or 1h30m".to_owned())?;
    Duration::try_from(signed).map_err(|_| "must not be negative".to_owned())
}

/// Parses a timeout; zero means no timeout.
pub fn parse_timeout(text: &str) -> Result<Duration, String> {
    let timeout = parse_duration(text)?;
    Ok(if timeout.is_zero() {
        Duration::MAX
    } else {
        timeout
    })
}

/// Parses a count that may be zero.
pub fn parse_count(text: &str) -> Result<i32, String> {
    match text.parse() {
        Ok(count) if count >= 0 => Ok(count),
        Ok(_) => Err("must not be negative".to_owned()),
        Err(_) => Err(format!("must be a number from 0 to {}", i32::MAX)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_like_in_kubectl() {
        for (text, seconds) in [
            ("30", 30),
            ("30s", 30),
            ("5m", 300),
            ("1h30m", 5400),
            ("0", 0),
        ] {
            assert_eq!(
                parse_duration(text),
                Ok(Duration::from_secs(seconds)),
                "{text}"
            );
        }
        assert!(parse_duration("-5m").is_err());
        assert!(parse_duration("soon").is_err());
        assert_eq!(parse_timeout("0"), Ok(Duration::MAX));
    }
}
