use std::{sync::Arc, time::Duration};

use http::Response;
use kube::{Client, client::ClientBuilder};
use tower::{buffer::BufferLayer, filter::AsyncFilterLayer, util::MapResponseLayer};

use crate::{Error, Result};

use super::{
    credentials::Authorization,
    deadline::Deadline,
    kubeconfig::load_config,
    names::check_namespace,
    options::{ConnectOptions, Namespace},
    proxy, warning_header,
};

/// A connection to a cluster.
#[derive(Clone)]
pub struct Cluster {
    pub(crate) client: Client,
    server: String,
    namespace: Namespace,
    request_timeout: Option<Duration>,
}

impl Cluster {
    /// Builds a client for the selected cluster without sending a request.
    /// `on_warning` receives every `Warning` header of the API server.
    pub async fn connect(
        options: &ConnectOptions,
        on_warning: impl Fn(&str) + Clone + Send + 'static,
    ) -> Result<Self> {
        let mut config = load_config(options)?;
        if config.proxy_url.is_none() {
            config.proxy_url = proxy::from_environment(&config.cluster_url)?;
        }
        // A person waits for the response: an error now is better than two minutes of retries.
        config.default_retry = false;
        config.read_timeout = options.request_timeout;
        let namespace = Namespace {
            name: options
                .namespace
                .clone()
                .unwrap_or_else(|| config.default_namespace.clone()),
            explicit: options.namespace.is_some(),
        };
        check_namespace(&namespace.name)?;
        let server = config.cluster_url.to_string();
        let server = server.trim_end_matches('/').to_owned();
        let authorization = Authorization::take_from(&mut config, options.stdin_in_use).await?;
        let authorization = Arc::new(authorization);
        let client = ClientBuilder::try_from(config)
            .map_err(|error| Error::from_kube(error, &server))?
            .with_layer(&BufferLayer::new(1024))
            .with_layer(&AsyncFilterLayer::new(move |request| {
                Arc::clone(&authorization).add_to(request)
            }))
            .with_layer(&MapResponseLayer::new(move |response: Response<_>| {
                for header in response.headers().get_all(http::header::WARNING) {
                    for text in
                        warning_header::parse_warnings(&String::from_utf8_lossy(header.as_bytes()))
                    {
                        on_warning(&text);
                    }
                }
                response
            }))
            .build();
        Ok(Self {
            client,
            server,
            namespace,
            request_timeout: options.request_timeout,
        })
    }

    /// The namespace of objects that name none.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Waits for the request timeout. A watch ends after this time, as in kubectl.
    pub async fn wait_request_timeout(&self) {
        Deadline::after(self.request_timeout).wait_passed().await;
    }

    /// Returns this cluster with another namespace for objects that name none.
    #[must_use]
    pub fn with_namespace(&self, namespace: &str) -> Self {
        let mut other = self.clone();
        namespace.clone_into(&mut other.namespace.name);
        other
    }

    /// Address of the API server.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Wraps the client of a mock API server.
    #[cfg(test)]
    pub(crate) fn for_test_client(client: Client) -> Self {
        Self {
            client,
            server: String::new(),
            namespace: ConnectOptions::default().offline_namespace(),
            request_timeout: None,
        }
    }

    /// Connects to the HTTP server of a test.
    #[cfg(test)]
    pub(crate) async fn for_test_server(server: &tokio::net::TcpListener) -> Self {
        let options = ConnectOptions {
            kubeconfig: Some("/dev/null".into()),
            server: Some(format!("http://{}", server.local_addr().unwrap())),
            ..ConnectOptions::default()
        };
        Self::connect(&options, |_| {}).await.unwrap()
    }

    pub(crate) fn convert_error(&self, error: kube::Error) -> Error {
        Error::from_kube(error, &self.server)
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        ConnectOptions,
        connection::tests::{connect, with_context},
    };

    #[tokio::test]
    async fn empty_namespace_flag_selects_default() {
        let file = with_context("{cluster: k, user: '', namespace: ''}");
        let options = ConnectOptions {
            kubeconfig: Some(file.path().to_owned()),
            namespace: Some(String::new()),
            ..ConnectOptions::default()
        };
        let cluster = connect(options.without_empty()).await.unwrap();
        assert_eq!(cluster.namespace().name, "default");
        assert!(!cluster.namespace().explicit);
    }

    #[tokio::test]
    async fn namespace_with_slash_is_rejected() {
        let file = with_context("{cluster: k, namespace: a/b}");
        let mut options = ConnectOptions {
            kubeconfig: Some(file.path().to_owned()),
            ..ConnectOptions::default()
        };
        let expected = "invalid namespace \"a/b\": [may not contain '/']";
        let error = connect(options.clone()).await.err().unwrap();
        assert_eq!(error.to_string(), expected);
        options.namespace = Some("c%2fd".to_owned());
        let error = connect(options).await.err().unwrap();
        assert!(error.to_string().ends_with("[may not contain '%']"));
    }
}
