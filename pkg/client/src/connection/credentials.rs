//! The Authorization header of requests.

use std::{fs, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderValue, Request, header::AUTHORIZATION};
use k8s_openapi::jiff::Timestamp;
use kube::{Config, client::Body};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::Mutex;
use tower::BoxError;

use crate::{Error, Result};

use super::credential_plugin::{Credential, CredentialPlugin};

/// Where the Authorization header of requests comes from.
pub(crate) enum Authorization {
    /// There is none: the user has a client certificate, or is anonymous.
    None,
    /// A token, or a name with its password.
    Fixed(HeaderValue),
    /// A token in a file, which another program may replace.
    File {
        path: String,
        last: Mutex<HeaderValue>,
    },
    /// The token of a plugin with the time when it expires.
    Plugin {
        plugin: CredentialPlugin,
        last: Mutex<(HeaderValue, Option<Timestamp>)>,
    },
}

impl Authorization {
    /// Takes the credentials that become a header out of the configuration. Runs the credential
    /// plugin once; its certificate stays in the configuration.
    pub(crate) async fn take_from(config: &mut Config, stdin_in_use: bool) -> Result<Self> {
        let user = &mut config.auth_info;
        let (name, password) = (user.username.take(), user.password.take());
        let mut token = user.token.take().map(|token| (token, "the user"));
        let (file, exec) = (user.token_file.take(), user.exec.take());
        if name.is_some() && (token.is_some() || file.is_some()) {
            return Err(Error::Configuration(
                "username/password or bearer token may be set, but not both".to_owned(),
            ));
        }
        if let Some(provider) = user.auth_provider.take() {
            let id_token = provider.config.get("id-token");
            let id_token = id_token.filter(|_| provider.name == "oidc");
            let id_token = id_token.ok_or_else(|| {
                Error::Configuration(format!(
                    "auth-provider {:?} is not supported; use a credential plugin (exec)",
                    provider.name
                ))
            })?;
            token = token.or(Some((id_token.as_str().into(), "auth-provider oidc")));
        }
        let header = token
            .map(|(token, origin)| bearer(&token, origin))
            .transpose()?;
        match (header, file, name, exec) {
            (header, Some(path), ..) => {
                let header = match (read_token(&path), header) {
                    (Err(_), Some(header)) => header,
                    (read, _) => read?,
                };
                let last = Mutex::new(header);
                Ok(Self::File { path, last })
            }
            (Some(header), ..) => Ok(Self::Fixed(header)),
            (None, None, Some(name), _) => {
                let password = password.as_ref().map_or("", ExposeSecret::expose_secret);
                let pair = STANDARD.encode(format!("{name}:{password}"));
                Ok(Self::Fixed(to_header(
                    &format!("Basic {pair}"),
                    "the user",
                )?))
            }
            (None, None, None, Some(exec)) => {
                let plugin = CredentialPlugin::new(exec, stdin_in_use)?;
                let credential = plugin.run().await?;
                if let Some((certificate, key)) = &credential.certificate {
                    user.client_certificate_data = Some(STANDARD.encode(certificate));
                    user.client_key_data = Some(STANDARD.encode(key.expose_secret()).into());
                }
                Ok(match token_header(&credential)? {
                    Some(header) => Self::Plugin {
                        plugin,
                        last: Mutex::new((header, credential.expires)),
                    },
                    None => Self::None,
                })
            }
            (None, None, None, None) => Ok(Self::None),
        }
    }

    /// Adds the header to a request. Reads the file again, and runs the plugin again once its token
    /// has expired.
    pub(crate) async fn add_to(
        self: Arc<Self>,
        mut request: Request<Body>,
    ) -> Result<Request<Body>, BoxError> {
        let header = match &*self {
            Self::None => return Ok(request),
            Self::Fixed(header) => header.clone(),
            Self::File { path, last } => {
                let mut last = last.lock().await;
                // The file may be gone for a moment, or for good after the start.
                if let Ok(header) = read_token(path) {
                    *last = header;
                }
                last.clone()
            }
            Self::Plugin { plugin, last } => {
                let mut last = last.lock().await;
                if last.1.is_some_and(|expires| expires <= Timestamp::now()) {
                    let credential = plugin.run().await?;
                    if let Some(header) = token_header(&credential)? {
                        *last = (header, credential.expires);
                    }
                }
                last.0.clone()
            }
        };
        request.headers_mut().insert(AUTHORIZATION, header);
        Ok(request)
    }
}

fn read_token(path: &str) -> Result<HeaderValue> {
    let token = fs::read_to_string(path);
    let token = token.map_err(|error| {
        Error::Configuration(format!("unable to read the token file {path}: {error}"))
    })?;
    bearer(&token.into(), path)
}

fn token_header(credential: &Credential) -> Result<Option<HeaderValue>> {
    let token = credential.token.as_ref();
    let header = token.map(|token| bearer(token, "the credential plugin"));
    header.transpose()
}

/// Tokens in files, block scalars and outputs of programs often end with a line break.
fn bearer(token: &SecretString, origin: &str) -> Result<HeaderValue> {
    to_header(&format!("Bearer {}", token.expose_secret().trim()), origin)
}

fn to_header(text: &str, origin: &str) -> Result<HeaderValue> {
    let header = HeaderValue::try_from(text).map(|mut header| {
        header.set_sensitive(true);
        header
    });
    header.map_err(|_| {
        Error::Configuration(format!(
            "the token of {origin} contains characters that no HTTP header can have"
        ))
    })
}
