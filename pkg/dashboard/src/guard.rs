//! The checks that every request must pass before a route sees it.
//!
//! A page of another site can make the browser send requests to this server, and by DNS rebinding
//! even read the responses. So the headers `Host`, `Origin` and `Sec-Fetch-Site` must be those of
//! the own page. Browsers send cookies to every port of a host, also to a server of another user.
//! So a change also needs the token in a header, which only the own page knows.

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};

use crate::{
    error::{Error, Result},
    shared::Shared,
};

/// The path at which the page exchanges its token for the cookie.
pub(crate) const SESSION_PATH: &str = "/api/session";
const TOKEN_HEADER: &str = "x-di-token";

const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
     img-src 'self' data:; font-src 'self'; connect-src 'self'; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'";

const SECURITY_HEADERS: [(&str, &str); 6] = [
    ("content-security-policy", CONTENT_SECURITY_POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-store"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
];

/// Adds the headers that limit what a page may do with a response.
pub(crate) fn add_security_headers(headers: &mut HeaderMap) {
    for (name, value) in SECURITY_HEADERS {
        headers.insert(
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        );
    }
}

impl Shared {
    /// Checks the method, path and headers of a request.
    pub(crate) fn check_request(
        &self,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
    ) -> Result<()> {
        let is_change = !matches!(*method, Method::GET | Method::HEAD);
        let host = only_value(headers, &header::HOST);
        if !host.is_some_and(|host| self.is_own_host(host)) {
            return Err(Error::ForbiddenHost);
        }
        if !self.has_own_origin(is_change, headers) {
            return Err(Error::ForbiddenOrigin);
        }
        if is_change && !is_json(headers) {
            return Err(Error::UnsupportedType);
        }
        // The files of the page are no secrets. Without a cookie, other sites may link to them.
        if !path.starts_with("/api/") {
            return Ok(());
        }
        if is_from_other_site(headers) {
            return Err(Error::ForbiddenOrigin);
        }
        let starts_session = *method == Method::POST && path == SESSION_PATH;
        if starts_session || self.is_authorized(is_change, headers) {
            Ok(())
        } else {
            Err(Error::Unauthorized)
        }
    }

    /// Whether the header `Origin` is the own page. Browsers send none with a GET of the own page.
    fn has_own_origin(&self, is_change: bool, headers: &HeaderMap) -> bool {
        if !is_change && !headers.contains_key(header::ORIGIN) {
            return true;
        }
        let origin = only_value(headers, &header::ORIGIN);
        let host = origin.and_then(|origin| origin.strip_prefix("http://"));
        host.is_some_and(|host| self.is_own_host(host))
    }

    /// Whether a request has the cookie, and if it is a change, also the token.
    fn is_authorized(&self, is_change: bool, headers: &HeaderMap) -> bool {
        let token = only_value(headers, &HeaderName::from_static(TOKEN_HEADER));
        let has_token = token.is_some_and(|token| self.is_token(token));
        self.has_cookie(headers) && (has_token || !is_change)
    }

    fn is_own_host(&self, host: &str) -> bool {
        let port = self.address.port();
        let names = ["127.0.0.1", "localhost", "[::1]"];
        // Browsers leave out the default port.
        let is_own = |name| host == format!("{name}:{port}") || (port == 80 && host == name);
        names.into_iter().any(is_own)
    }

    /// The name of the cookie. It contains the port, because all ports of a host share cookies.
    fn cookie_name(&self) -> String {
        format!("di-dashboard-{}", self.address.port())
    }

    /// The value of the header `Set-Cookie`.
    pub(crate) fn set_cookie(&self) -> String {
        let (name, session) = (self.cookie_name(), &self.session);
        format!("{name}={session}; Path=/; HttpOnly; SameSite=Strict")
    }

    /// Whether `token` is the token of the page.
    pub(crate) fn is_token(&self, token: &str) -> bool {
        are_equal_secrets(token, &self.token)
    }

    fn has_cookie(&self, headers: &HeaderMap) -> bool {
        let name = self.cookie_name();
        let values = headers.get_all(header::COOKIE).into_iter();
        let cookies = values.filter_map(|value| value.to_str().ok());
        let mut cookies = cookies.flat_map(|value| value.split(';'));
        cookies.any(|cookie| {
            let pair = cookie.trim().split_once('=');
            pair.is_some_and(|(key, value)| key == name && are_equal_secrets(value, &self.session))
        })
    }
}

/// The value of a header that occurs exactly once.
fn only_value<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).into_iter();
    let first = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(first)
}

/// Whether the browser says that another site has sent the request. Older browsers say nothing.
fn is_from_other_site(headers: &HeaderMap) -> bool {
    let site = only_value(headers, &HeaderName::from_static("sec-fetch-site"));
    // "none" is an address that the user has opened.
    site.is_some_and(|site| !matches!(site, "same-origin" | "none"))
}

fn is_json(headers: &HeaderMap) -> bool {
    let content_type = only_value(headers, &header::CONTENT_TYPE).unwrap_or_default();
    let media_type = content_type.split(';').next().unwrap_or_default();
    media_type.trim().eq_ignore_ascii_case("application/json")
}

/// Compares secrets in a time that does not depend on the position of the first difference.
fn are_equal_secrets(a: &str, b: &str) -> bool {
    let differences = a
        .bytes()
        .zip(b.bytes())
        .fold(0, |all, (a, b)| all | (a ^ b));
    a.len() == b.len() && differences == 0
}
