/// Parses a finite number.
pub fn parse_finite(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite());
    number.ok_or_else(|| "must be a finite number like 475 or -110.5".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::{super::Args, *};

    #[test]
    fn only_finite_numbers_are_accepted() {
        for (text, number) in [("475", 475.0), ("-110.5", -110.5), ("1e3", 1000.0)] {
            assert_eq!(parse_finite(text), Ok(number), "{text}");
        }
        for text in ["nan", "NaN", "inf", "-inf", "infinity", "1e999", "", "many"] {
            let words = [
                "di-worker",
                "coordinator",
                &format!("--target-return={text}"),
            ];
            let error = Args::try_parse_from(words).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            let message = error.to_string();
            assert!(
                message.contains("--target-return")
                    && (text.is_empty() || message.contains("finite")),
                "{message}"
            );
        }
    }
}
