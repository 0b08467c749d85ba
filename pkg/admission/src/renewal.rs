use std::sync::Arc;

use jiff::Timestamp;
use rustls::{
    RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier},
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject};

use crate::{Bundle, certificate::validity, tls};

/// Why a new certificate is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Renewal {
    /// There is none.
    #[error("there is none")]
    Missing,
    /// The certificate, its key or its authority is missing.
    #[error("it is incomplete")]
    Incomplete,
    /// The certificate or its key cannot be read.
    #[error("it cannot be read")]
    Unreadable,
    /// The key belongs to another certificate.
    #[error("its key belongs to another certificate")]
    KeyMismatch,
    /// It begins in the future.
    #[error("it is not valid yet")]
    NotYetValid,
    /// Its time is over.
    #[error("it has expired")]
    Expired,
    /// The API server would not trust it: no valid authority vouches for it, or it is for another name.
    #[error("its authority does not vouch for it under the Service's name")]
    Untrusted,
    /// Less than a third of its life is left.
    #[error("less than a third of its life is left")]
    Aging,
}

/// Why `bundle` must be renewed, if it must; `name` is what the API server calls us by.
pub fn needs_renewal(bundle: Option<&Bundle>, name: &str, now: Timestamp) -> Option<Renewal> {
    match bundle {
        None => Some(Renewal::Missing),
        Some(bundle) => check(bundle, name, now).err(),
    }
}

fn check(bundle: &Bundle, name: &str, now: Timestamp) -> Result<(), Renewal> {
    if [&bundle.certificate, &bundle.key, &bundle.authorities]
        .iter()
        .any(|part| part.is_empty())
    {
        return Err(Renewal::Incomplete);
    }
    let certificate = bundle.certified_key()?;
    let leaf = certificate
        .end_entity_cert()
        .map_err(|_| Renewal::Unreadable)?;
    let (begin, end) = validity(leaf).ok_or(Renewal::Unreadable)?;
    if now < begin {
        return Err(Renewal::NotYetValid);
    }
    if now >= end {
        return Err(Renewal::Expired);
    }
    verify(&certificate.cert, &bundle.authorities, name, now).ok_or(Renewal::Untrusted)?;
    let (left, life) = (now.duration_until(end), begin.duration_until(end));
    if left < life / 3 {
        return Err(Renewal::Aging);
    }
    Ok(())
}

/// Looks at the certificate as the API server will.
fn verify(
    chain: &[CertificateDer<'_>],
    authorities: &[u8],
    name: &str,
    now: Timestamp,
) -> Option<()> {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(authorities).flatten() {
        // rustls does not look at an authority's dates, but the API server does.
        if validity(&authority).is_some_and(|(begin, end)| begin <= now && now < end) {
            roots.add(authority).ok()?;
        }
    }
    let (leaf, intermediates) = chain.split_first()?;
    let name = ServerName::try_from(name).ok()?;
    let seconds = u64::try_from(now.as_second()).ok()?;
    let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), tls::provider())
        .build()
        .ok()?
        .verify_server_cert(leaf, intermediates, &name, &[], now)
        .ok()?;
    Some(())
}
