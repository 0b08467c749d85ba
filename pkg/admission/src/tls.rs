use std::sync::Arc;

use arc_swap::ArcSwapOption;
use rustls::{
    ServerConfig,
    crypto::{CryptoProvider, ring},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
    version::{TLS12, TLS13},
};

use crate::{Error, Result};

/// The certificate that new connections are served with; it can be changed at any time.
#[derive(Debug, Default)]
pub struct Certificates {
    current: ArcSwapOption<CertifiedKey>,
}

impl Certificates {
    /// None yet: handshakes fail until [`serve`](Self::serve) is called.
    pub fn shared() -> Arc<Self> {
        Arc::default()
    }

    /// What new connections are served with.
    #[cfg(test)]
    pub(crate) fn served(&self) -> Option<Arc<CertifiedKey>> {
        self.current.load_full()
    }

    /// Serves new connections with this certificate.
    pub fn serve(&self, certificate: Arc<CertifiedKey>) {
        self.current.store(Some(certificate));
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current.load_full()
    }
}

/// Named, because a process may hold more than one, and rustls would have to be told which.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

pub(crate) fn server_config(certificates: Arc<Certificates>) -> Result<ServerConfig> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS12, &TLS13])
        .map_err(Error::Tls)?
        .with_no_client_auth()
        .with_cert_resolver(certificates);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}
