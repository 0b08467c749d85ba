//! Proxy settings of the environment, read as Go's net/http reads them.
//!
//! kube would compare NO_PROXY with the address of the proxy instead of the API server.

use std::{env, net::IpAddr};

use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;

use crate::{Error, Result};

/// The proxy for this API server, if any.
pub(crate) fn from_environment(server: &Uri) -> Result<Option<Uri>> {
    select_proxy(server, |name| env::var(name).ok())
}

fn select_proxy(server: &Uri, variable: impl Fn(&str) -> Option<String>) -> Result<Option<Uri>> {
    let either = |names: [&str; 2]| {
        let mut values = names.into_iter().filter_map(&variable);
        values.find(|value| !value.is_empty())
    };
    let found = match server.scheme_str() {
        Some("https") => either(["HTTPS_PROXY", "https_proxy"]),
        // Like Go: in a CGI program a request header could set HTTP_PROXY (httpoxy).
        _ if variable("REQUEST_METHOD").is_some() => None,
        _ => either(["HTTP_PROXY", "http_proxy"]),
    };
    let Some(proxy) = found else {
        return Ok(None);
    };
    let no = either(["NO_PROXY", "no_proxy"]).unwrap_or_default();
    let port = server.port().map(|port| format!(":{port}"));
    let entries = no.split(',').filter_map(|entry| {
        // The matcher knows neither ports nor the star of a label.
        let entry = entry.trim();
        let entry = entry
            .strip_prefix('*')
            .filter(|rest| rest.starts_with('.'))
            .unwrap_or(entry);
        match entry.rsplit_once(':') {
            Some((host, _)) if host.contains(':') => Some(entry),
            Some((host, _)) => port
                .as_ref()
                .is_some_and(|port| entry.ends_with(port))
                .then_some(host),
            None => Some(entry),
        }
    });
    let no: Vec<_> = entries.collect();
    let all = Matcher::builder()
        .all("http://proxy")
        .no(no.join(","))
        .build();
    if is_loopback(server) || all.intercept(server).is_none() {
        return Ok(None);
    }
    parse_proxy_url(&proxy).map(Some)
}

/// Parses the address of a proxy. The default scheme is HTTP.
pub(crate) fn parse_proxy_url(proxy: &str) -> Result<Uri> {
    let whole = if proxy.contains("://") {
        proxy.to_owned()
    } else {
        format!("http://{proxy}")
    };
    // The error omits the address: it may contain a password.
    whole.parse().map_err(|error| {
        Error::Configuration(format!(
            "invalid proxy address in the kubeconfig or environment: {error}"
        ))
    })
}

fn is_loopback(server: &Uri) -> bool {
    let host = server.host().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']');
    let address = address.parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}
