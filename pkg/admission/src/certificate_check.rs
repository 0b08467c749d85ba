use std::sync::Arc;

use di_serve::crypto_provider;
use jiff::Timestamp;
use rustls::{
    RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier},
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject};

use crate::{
    certificate::{ServingCert, parse_validity},
    renewal::Renewal,
};

/// The reason to renew `serving_cert`, or `None`. `name` is the DNS name that the API server uses.
pub fn needs_renewal(
    serving_cert: Option<&ServingCert>,
    name: &str,
    now: Timestamp,
) -> Option<Renewal> {
    match serving_cert {
        None => Some(Renewal::Missing),
        Some(serving_cert) => check_serving_cert(serving_cert, name, now).err(),
    }
}

fn check_serving_cert(
    serving_cert: &ServingCert,
    name: &str,
    now: Timestamp,
) -> Result<(), Renewal> {
    if [
        &serving_cert.certificate,
        &serving_cert.key,
        &serving_cert.ca,
    ]
    .iter()
    .any(|part| part.is_empty())
    {
        return Err(Renewal::Incomplete);
    }
    let certificate = serving_cert.certified_key()?;
    let leaf = certificate
        .end_entity_cert()
        .map_err(|_| Renewal::Unreadable)?;
    let (begin, end) = parse_validity(leaf).ok_or(Renewal::Unreadable)?;
    if now < begin {
        return Err(Renewal::NotYetValid);
    }
    if now >= end {
        return Err(Renewal::Expired);
    }
    verify_trust(&certificate.cert, &serving_cert.ca, name, now).ok_or(Renewal::Untrusted)?;
    let (remaining, lifetime) = (now.duration_until(end), begin.duration_until(end));
    if remaining < lifetime / 3 {
        return Err(Renewal::Aging);
    }
    Ok(())
}

/// Verifies the certificate like the API server.
fn verify_trust(chain: &[CertificateDer<'_>], ca: &[u8], name: &str, now: Timestamp) -> Option<()> {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(ca).flatten() {
        // The API server checks the validity of a CA, rustls does not.
        if parse_validity(&authority).is_some_and(|(begin, end)| begin <= now && now < end) {
            roots.add(authority).ok()?;
        }
    }
    let (leaf, intermediates) = chain.split_first()?;
    let name = ServerName::try_from(name).ok()?;
    let seconds = u64::try_from(now.as_second()).ok()?;
    let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), crypto_provider())
        .build()
        .ok()?
        .verify_server_cert(leaf, intermediates, &name, &[], now)
        .ok()?;
    Some(())
}
