use std::{fmt, sync::Arc, time::Duration};

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, date_time_ymd,
};
use rustls::sign::CertifiedKey;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use x509_parser::{certificate::X509Certificate, prelude::FromDer};

use crate::{Error, Renewal, Result, tls};

/// How far back a certificate begins, for machines whose clock is an hour behind ours, and some more.
const MAX_BACKDATE: Duration = Duration::from_secs(2 * 60 * 60);

/// A serving certificate, its key, and the authorities to trust, each as PEM.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Bundle {
    /// `tls.crt`: the serving certificate.
    pub certificate: Vec<u8>,
    /// `tls.key`: its private key.
    pub key: Vec<u8>,
    /// `ca.crt`: the authority that signed it, then the one that signed its predecessor.
    pub authorities: Vec<u8>,
}

impl fmt::Debug for Bundle {
    /// Shows nothing, so that no key is ever logged.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bundle").finish_non_exhaustive()
    }
}

impl Bundle {
    /// Makes an authority and a certificate for `names` that lasts for `lifetime` from `now` on.
    ///
    /// The authority's key is thrown away: nothing else can ever be signed with it. The newest authority of `previous` that still
    /// is valid is trusted on, so that replicas may go on serving its certificate for a while.
    ///
    /// # Errors
    /// When a name cannot stand in a certificate, or no key can be made.
    pub fn issue(
        names: &[String],
        lifetime: Duration,
        previous: Option<&Self>,
        now: Timestamp,
    ) -> Result<Self> {
        // A tenth at most, because the backdated part counts as life when the certificate's age is looked at.
        let begin = now - MAX_BACKDATE.min(lifetime / 10);
        let end = now.checked_add(lifetime).unwrap_or(Timestamp::MAX);
        let validity = (begin, end);
        // Named by its time, so that the two authorities of a rotation can be told apart.
        let authority_name = format!("di-webhook-ca@{}", now.as_second());

        let mut params = params(Vec::new(), &authority_name, validity)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let authority = CertifiedIssuer::self_signed(params, new_key()?).map_err(Error::Issue)?;

        let common_name = names.first().map_or("di-webhook", String::as_str);
        let mut params = self::params(names.to_vec(), common_name, validity)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let key = new_key()?;
        let certificate = params.signed_by(&key, &authority).map_err(Error::Issue)?;

        let mut authorities = authority.pem();
        if let Some(old) = previous.and_then(|previous| previous.trusted(now)) {
            authorities.push_str(old.trim());
            authorities.push('\n');
        }
        Ok(Self {
            certificate: certificate.pem().into_bytes(),
            key: key.serialize_pem().into_bytes(),
            authorities: authorities.into_bytes(),
        })
    }

    /// The first authority that has not expired, as PEM.
    fn trusted(&self, now: Timestamp) -> Option<&str> {
        const END: &str = "-----END CERTIFICATE-----";
        let pem = std::str::from_utf8(&self.authorities).ok()?;
        pem.split_inclusive(END).find_map(|section| {
            let section = &section[section.find("-----BEGIN")?..];
            let der = CertificateDer::from_pem_slice(section.as_bytes()).ok()?;
            let (_, end) = validity(&der)?;
            (now < end).then_some(section)
        })
    }

    /// The certificate and its key, ready to be served.
    ///
    /// # Errors
    /// When they cannot be read, or do not belong together.
    pub fn certified_key(&self) -> Result<Arc<CertifiedKey>, Renewal> {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&self.certificate)
            .collect::<Result<_, _>>()
            .map_err(|_| Renewal::Unreadable)?;
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(|_| Renewal::Unreadable)?;
        CertifiedKey::from_der(chain, key, &tls::provider())
            .map(Arc::new)
            .map_err(|error| match error {
                rustls::Error::InconsistentKeys(_) => Renewal::KeyMismatch,
                _ => Renewal::Unreadable,
            })
    }
}

/// When a certificate begins and ends, if it can be read.
pub(crate) fn validity(der: &[u8]) -> Option<(Timestamp, Timestamp)> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let validity = certificate.validity();
    let begin = Timestamp::from_second(validity.not_before.timestamp()).ok()?;
    let end = Timestamp::from_second(validity.not_after.timestamp()).ok()?;
    Some((begin, end))
}

fn new_key() -> Result<KeyPair> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(Error::Issue)
}

fn params(
    names: Vec<String>,
    common_name: &str,
    (begin, end): (Timestamp, Timestamp),
) -> Result<CertificateParams> {
    let at = |time: Timestamp| {
        let since_epoch = u64::try_from(time.as_second()).unwrap_or(0);
        date_time_ymd(1970, 1, 1) + Duration::from_secs(since_epoch)
    };
    let mut params = CertificateParams::new(names).map_err(Error::Issue)?;
    params.not_before = at(begin);
    params.not_after = at(end);
    params.distinguished_name.remove(DnType::CommonName);
    params
        .distinguished_name
        .push(DnType::CommonName, common_name);
    Ok(params)
}

#[cfg(test)]
mod tests;
