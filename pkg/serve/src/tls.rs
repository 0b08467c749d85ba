use std::sync::Arc;

use arc_swap::ArcSwapOption;
use rustls::{
    ServerConfig,
    crypto::{CryptoProvider, ring},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
    version::{TLS12, TLS13},
};

/// The certificate for new connections. It can be replaced at any time.
#[derive(Debug, Default)]
pub struct Certificates {
    current: ArcSwapOption<CertifiedKey>,
}

impl Certificates {
    /// A holder without a certificate. TLS handshakes fail until
    /// [`set_certificate`](Self::set_certificate) is called.
    pub fn new_shared() -> Arc<Self> {
        Arc::default()
    }

    /// The certificate for new connections.
    pub fn current_certificate(&self) -> Option<Arc<CertifiedKey>> {
        self.current.load_full()
    }

    /// Uses this certificate for new connections.
    pub fn set_certificate(&self, certificate: Arc<CertifiedKey>) {
        self.current.store(Some(certificate));
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current_certificate()
    }
}

/// The crypto provider. It is explicit because a process can link several providers, and rustls
/// then has no default. See docs/decisions/0006.
pub fn crypto_provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// TLS 1.2 and 1.3 with the current certificate of `certificates`, for HTTP/1 and HTTP/2.
///
/// # Errors
/// When the crypto provider supports neither version.
pub fn tls_config(certificates: Arc<Certificates>) -> Result<Arc<ServerConfig>, rustls::Error> {
    let mut config = ServerConfig::builder_with_provider(crypto_provider())
        .with_protocol_versions(&[&TLS12, &TLS13])?
        .with_no_client_auth()
        .with_cert_resolver(certificates);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
