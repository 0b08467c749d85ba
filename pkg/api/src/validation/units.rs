//! What was likely meant by an amount that is none.

use crate::quantity::nanos;

/// Amounts as Kubernetes writes them, the likeliest first, of one with a unit of daily use: `4GB`, `4 gib`, `2 cores`.
pub(super) fn meant(text: &str) -> Vec<String> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.'));
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    let unit = unit.trim().to_lowercase();
    let units = match unit.as_str() {
        "" | "b" | "byte" | "bytes" | "core" | "cores" | "cpu" | "cpus" | "vcpu" | "vcpus"
        | "gpu" | "gpus" => vec![""],
        "m" | "milli" | "millicpu" | "millicpus" | "millicore" | "millicores" => vec!["m"],
        _ => in_bytes(&unit),
    };
    let amounts = units.iter().map(|unit| format!("{number}{unit}"));
    amounts.filter(|amount| nanos(amount).is_some()).collect()
}

/// Kilobytes and those above: with a B, they are often powers of 1024 that are meant.
fn in_bytes(unit: &str) -> Vec<&'static str> {
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
    fn units_of_daily_use_are_understood() {
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
            assert_eq!(meant(text).join(" or "), expected, "{text}");
        }
    }
}
