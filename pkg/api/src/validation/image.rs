//! Image references, `[registry[:port]/]name[:tag][@digest]`.

use std::net::Ipv6Addr;

use k8s_openapi::api::core::v1::Container;

use super::{
    fault::{Fault, Faults},
    path::Path,
};

/// Requires an image that a kubelet can parse. The API server checks only that it is not empty.
pub(super) fn check_image(container: &Container, field: &Path<'_>, faults: &mut Faults) {
    let image = container.image.as_deref().unwrap_or_default();
    let field = field.child("image");
    if image.is_empty() {
        faults.push(Fault::required(field, "the image that the container runs"));
    } else if image.trim() != image {
        let why = "must not have leading or trailing whitespace";
        faults.push(Fault::invalid(field, image, why));
    } else if !is_image_reference(image) {
        let why = "must be [registry[:port]/]name[:tag][@digest], its name in lower case";
        faults.push(Fault::invalid(field, image, why));
    }
}

fn is_image_reference(image: &str) -> bool {
    let (rest, digest) = match image.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (image, None),
    };
    let last = rest.rfind('/').map_or(0, |slash| slash + 1);
    let (name, tag) = match rest[last..].split_once(':') {
        Some((name, tag)) => (format!("{}{name}", &rest[..last]), Some(tag)),
        None => (rest.to_owned(), None),
    };
    let path = match name.split_once('/') {
        Some((registry, path)) if is_registry(registry) => path,
        _ => &name,
    };
    path.split('/').all(is_component) && tag.is_none_or(is_tag) && digest.is_none_or(is_digest)
}

/// Whether the first part is a registry: it looks like a host. Otherwise it is part of the name.
fn is_registry(text: &str) -> bool {
    let bracketed = text.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    if let Some((ip, port)) = bracketed {
        let is_port = |port: &str| port.strip_prefix(':').is_some_and(is_number);
        return ip.parse::<Ipv6Addr>().is_ok() && (port.is_empty() || is_port(port));
    }
    let (host, number) = text.split_once(':').unwrap_or((text, "0"));
    let is_host = host.split('.').all(|label| {
        let is_alphanumeric = |c: char| c.is_ascii_alphanumeric();
        label.starts_with(is_alphanumeric)
            && label.ends_with(is_alphanumeric)
            && label.chars().all(|c| is_alphanumeric(c) || c == '-')
    });
    (text == "localhost" || text.contains(['.', ':'])) && is_host && is_number(number)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_digit())
}

/// Whether the part consists of lower-case words, joined by a dot, one or two underscores, or
/// dashes.
fn is_component(part: &str) -> bool {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_separator =
        |text: &str| matches!(text, "" | "." | "_" | "__") || text.chars().all(|c| c == '-');
    part.starts_with(is_word) && part.ends_with(is_word) && part.split(is_word).all(is_separator)
}

fn is_tag(tag: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    tag.len() <= 128
        && tag.starts_with(is_word)
        && tag.chars().all(|c| is_word(c) || c == '.' || c == '-')
}

fn is_digest(digest: &str) -> bool {
    digest.split_once(':').is_some_and(|(algorithm, hex)| {
        algorithm.starts_with(|c: char| c.is_ascii_alphabetic())
            && hex.len() >= 32
            && hex.chars().all(|c| c.is_ascii_hexdigit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_reference_with_mistake_is_invalid() {
        for image in [
            "ding",
            "ding:v0.3.0",
            "diorchestrator/ding:nightly-2022.01_a",
            "registry.example.com:5000/a/b__c/d---e.f:X",
            "localhost/a",
            "localhost:5000/a",
            "[fd00::1]:5000/ding",
            "[::1]/rl/ding:v1",
            "ghcr.io/Org.v2/x".to_lowercase().as_str(),
            "a@sha256:0123456789abcdef0123456789abcdef",
            "a:b@sha256:0123456789abcdef0123456789abcdef",
        ] {
            assert!(is_image_reference(image), "{image}");
        }
        for image in [
            "",
            ":",
            "Ding",
            "ding:",
            "ding v1",
            "ding:v 1",
            "https://ghcr.io/a",
            "a//b",
            "/a",
            "a/",
            "a_-b",
            "a___b",
            "-a",
            "ghcr.io/Org/x",
            "a:b:c",
            "a@sha256",
            "a@sha256:00",
            "<image>",
            "[fd00::1]:/a",
            "[fd00::1]5000/a",
            "[10.0.0.1]:5000/a",
            "[fd00::1",
            "$IMAGE",
        ] {
            assert!(!is_image_reference(image), "{image}");
        }
    }
}
