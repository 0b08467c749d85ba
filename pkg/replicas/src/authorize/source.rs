use std::net::{IpAddr, SocketAddr};

use axum::{
    extract::{ConnectInfo, FromRequestParts},
    http::{header, request::Parts},
};

/// Source address and token of a request. It has no `Debug`, so that tokens are never logged.
#[derive(Hash)]
pub(crate) struct Source {
    pub(super) address: Option<IpAddr>,
    pub(super) token: Option<String>,
}

#[cfg(test)]
impl Source {
    /// A source without a token.
    pub(crate) fn from_address(address: &str) -> Self {
        Self {
            address: address.parse().ok(),
            token: None,
        }
    }
}

impl<S: Sync> FromRequestParts<S> for Source {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let address = parts.extensions.get::<ConnectInfo<SocketAddr>>();
        let header = parts.headers.get(header::AUTHORIZATION);
        Ok(Self {
            address: address.map(|ConnectInfo(address)| address.ip().to_canonical()),
            token: header
                .and_then(|value| parse_bearer_token(value.to_str().ok()?))
                .map(str::to_owned),
        })
    }
}

fn parse_bearer_token(header: &str) -> Option<&str> {
    let (scheme, token) = header.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}
