//! Reads the certificate from a directory that another program manages, for example a mounted
//! Secret.

use std::{fs, path::Path};

use jiff::Timestamp;

use crate::{
    certificate::{ServingCert, parse_validity},
    error::{Error, Result},
    renewal::Renewal,
};

/// Reads the certificate in `dir` and checks that it can be served.
///
/// The kubelet may replace the files between the two reads. The key then does not match, and the
/// next check succeeds.
pub(crate) fn read_certificate(dir: &Path, now: Timestamp) -> Result<ServingCert> {
    let read = |name: &str| {
        let path = dir.join(name);
        fs::read(&path).map_err(|source| Error::File { path, source })
    };
    let serving_cert = ServingCert {
        certificate: read("tls.crt")?,
        key: read("tls.key")?,
        ca: Vec::new(),
    };
    match find_problem(&serving_cert, now) {
        Some(problem) => Err(Error::Unusable(problem)),
        None => Ok(serving_cert),
    }
}

/// The reason why a certificate cannot be served. Its CA is unknown here and not checked.
fn find_problem(serving_cert: &ServingCert, now: Timestamp) -> Option<Renewal> {
    let key = match serving_cert.certified_key() {
        Ok(key) => key,
        Err(problem) => return Some(problem),
    };
    match key
        .end_entity_cert()
        .ok()
        .and_then(|leaf| parse_validity(leaf))
    {
        None => Some(Renewal::Unreadable),
        Some((begin, _)) if now < begin => Some(Renewal::NotYetValid),
        Some((_, end)) if now >= end => Some(Renewal::Expired),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Settings;

    const LIFETIME: Duration = Duration::from_secs(3600);

    fn write_files(dir: &Path, certificate: &[u8], key: &[u8]) {
        fs::write(dir.join("tls.crt"), certificate).unwrap();
        fs::write(dir.join("tls.key"), key).unwrap();
    }

    #[test]
    fn only_servable_certificate_is_read() {
        let now = Timestamp::now();
        let issue =
            || ServingCert::issue(&Settings::default().dns_names(), LIFETIME, None, now).unwrap();
        let (one, other) = (issue(), issue());
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let missing = read_certificate(dir, now).unwrap_err();
        assert!(missing.to_string().ends_with("tls.crt"), "{missing}");

        write_files(dir, &one.certificate, &one.key);
        let found = read_certificate(dir, now).unwrap();
        assert_eq!(
            (found.certificate, found.key),
            (one.certificate.clone(), one.key.clone())
        );

        let problem = |certificate_: &[u8], key: &[u8], at| {
            write_files(dir, certificate_, key);
            match read_certificate(dir, at) {
                Err(Error::Unusable(problem)) => problem,
                other => panic!("{other:?}"),
            }
        };
        for (found, expected) in [
            (
                problem(&one.certificate, &other.key, now),
                Renewal::KeyMismatch,
            ),
            (problem(b"", &one.key, now), Renewal::Unreadable),
            (problem(&one.certificate, b"", now), Renewal::Unreadable),
            (
                problem(&one.certificate[..99], &one.key, now),
                Renewal::Unreadable,
            ),
            (
                problem(&one.certificate, &one.key, now + 2 * LIFETIME),
                Renewal::Expired,
            ),
            (
                problem(&one.certificate, &one.key, now - LIFETIME),
                Renewal::NotYetValid,
            ),
        ] {
            assert_eq!(found, expected);
        }
    }
}
