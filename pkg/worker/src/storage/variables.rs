//! Checks the variables of the bucket access before use: object_store panics with an invalid URL.

use axum::http::Uri;
use object_store::{ClientConfigKey, aws::AmazonS3ConfigKey as Key};
use reqwest::{Proxy, Url};

use crate::{Error, Result};

/// The settings of the variables that object_store knows.
pub(super) fn parse_settings(
    variables: impl IntoIterator<Item = (String, String)>,
) -> impl Iterator<Item = Result<(Key, String)>> {
    let known = variables.into_iter().filter_map(|(name, value)| {
        let key = name.to_ascii_lowercase().parse::<Key>().ok();
        let key = key.filter(|_| name.starts_with("AWS_"))?;
        // The value of a Secret that was created from a file ends with a line break.
        let value = value.trim().to_owned();
        (!value.is_empty()).then_some((name, key, value))
    });
    known.map(|(name, key, value)| match value_error(key, &value) {
        None => Ok((key, value)),
        Some(reason) => Err(Error::StorageVariable { name, reason }),
    })
}

/// The error of a value. It does not repeat the value, which may be a secret.
fn value_error(key: Key, value: &str) -> Option<String> {
    if value.chars().any(char::is_control) {
        return Some("has more than one line".to_owned());
    }
    let (good, remedy) = match key {
        Key::Endpoint | Key::S3Endpoint => (
            is_endpoint(value),
            "a URL such as http://minio.rl:9000, without credentials, query and fragment",
        ),
        Key::StsEndpoint => (
            is_endpoint(value),
            "a URL such as https://sts.us-east-1.amazonaws.com, without credentials, query and fragment",
        ),
        Key::MetadataEndpoint => (
            is_endpoint(value),
            "a URL such as http://169.254.169.254, without credentials, query and fragment",
        ),
        Key::ContainerCredentialsFullUri => (
            parse_web_url(value).is_some(),
            "a URL such as http://169.254.170.23/v1/credentials, without credentials and fragment",
        ),
        Key::ContainerCredentialsRelativeUri => (
            value.starts_with('/')
                && parse_web_url(&format!("http://169.254.170.2{value}")).is_some(),
            "a path such as /v2/credentials/ID",
        ),
        Key::Client(ClientConfigKey::ProxyUrl) => (
            Proxy::all(value).is_ok(),
            "a URL such as http://proxy.rl:3128",
        ),
        Key::Region | Key::DefaultRegion => (
            is_host_part(value),
            "the name of a region such as us-east-1",
        ),
        _ => return None,
    };
    (!good).then(|| format!("must be {remedy}"))
}

/// Whether paths can be appended to the URL.
fn is_endpoint(value: &str) -> bool {
    parse_web_url(value).is_some_and(|url| url.query().is_none())
}

/// A URL for requests. object_store parses it both ways. It appears in error messages, so it must
/// not contain credentials.
fn parse_web_url(value: &str) -> Option<Url> {
    let uri: Uri = value.parse().ok()?;
    let url = Url::parse(value).ok()?;
    let web = matches!(url.scheme(), "http" | "https") && uri.host().is_some();
    let plain = url.fragment().is_none() && !value.contains(['@', '#']);
    (web && plain).then_some(url)
}

/// Whether it can be a part of a host name, as buckets and regions are at Amazon.
pub(super) fn is_host_part(part: &str) -> bool {
    let host = format!("{part}.amazonaws.com");
    let url = parse_web_url(&format!("https://{host}"));
    url.is_some_and(|url| {
        url.host_str()
            .is_some_and(|name| name.eq_ignore_ascii_case(&host))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_for(name: &str, value: &str) -> Option<String> {
        value_error(name.to_ascii_lowercase().parse().unwrap(), value)
    }

    #[test]
    fn valid_values_are_accepted() {
        for (name, value) in [
            ("AWS_ENDPOINT_URL", "http://minio.rl:9000"),
            ("AWS_ENDPOINT_URL", "https://s3.example.com/"),
            ("AWS_ENDPOINT_URL", "HTTPS://S3.example.com/below"),
            ("AWS_ENDPOINT", "http://[::1]:9000"),
            ("AWS_ENDPOINT_URL_S3", "http://10.0.0.1"),
            (
                "AWS_ENDPOINT_URL_STS",
                "https://sts.eu-west-1.amazonaws.com",
            ),
            ("AWS_METADATA_ENDPOINT", "http://fd00.example"),
            (
                "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                "http://169.254.170.23/v1/credentials?id=1",
            ),
            (
                "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                "/v2/credentials/1",
            ),
            ("AWS_PROXY_URL", "http://me:secret@proxy.rl:3128"),
            ("AWS_PROXY_URL", "proxy.rl:3128"),
            ("AWS_REGION", "us-gov-west-1"),
            ("AWS_DEFAULT_REGION", "Garage_1"),
            ("AWS_SECRET_ACCESS_KEY", "a/b+c@d#e f"),
        ] {
            assert_eq!(error_for(name, value), None, "{name}={value}");
        }
    }

    #[test]
    fn invalid_values_are_rejected_with_example() {
        for (name, values, example) in [
            (
                "AWS_ENDPOINT_URL",
                &[
                    "notaurl",
                    "minio:9000",
                    "hidden.rl",
                    "minio.rl/hidden",
                    "http:minio:9000",
                    "http:/minio:9000",
                    "http://",
                    "http://minio:hidden",
                    "http://minio:99999",
                    "http://minio .rl",
                    "http://minio.rl/a b",
                    "http://minio.rl/?hidden",
                    "http://minio.rl/#hidden",
                    "http://me:hidden@minio.rl",
                    "s3://hidden",
                    "/hidden",
                ][..],
                "must be a URL such as http://minio.rl:9000",
            ),
            ("AWS_ENDPOINT", &["minio:9000"], "http://minio.rl:9000"),
            (
                "AWS_ENDPOINT_URL_S3",
                &["minio:9000", "http://me:hidden@minio.rl"],
                "http://minio.rl:9000",
            ),
            ("AWS_ENDPOINT_URL_STS", &["sts"], "https://sts."),
            ("AWS_METADATA_ENDPOINT", &["169.254.169.254"], "http://169."),
            (
                "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                &["169.254.170.23/v1", "/v1"],
                "/v1/credentials",
            ),
            (
                "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                &["v2", "@hidden/", "/a b", "http://hidden"],
                "must be a path such as /v2/credentials/ID",
            ),
            ("AWS_PROXY_URL", &["http://me:hidden@"], "http://proxy.rl"),
            (
                "AWS_REGION",
                &[
                    "us east 1",
                    "us/hidden",
                    "me@us",
                    "us:1",
                    "us#1",
                    "xn--a",
                    "ü",
                ],
                "must be the name of a region such as us-east-1",
            ),
        ] {
            for value in values {
                let fault = error_for(name, value);
                let fault = fault.unwrap_or_else(|| panic!("{name}={value}"));
                assert!(
                    fault.contains(example) && !fault.contains("hidden"),
                    "{name}={value}: {fault}"
                );
            }
        }
    }
}
