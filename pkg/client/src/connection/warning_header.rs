/// Returns the texts of a `Warning` header (RFC 7234 §5.5).
///
/// API servers send `299 - "text", 299 - "another"`.
pub(crate) fn parse_warnings(header: &str) -> Vec<String> {
    let mut texts = Vec::new();
    let mut chars = header.chars();
    while chars.by_ref().any(|c| c == '"') {
        let mut text = String::new();
        while let Some(c) = chars.next() {
            match c {
                '"' => break,
                '\\' => text.extend(chars.next()),
                c => text.push(c),
            }
        }
        texts.push(text);
    }
    texts
}

#[cfg(test)]
mod tests {
    use super::parse_warnings;

    #[test]
    fn warning_header_list_is_split_into_texts() {
        assert_eq!(
            parse_warnings(r#"299 - "use \"v1alpha2\", not v1alpha1", 299 - "second""#),
            [r#"use "v1alpha2", not v1alpha1"#, "second"]
        );
        assert!(parse_warnings("299 - nothing quoted").is_empty());
    }
}
