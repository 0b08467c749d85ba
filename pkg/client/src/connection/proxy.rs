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
    let all = Matcher::builder().all("http://proxy").no(no).build();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxy_environment_matches_go() {
        let (s, h) = ("HTTPS_PROXY=http://s:1", "HTTP_PROXY=http://h:1");
        for (server, variables, expected) in [
            ("https://k:6443", &[s, h][..], Some("http://s:1/")),
            ("http://k:6443", &[s, h], Some("http://h:1/")),
            ("http://k:6443", &[s], None),
            ("http://k", &[h, "REQUEST_METHOD=GET"], None),
            ("https://k", &["https_proxy=l:1"], Some("http://l:1/")),
            (
                "https://k",
                &["HTTPS_PROXY=", "https_proxy=l:1"],
                Some("http://l:1/"),
            ),
            (
                "https://k",
                &["HTTPS_PROXY=socks5://u:p@l:1"],
                Some("socks5://u:p@l:1/"),
            ),
            ("https://localhost:6443", &[s], None),
            ("https://127.0.0.7:6443", &[s], None),
            ("https://[::1]:6443", &[s], None),
            ("https://k", &[s, "NO_PROXY=*"], None),
            ("https://k.b.c", &[s, "NO_PROXY=a, b.c,,"], None),
            ("https://k.b.c", &[s, "no_proxy=.b.c"], None),
            ("https://kb.c", &[s, "NO_PROXY=b.c"], Some("http://s:1/")),
            ("https://10.1.2.3", &[s, "NO_PROXY=10.0.0.0/8"], None),
            ("https://10.1.2.3", &[s, "NO_PROXY=10.1.2.3"], None),
            (
                "https://11.1.2.3",
                &[s, "NO_PROXY=10.0.0.0/8"],
                Some("http://s:1/"),
            ),
            ("https://k", &[], None),
        ] {
            let variable = |name: &str| {
                let mut pairs = variables.iter().filter_map(|pair| pair.split_once('='));
                let found = pairs.find(|(key, _)| *key == name)?;
                Some(found.1.to_owned())
            };
            let found = select_proxy(&server.parse().unwrap(), variable).unwrap();
            let found = found.map(|uri| uri.to_string());
            assert_eq!(found.as_deref(), expected, "{server} {variables:?}");
        }
    }
}
