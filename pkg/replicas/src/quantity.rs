//! Quantities as Kubernetes writes them, as far as limits need them: whether they are valid, zero, or whole.

const SUFFIXES: [(&str, f64); 16] = [
    ("Ki", 1024.0),
    ("Mi", 1_048_576.0),
    ("Gi", 1_073_741_824.0),
    ("Ti", 1_099_511_627_776.0),
    ("Pi", 1_125_899_906_842_624.0),
    ("Ei", 1_152_921_504_606_846_976.0),
    ("n", 1e-9),
    ("u", 1e-6),
    ("m", 1e-3),
    ("k", 1e3),
    ("M", 1e6),
    ("G", 1e9),
    ("T", 1e12),
    ("P", 1e15),
    ("E", 1e18),
    ("", 1.0),
];

/// The value of a quantity that is not negative; nothing for what is no quantity.
pub(crate) fn value(quantity: &str) -> Option<f64> {
    let end = quantity
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(quantity.len());
    let (number, suffix) = quantity.split_at(end);
    if !number.contains(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let number: f64 = number.parse().ok()?;
    if let Some((_, factor)) = SUFFIXES.iter().find(|(known, _)| *known == suffix) {
        return Some(number * factor);
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    Some(number * 10_f64.powi(exponent)).filter(|value| value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::value;

    #[test]
    fn quantities_are_read_as_kubernetes_reads_them() {
        for (quantity, expected) in [
            ("2", Some(2.0)),
            ("0", Some(0.0)),
            ("0.5", Some(0.5)),
            (".5", Some(0.5)),
            ("500m", Some(0.5)),
            ("1Gi", Some(1_073_741_824.0)),
            ("1G", Some(1e9)),
            ("1e3", Some(1e3)),
            ("1E3", Some(1e3)),
            ("1E", Some(1e18)),
            ("", None),
            (".", None),
            ("-1", None),
            ("1 Gi", None),
            ("1gi", None),
            ("1.2.3", None),
            ("lots", None),
            ("NaN", None),
            ("1e999", None),
        ] {
            assert_eq!(value(quantity), expected, "{quantity:?}");
        }
    }
}
