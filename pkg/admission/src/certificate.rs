use std::{fmt, sync::Arc, time::Duration};

use di_serve::crypto_provider;
use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, date_time_ymd,
};
use rustls::sign::CertifiedKey;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use x509_parser::{certificate::X509Certificate, prelude::FromDer};

use crate::{
    error::{Error, Result},
    renewal::Renewal,
};

/// Maximum time by which the start of a certificate is backdated, for machines with a slow clock.
const MAX_BACKDATE: Duration = Duration::from_secs(2 * 60 * 60);

/// A serving certificate, its private key and its CA certificates, all as PEM.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ServingCert {
    /// `tls.crt`: the serving certificate.
    pub certificate: Vec<u8>,
    /// `tls.key`: its private key.
    pub key: Vec<u8>,
    /// `ca.crt`: the CA of the certificate, then the CA of the previous certificate.
    pub ca: Vec<u8>,
}

impl fmt::Debug for ServingCert {
    /// Prints no fields, so that the key cannot be logged.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServingCert").finish_non_exhaustive()
    }
}

impl ServingCert {
    /// Issues a certificate for `names` with a new CA, valid for `lifetime` from `now`.
    ///
    /// The key of the CA is discarded, so that it cannot sign anything else. The newest valid CA of
    /// `previous` stays trusted, because other replicas serve the previous certificate for some
    /// time.
    ///
    /// # Errors
    /// When a name is not valid in a certificate, or a key cannot be generated.
    pub fn issue(
        names: &[String],
        lifetime: Duration,
        previous: Option<&Self>,
        now: Timestamp,
    ) -> Result<Self> {
        // At most a tenth: the backdated time counts towards the age that triggers a renewal.
        let begin = now - MAX_BACKDATE.min(lifetime / 10);
        let end = now.checked_add(lifetime).unwrap_or(Timestamp::MAX);
        let validity = (begin, end);
        // The time in the name distinguishes the two CAs of a rotation.
        let authority_name = format!("di-webhook-ca@{}", now.as_second());

        let mut params = certificate_params(Vec::new(), &authority_name, validity)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let authority =
            CertifiedIssuer::self_signed(params, generate_key()?).map_err(Error::Issue)?;

        let common_name = names.first().map_or("di-webhook", String::as_str);
        let mut params = certificate_params(names.to_vec(), common_name, validity)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let key = generate_key()?;
        let certificate = params.signed_by(&key, &authority).map_err(Error::Issue)?;

        let mut ca = authority.pem();
        if let Some(old) = previous.and_then(|previous| previous.valid_authority(now)) {
            ca.push_str(old.trim());
            ca.push('\n');
        }
        Ok(Self {
            certificate: certificate.pem().into_bytes(),
            key: key.serialize_pem().into_bytes(),
            ca: ca.into_bytes(),
        })
    }

    /// The first CA that has not expired, as PEM.
    fn valid_authority(&self, now: Timestamp) -> Option<&str> {
        const END: &str = "-----END CERTIFICATE-----";
        let pem = std::str::from_utf8(&self.ca).ok()?;
        pem.split_inclusive(END).find_map(|section| {
            let section = &section[section.find("-----BEGIN")?..];
            let der = CertificateDer::from_pem_slice(section.as_bytes()).ok()?;
            let (_, end) = parse_validity(&der)?;
            (now < end).then_some(section)
        })
    }

    /// The certificate and its key for rustls.
    ///
    /// # Errors
    /// When they cannot be parsed, or the key does not match the certificate.
    pub fn certified_key(&self) -> Result<Arc<CertifiedKey>, Renewal> {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&self.certificate)
            .collect::<Result<_, _>>()
            .map_err(|_| Renewal::Unreadable)?;
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(|_| Renewal::Unreadable)?;
        CertifiedKey::from_der(chain, key, &crypto_provider())
            .map(Arc::new)
            .map_err(|error| match error {
                rustls::Error::InconsistentKeys(_) => Renewal::KeyMismatch,
                _ => Renewal::Unreadable,
            })
    }
}

/// Start and end of the validity of a certificate; `None` if it cannot be parsed.
pub(crate) fn parse_validity(der: &[u8]) -> Option<(Timestamp, Timestamp)> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let validity = certificate.validity();
    let begin = Timestamp::from_second(validity.not_before.timestamp()).ok()?;
    let end = Timestamp::from_second(validity.not_after.timestamp()).ok()?;
    Some((begin, end))
}

fn generate_key() -> Result<KeyPair> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(Error::Issue)
}

fn certificate_params(
    names: Vec<String>,
    common_name: &str,
    (begin, end): (Timestamp, Timestamp),
) -> Result<CertificateParams> {
    let to_date_time = |time: Timestamp| {
        let since_epoch = u64::try_from(time.as_second()).unwrap_or(0);
        date_time_ymd(1970, 1, 1) + Duration::from_secs(since_epoch)
    };
    let mut params = CertificateParams::new(names).map_err(Error::Issue)?;
    params.not_before = to_date_time(begin);
    params.not_after = to_date_time(end);
    params.distinguished_name.remove(DnType::CommonName);
    params
        .distinguished_name
        .push(DnType::CommonName, common_name);
    Ok(params)
}

#[cfg(test)]
mod tests;
