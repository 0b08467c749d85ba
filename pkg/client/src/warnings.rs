/// The texts of a `Warning` header (RFC 7234 §5.5), as API servers send them: `299 - "text", 299 - "another"`.
pub(crate) fn texts(header: &str) -> Vec<String> {
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
    use super::texts;

    #[test]
    fn quotes_and_lists_are_taken_apart() {
        assert_eq!(
            texts(r#"299 - "use \"v1alpha2\", not v1alpha1", 299 - "second""#),
            [r#"use "v1alpha2", not v1alpha1"#, "second"]
        );
        assert!(texts("299 - nothing quoted").is_empty());
    }
}
