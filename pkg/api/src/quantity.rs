//! Parsing of Kubernetes quantities.

/// One unit in the scale of [`parse_nanos`].
pub const NANOS_PER_UNIT: i128 = 1_000_000_000;
const NANO_DIGITS: i32 = 9;

/// Parses a quantity into units of 10^-9, rounded up as Kubernetes does, and saturating at
/// `i128::MAX`. Returns `None` if `text` is not a quantity.
pub fn parse_nanos(text: &str) -> Option<i128> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = unsigned
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') || number.len() == number.matches('.').count() {
        return None;
    }
    let (twos, tens) = parse_suffix(suffix)?;
    let digits = whole
        .bytes()
        .chain(fraction.bytes())
        .fold(0_u128, |sum, digit| {
            sum.saturating_mul(10)
                .saturating_add(u128::from(digit - b'0'))
        });
    let tens = tens
        .saturating_add(NANO_DIGITS)
        .saturating_sub(i32::try_from(fraction.len()).ok()?);
    let power = 10_u128
        .checked_pow(tens.unsigned_abs())
        .unwrap_or(u128::MAX);
    let digits = digits.saturating_mul(1 << twos);
    let amount = if tens < 0 {
        digits.div_ceil(power)
    } else {
        digits.saturating_mul(power)
    };
    let amount = i128::try_from(amount).unwrap_or(i128::MAX);
    Some(if text.starts_with('-') {
        -amount
    } else {
        amount
    })
}

/// Returns the exponents of two and of ten that a suffix means.
fn parse_suffix(suffix: &str) -> Option<(u32, i32)> {
    Some(match suffix {
        "n" => (0, -9),
        "u" => (0, -6),
        "m" => (0, -3),
        "" => (0, 0),
        "k" => (0, 3),
        "M" => (0, 6),
        "G" => (0, 9),
        "T" => (0, 12),
        "P" => (0, 15),
        "E" => (0, 18),
        "Ki" => (10, 0),
        "Mi" => (20, 0),
        "Gi" => (30, 0),
        "Ti" => (40, 0),
        "Pi" => (50, 0),
        "Ei" => (60, 0),
        exponent => (0, exponent.strip_prefix(['e', 'E'])?.parse().ok()?),
    })
}

/// Parses a quantity as a count: rounded up, at least 0, at most `i32::MAX`. Returns `None` if
/// `text` is not a quantity.
pub fn parse_count(text: &str) -> Option<i32> {
    let count = parse_nanos(text)?.max(0).saturating_add(NANOS_PER_UNIT - 1) / NANOS_PER_UNIT;
    Some(i32::try_from(count).unwrap_or(i32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_with_fraction_is_rounded_up() {
        for (text, number) in [
            ("8", Some(8)),
            ("1k", Some(1000)),
            ("1500m", Some(2)),
            ("0", Some(0)),
            ("", None),
            ("x", None),
            ("3G", Some(i32::MAX)),
        ] {
            assert_eq!(parse_count(text), number, "{text}");
        }
    }

    #[test]
    fn quantity_is_parsed_as_kubernetes_does() {
        for (text, thousandths) in [
            ("0.5", Some(500)),
            (".5", Some(500)),
            ("500m", Some(500)),
            ("+2", Some(2_000)),
            ("-1", Some(-1_000)),
            ("1Gi", Some(1_073_741_824_000)),
            ("1G", Some(1_000_000_000_000)),
            ("1e3", Some(1_000_000)),
            ("1E3", Some(1_000_000)),
            ("1E", Some(1_000_000_000_000_000_000_000)),
            (".", None),
            ("1 Gi", None),
            ("1gi", None),
            ("1.2.3", None),
            ("lots", None),
            ("NaN", None),
        ] {
            let expected =
                thousandths.map(|thousandths: i128| thousandths * (NANOS_PER_UNIT / 1000));
            assert_eq!(parse_nanos(text), expected, "{text}");
        }
        assert_eq!(parse_nanos("1e999"), Some(i128::MAX));
    }
}
