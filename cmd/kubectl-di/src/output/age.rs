use jiff::{SignedDuration, Timestamp};

/// Formats the age of a timestamp as kubectl does: at most two units, one for old objects.
pub fn format_age(then: Timestamp, now: Timestamp) -> String {
    format_duration(now.duration_since(then))
}

fn format_duration(age: SignedDuration) -> String {
    let two = |big: i64, unit: &str, small: i64, subunit: &str| match small {
        0 => format!("{big}{unit}"),
        small => format!("{big}{unit}{small}{subunit}"),
    };
    let seconds = age.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match seconds {
        // The clocks of server and client differ a little, so -1s counts as 0s.
        ..=-2 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if days < 8 => two(days, "d", hours % 24, "h"),
        _ if days < 365 * 2 => format!("{days}d"),
        _ if days < 365 * 8 => two(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_formatted_like_in_kubectl() {
        let (minute, hour, day) = (60, 3600, 86400);
        for (seconds, text) in [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (2 * minute, "2m"),
            (2 * minute + 5, "2m5s"),
            (10 * minute + 5, "10m"),
            (179 * minute, "179m"),
            (3 * hour, "3h"),
            (7 * hour + 30 * minute, "7h30m"),
            (8 * hour + 30 * minute, "8h"),
            (47 * hour, "47h"),
            (2 * day, "2d"),
            (7 * day + 5 * hour, "7d5h"),
            (8 * day + 5 * hour, "8d"),
            (729 * day, "729d"),
            (730 * day, "2y"),
            (731 * day, "2y1d"),
            (365 * 9 * day, "9y"),
        ] {
            assert_eq!(
                format_duration(SignedDuration::from_secs(seconds)),
                text,
                "{seconds}"
            );
        }
    }
}
