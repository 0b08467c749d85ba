//! Proxy settings of the environment, as Go's net/http uses them.
//!
//! kube would compare NO_PROXY with the address of the proxy instead of the API server.

use std::{env, net::IpAddr};

use http::{Uri, uri::InvalidUri};
use hyper_util::client::proxy::matcher::Matcher;

use crate::{Error, Result};

/// The proxy for this API server, if any.
pub(crate) fn from_environment(server: &Uri) -> Result<Option<Uri>> {
    let either = |names: [&str; 2]| {
        let mut values = names.into_iter().filter_map(|name| env::var(name).ok());
        values.find(|value| !value.is_empty())
    };
    let found = match server.scheme_str() {
        Some("https") => either(["HTTPS_PROXY", "https_proxy"]),
        // In a CGI program a request header could set HTTP_PROXY (httpoxy). Go reports it.
        _ if env::var_os("REQUEST_METHOD").is_some() => None,
        _ => either(["HTTP_PROXY", "http_proxy"]),
    };
    let Some(proxy) = found else {
        return Ok(None);
    };
    let no = either(["NO_PROXY", "no_proxy"]).unwrap_or_default();
    let is_https = server.scheme_str() == Some("https");
    let port = server.port_u16().unwrap_or(if is_https { 443 } else { 80 });
    let port = format!(":{port}");
    // The matcher knows neither ports nor the star of a label, and takes .a.b for a.b, too.
    let entries = no.split(',').map(str::trim).filter_map(|entry| {
        let entry = entry
            .strip_prefix('*')
            .filter(|rest| rest.starts_with('.'))
            .unwrap_or(entry);
        let entry = match entry.rsplit_once(':') {
            Some((host, _)) if !host.contains(':') => entry.ends_with(&port).then_some(host)?,
            _ => entry,
        };
        let is_parent = entry
            .strip_prefix('.')
            .is_some_and(|name| server.host() == Some(name));
        (!is_parent).then_some(entry)
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
    // The errors omit the address: it may contain a password.
    let invalid = |reason: &str| {
        let message = format!("invalid proxy address in the kubeconfig or environment: {reason}");
        Error::Configuration(message)
    };
    let address: Uri = whole
        .parse()
        .map_err(|error: InvalidUri| invalid(&error.to_string()))?;
    match address.scheme_str() {
        Some("http" | "https" | "socks5") => Ok(address),
        _ => Err(invalid("the scheme must be http, https or socks5")),
    }
}

fn is_loopback(server: &Uri) -> bool {
    let host = server.host().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']');
    let address = address.parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}
