//! How a bucket is got at.

use std::{path::PathBuf, sync::Arc, time::Duration};

use object_store::{
    Certificate, ClientOptions, Error as Failure, RetryConfig,
    aws::{AmazonS3, AmazonS3Builder},
    path::Path as Key,
};
use reqwest::Url;
use webpki_root_certs::TLS_SERVER_ROOT_CERTS;

use super::{
    objects::Objects,
    variables::{parse_settings, is_host_part},
};
use crate::{Error, Result, chain, http::provide_tls};

/// How long what may pass is tried again: less than a task may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Opens what an URL names, `s3://BUCKET/PREFIX`, and proves that it can be written to.
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

/// The bucket and the prefix of an URL. What is wrong with it is told without the rest of it, which may hold a secret.
fn parse_url(url: &str) -> Result<(String, Key)> {
    let wrong = |reason: String| Error::BadStorage(reason);
    if !url.contains("://") {
        return Err(wrong("two slashes belong behind s3:".to_owned()));
    }
    let url = Url::parse(url).map_err(|error| wrong(format!("the URL has an {error}")))?;
    if url.scheme() != "s3" {
        return Err(wrong(format!("{}:// is not known", url.scheme())));
    }
    if !url.username().is_empty() || url.password().is_some() {
        let remedy = "credentials are given by AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY";
        return Err(wrong(remedy.to_owned()));
    }
    if url.query().is_some() || url.fragment().is_some() || url.port().is_some() {
        let remedy =
            "an endpoint is given by AWS_ENDPOINT_URL, and a URL has no port, query or fragment";
        return Err(wrong(remedy.to_owned()));
    }
    let bucket = url.host_str().filter(|bucket| !bucket.is_empty());
    let bucket = bucket.ok_or_else(|| wrong("the URL names no bucket".to_owned()))?;
    if !is_host_part(bucket) {
        let remedy = "a bucket's name has letters, digits, dots and hyphens";
        return Err(wrong(remedy.to_owned()));
    }
    let prefix = Key::from_url_path(url.path().trim_end_matches('/'));
    let prefix = prefix.map_err(|error| wrong(error.to_string()))?;
    Ok((bucket.to_owned(), prefix))
}

/// The store that has a bucket, as `AmazonS3Builder::from_env` reads it from variables.
fn build_store(
    bucket: String,
    variables: impl IntoIterator<Item = (String, String)>,
) -> Result<Result<AmazonS3, Failure>> {
    provide_tls();
    // The image of di-worker has none.
    let roots = TLS_SERVER_ROOT_CERTS.iter();
    let roots = roots.filter_map(|root| Certificate::from_der(root).ok());
    let options = roots.fold(ClientOptions::new(), ClientOptions::with_root_certificate);
    let mut builder = AmazonS3Builder::new()
        .with_client_options(options)
        .with_retry(RetryConfig {
            retry_timeout: PATIENCE,
            ..RetryConfig::default()
        });
    for setting in parse_settings(variables) {
        let (key, value) = setting?;
        builder = builder.with_config(key, value);
    }
    Ok(builder.with_bucket_name(bucket).build())
}

/// What an answer has in it that comes from another region: object_store knows a redirection by its words only.
const ELSEWHERE: [&str; 4] = [
    "Received redirect",
    "error following redirect",
    "status code: 30",
    "AuthorizationHeaderMalformed",
];

/// What to look at first.
fn failure_advice(source: &Failure) -> &'static str {
    match source {
        Failure::NotFound { .. } => "there is no such bucket; make it, or name another one",
        Failure::PermissionDenied { .. } | Failure::Unauthenticated { .. } => {
            "the credentials are not good for it; check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and what the key may do"
        }
        _ if ELSEWHERE.iter().any(|words| chain(source).contains(words)) => {
            "it is in another region; name that with AWS_REGION, and in AWS_ENDPOINT_URL where that names one"
        }
        _ => {
            "check AWS_ENDPOINT_URL, to which http:// is spoken with AWS_ALLOW_HTTP=true only, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        }
    }
}
