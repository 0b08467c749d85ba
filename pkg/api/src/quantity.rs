//! Quantities as Kubernetes writes them.

/// One, in the unit of [`nanos`].
pub const NANO: i128 = 1_000_000_000;
const NANO_DIGITS: i32 = 9;
/// Suffixes from one upwards, and from a thousand-millionth.
const TWOS: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
const TENS: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];

/// The amount in thousand-millionths, rounded up as Kubernetes does; nothing where it is no quantity.
pub fn nanos(text: &str) -> Option<i128> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = unsigned
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') || number.len() == number.matches('.').count() {
        return None;
    }
    let (twos, tens) = scale(suffix)?;
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

/// The powers of two and of ten that a suffix stands for.
fn scale(suffix: &str) -> Option<(u32, i32)> {
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

/// The amount as Kubernetes writes it, with the largest suffix that keeps it whole: a power of 1024 where `is_binary`, and one of 1000 else.
pub fn written(amount: i128, is_binary: bool) -> String {
    let (step, suffixes, mut left) = if is_binary && amount % NANO == 0 {
        (1024, &TWOS[..], amount / NANO)
    } else {
        (1000, &TENS[..], amount)
    };
    let mut suffixes = suffixes.iter();
    let mut suffix = suffixes.next();
    while left % step == 0
        && left != 0
        && let Some(larger) = suffixes.next()
    {
        left /= step;
        suffix = Some(larger);
    }
    let suffix = suffix.filter(|_| left != 0).unwrap_or(&"");
    format!("{left}{suffix}")
}

/// The amount as a whole number that is not negative, rounded up; the largest there is where it is larger. Nothing where it is no quantity.
pub fn whole(text: &str) -> Option<i32> {
    let whole = nanos(text)?.max(0).saturating_add(NANO - 1) / NANO;
    Some(i32::try_from(whole).unwrap_or(i32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_rounded_up() {
        for (text, number) in [
            ("8", Some(8)),
            ("1k", Some(1000)),
            ("1500m", Some(2)),
            ("0", Some(0)),
            ("", None),
            ("x", None),
            ("3G", Some(i32::MAX)),
        ] {
            assert_eq!(whole(text), number, "{text}");
        }
    }

    #[test]
    fn amounts_are_written_as_kubernetes_writes_them() {
        for (text, is_binary, expected) in [
            ("4", false, "4"),
            ("1.25", false, "1250m"),
            ("4000", false, "4k"),
            ("1Gi", false, "1073741824"),
            ("1280Mi", true, "1280Mi"),
            ("2048Mi", true, "2Gi"),
            ("1000", true, "1000"),
            ("0.5", true, "500m"),
            ("0", true, "0"),
            ("0", false, "0"),
            ("5000E", false, "5000E"),
        ] {
            assert_eq!(written(nanos(text).unwrap(), is_binary), expected, "{text}");
        }
    }

    #[test]
    fn quantities_are_read_as_kubernetes_reads_them() {
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
            let expected = thousandths.map(|thousandths: i128| thousandths * (NANO / 1000));
            assert_eq!(nanos(text), expected, "{text}");
        }
        assert_eq!(nanos("1e999"), Some(i128::MAX));
    }
}
