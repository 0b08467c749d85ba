//! Access to an S3 bucket.

use std::{path::PathBuf, sync::Arc, time::Duration};

use object_store::{
    Certificate, ClientOptions, Error as Failure, RetryConfig,
    aws::{AmazonS3, AmazonS3Builder},
    path::Path as Key,
};
use reqwest::Url;
use webpki_root_certs::TLS_SERVER_ROOT_CERTS;

use crate::{
    Error, Result, chain,
    protocol::http::provide_tls,
    storage::{
        objects::Objects,
        variables::{is_host_part, parse_settings},
    },
};

/// Time limit of retries: shorter than a task.
const RETRY_DEADLINE: Duration = Duration::from_secs(30);

/// Opens `s3://BUCKET/PREFIX` and checks that it is writable.
pub(super) fn open_bucket(
    url: &str,
    variables: impl IntoIterator<Item = (String, String)>,
) -> Result<Objects> {
    let (bucket, prefix) = parse_url(url)?;
    let root = if prefix.as_ref().is_empty() {
        PathBuf::from(format!("s3://{bucket}"))
    } else {
        PathBuf::from(format!("s3://{bucket}/{prefix}"))
    };
    let refused = |source| Error::BucketNotWritable {
        bucket: root.clone(),
        advice: failure_advice(&source),
        source: Box::new(source),
    };
    let store = build_store(bucket, variables)?.map_err(refused)?;
    let objects = Objects::new(root.clone(), prefix, Arc::new(store))?;
    objects.check_writable().map_err(refused)?;
    Ok(objects)
}

/// The bucket and the prefix of a URL. Errors do not repeat the URL, which may contain a secret.
fn parse_url(url: &str) -> Result<(String, Key)> {
    let wrong = |reason: String| Error::BadStorage(reason);
    if !url.contains("://") {
        return Err(wrong("s3: must be followed by two slashes".to_owned()));
    }
    let url = Url::parse(url).map_err(|error| wrong(format!("the URL has an {error}")))?;
    if url.scheme() != "s3" {
        return Err(wrong(format!("{}:// is not supported", url.scheme())));
    }
    if !url.username().is_empty() || url.password().is_some() {
        let advice = "set credentials with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY";
        return Err(wrong(advice.to_owned()));
    }
    if url.query().is_some() || url.fragment().is_some() || url.port().is_some() {
        let advice =
            "set the endpoint with AWS_ENDPOINT_URL; the URL must have no port, query or fragment";
        return Err(wrong(advice.to_owned()));
    }
    let bucket = url.host_str().filter(|bucket| !bucket.is_empty());
    let bucket = bucket.ok_or_else(|| wrong("the URL names no bucket".to_owned()))?;
    if !is_host_part(bucket) {
        let advice = "a bucket's name consists of letters, digits, dots and hyphens";
        return Err(wrong(advice.to_owned()));
    }
    let prefix = Key::from_url_path(url.path().trim_end_matches('/'));
    let prefix = prefix.map_err(|error| wrong(error.to_string()))?;
    Ok((bucket.to_owned(), prefix))
}

/// The store of a bucket, configured by variables like `AmazonS3Builder::from_env`.
fn build_store(
    bucket: String,
    variables: impl IntoIterator<Item = (String, String)>,
) -> Result<Result<AmazonS3, Failure>> {
    provide_tls();
    // The image of di-worker has no root certificates.
    let roots = TLS_SERVER_ROOT_CERTS.iter();
    let roots = roots.filter_map(|root| Certificate::from_der(root).ok());
    let options = roots.fold(ClientOptions::new(), ClientOptions::with_root_certificate);
    let mut builder = AmazonS3Builder::new()
        .with_client_options(options)
        .with_retry(RetryConfig {
            retry_timeout: RETRY_DEADLINE,
            ..RetryConfig::default()
        });
    for setting in parse_settings(variables) {
        let (key, value) = setting?;
        builder = builder.with_config(key, value);
    }
    Ok(builder.with_bucket_name(bucket).build())
}

/// Parts of errors for a bucket in another region: object_store has no error kind for redirects.
const ELSEWHERE: [&str; 4] = [
    "Received redirect",
    "error following redirect",
    "status code: 30",
    "AuthorizationHeaderMalformed",
];

/// The first things to check.
fn failure_advice(source: &Failure) -> &'static str {
    match source {
        Failure::NotFound { .. } => "there is no such bucket; create it, or use another one",
        Failure::PermissionDenied { .. } | Failure::Unauthenticated { .. } => {
            "access denied; check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and the permissions of the key"
        }
        _ if ELSEWHERE.iter().any(|words| chain(source).contains(words)) => {
            "it is in another region; set AWS_REGION, and AWS_ENDPOINT_URL if it contains a region"
        }
        _ => {
            "check AWS_ENDPOINT_URL (http:// needs AWS_ALLOW_HTTP=true), AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        }
    }
}
