//! Hints for amounts with a unit that Kubernetes does not know.

use crate::quantity::parse_nanos;

/// Returns the quantities that `text` may mean, the most likely first, for common units: `4GB`,
/// `4 gib`, `2 cores`.
pub(super) fn suggest_quantities(text: &str) -> Vec<String> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.'));
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    let unit = unit.trim().to_lowercase();
    let units = match unit.as_str() {
        "" | "b" | "byte" | "bytes" | "core" | "cores" | "cpu" | "cpus" | "vcpu" | "vcpus"
        | "gpu" | "gpus" => vec![""],
        "m" | "milli" | "millicpu" | "millicpus" | "millicore" | "millicores" => vec!["m"],
        _ => byte_suffixes(&unit),
    };
    let amounts = units.iter().map(|unit| format!("{number}{unit}"));
    amounts
        .filter(|amount| parse_nanos(amount).is_some())
        .collect()
}

/// Returns suffixes for kilobytes and larger units. Users often mean powers of 1024 by `GB`.
fn byte_suffixes(unit: &str) -> Vec<&'static str> {
    let unit = ["bytes", "byte", "b"]
        .iter()
        .find_map(|end| unit.strip_suffix(end))
        .unwrap_or(unit);
    let units: &[&str] = match unit {
        "k" | "kilo" => &["k", "Ki"],
        "m" | "mega" => &["M", "Mi"],
        "g" | "giga" => &["G", "Gi"],
        "t" | "tera" => &["T", "Ti"],
        "ki" | "kibi" => &["Ki"],
        "mi" | "mebi" => &["Mi"],
        "gi" | "gibi" => &["Gi"],
        "ti" | "tebi" => &["Ti"],
        _ => &[],
    };
    units.to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantity_with_common_unit_gets_suggestion() {
        for (text, expected) in [
            ("4GB", "4G or 4Gi"),
            ("4gb", "4G or 4Gi"),
            ("4gi", "4Gi"),
            ("4GiB", "4Gi"),
            ("1.5 Gi", "1.5Gi"),
            ("128MB", "128M or 128Mi"),
            ("64 KB", "64k or 64Ki"),
            ("10K", "10k or 10Ki"),
            ("4 gigabytes", "4G or 4Gi"),
            ("512 bytes", "512"),
            ("2 cores", "2"),
            ("500 m", "500m"),
            ("500millicores", "500m"),
            ("two", ""),
            ("1.2.3GB", ""),
            ("", ""),
            ("GB", ""),
            ("-1GB", ""),
            ("4 elephants", ""),
            ("é", ""),
        ] {
            assert_eq!(suggest_quantities(text).join(" or "), expected, "{text}");
        }
    }
}
