//! The Authorization header of requests.

use std::{fs, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderValue, Request, header::AUTHORIZATION};
use k8s_openapi::jiff::Timestamp;
use kube::{Config, client::Body, config::AuthInfo};
use secrecy::ExposeSecret;
use tokio::sync::Mutex;
use tower::BoxError;

use crate::{Error, Result};

use super::credential_plugin::{Credential, CredentialPlugin};

/// Adds the Authorization header to requests.
pub(crate) struct Authorization {
    source: Source,
    current: Mutex<Current>,
}

/// The source of a new header.
enum Source {
    Fixed,
    /// A file with a token, which another program updates.
    File(String),
    Plugin(Box<CredentialPlugin>),
}

#[derive(Default)]
struct Current {
    /// None for a user with a client certificate, and for an anonymous one.
    header: Option<HeaderValue>,
    /// When the token of a plugin expires.
    expires: Option<Timestamp>,
}

impl Authorization {
    /// Takes the credentials that become a header out of the configuration. Runs the credential
    /// plugin once; its certificate stays in the configuration.
    pub(crate) async fn take_from(config: &mut Config, stdin_in_use: bool) -> Result<Self> {
        let user = &mut config.auth_info;
        let header = fixed_header(user)?;
        let mut current = Current {
            header,
            expires: None,
        };
        let has_other = current.header.is_some() || user.client_certificate_data.is_some();
        let source = match (user.token_file.take(), user.exec.take()) {
            (Some(path), _) => {
                match read_token(&path) {
                    Err(error) if current.header.is_none() => return Err(error),
                    read => current.header = read.ok().or(current.header),
                }
                Source::File(path)
            }
            (None, Some(exec)) if !has_other => {
                let plugin = CredentialPlugin::new(exec, stdin_in_use)?;
                let credential = plugin.run().await?;
                current = Current::from_plugin(&credential)?;
                if let Some((certificate, key)) = credential.certificate {
                    user.client_certificate_data = Some(STANDARD.encode(certificate));
                    user.client_key_data = Some(STANDARD.encode(key.expose_secret()).into());
                }
                Source::Plugin(Box::new(plugin))
            }
            (None, _) => Source::Fixed,
        };
        let current = Mutex::new(current);
        Ok(Self { source, current })
    }

    /// Adds the header to a request. Reads the file again, and runs the plugin again once its token
    /// has expired.
    pub(crate) async fn add_to(
        self: Arc<Self>,
        mut request: Request<Body>,
    ) -> Result<Request<Body>, BoxError> {
        let mut current = self.current.lock().await;
        match &self.source {
            Source::Fixed => {}
            // The file may be gone or empty for a moment, or gone for good after the start.
            Source::File(path) => {
                if let Ok(header) = read_token(path) {
                    current.header = Some(header);
                }
            }
            Source::Plugin(plugin) => {
                if current.expires.is_some_and(|time| time <= Timestamp::now()) {
                    *current = Current::from_plugin(&plugin.run().await?)?;
                }
            }
        }
        if let Some(header) = &current.header {
            request.headers_mut().insert(AUTHORIZATION, header.clone());
        }
        Ok(request)
    }
}

impl Current {
    fn from_plugin(credential: &Credential) -> Result<Self> {
        let token = credential.token.as_ref();
        let header =
            token.map(|token| bearer_header(token.expose_secret(), "the credential plugin"));
        Ok(Self {
            header: header.transpose()?,
            expires: credential.expires,
        })
    }
}

/// The header of a user with a token or a password.
fn fixed_header(user: &mut AuthInfo) -> Result<Option<HeaderValue>> {
    let error = |message: String| Err(Error::Configuration(message));
    // kube would run the command of a provider.
    let id_token = match user.auth_provider.take() {
        None => None,
        Some(mut provider) => match provider.config.remove("id-token") {
            Some(token) if provider.name == "oidc" => Some(token.into()),
            _ => {
                return error(format!(
                    "auth-provider {:?} is not supported; use a credential plugin (exec)",
                    provider.name
                ));
            }
        },
    };
    let (name, password) = (user.username.take(), user.password.take());
    let token = user.token.take().or(id_token);
    if let Some(name) = name {
        if token.is_some() || user.token_file.is_some() {
            return error("username/password or bearer token may be set, but not both".to_owned());
        }
        let password = password.as_ref().map_or("", ExposeSecret::expose_secret);
        let pair = STANDARD.encode(format!("{name}:{password}"));
        return to_header(&format!("Basic {pair}"), "the user").map(Some);
    }
    let header = token.map(|token| bearer_header(token.expose_secret(), "the user"));
    header.transpose()
}

fn read_token(path: &str) -> Result<HeaderValue> {
    let token = fs::read_to_string(path).map_err(|error| {
        Error::Configuration(format!("unable to read the token file {path}: {error}"))
    })?;
    bearer_header(&token, path)
}

/// Tokens in files, block scalars and outputs of programs often end with a line break.
fn bearer_header(token: &str, origin: &str) -> Result<HeaderValue> {
    match token.trim() {
        "" => Err(Error::Configuration(format!(
            "the token of {origin} is empty"
        ))),
        token => to_header(&format!("Bearer {token}"), origin),
    }
}

fn to_header(text: &str, origin: &str) -> Result<HeaderValue> {
    let mut header = HeaderValue::try_from(text).map_err(|_| {
        let message = "contains characters that no HTTP header can have";
        Error::Configuration(format!("the token of {origin} {message}"))
    })?;
    header.set_sensitive(true);
    Ok(header)
}
