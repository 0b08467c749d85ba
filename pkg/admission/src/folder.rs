//! A folder that another program keeps a certificate in, as a kubelet does with a mounted Secret.

use std::{fs, path::Path};

use jiff::Timestamp;

use crate::{Bundle, Error, Renewal, Result, certificate::validity};

/// The certificate in `dir`, if it can be served. The kubelet may exchange its files while they are read: then they do not belong
/// together, and the next look finds that they do.
pub(crate) fn certificate(dir: &Path, now: Timestamp) -> Result<Bundle> {
    let read = |name: &str| {
        let path = dir.join(name);
        fs::read(&path).map_err(|source| Error::File { path, source })
    };
    let bundle = Bundle {
        certificate: read("tls.crt")?,
        key: read("tls.key")?,
        authorities: Vec::new(),
    };
    match unusable(&bundle, now) {
        Some(why) => Err(Error::Unusable(why)),
        None => Ok(bundle),
    }
}

/// Who trusts it is not known here.
fn unusable(bundle: &Bundle, now: Timestamp) -> Option<Renewal> {
    let key = match bundle.certified_key() {
        Ok(key) => key,
        Err(why) => return Some(why),
    };
    match key.end_entity_cert().ok().and_then(|leaf| validity(leaf)) {
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

    fn write(dir: &Path, certificate: &[u8], key: &[u8]) {
        fs::write(dir.join("tls.crt"), certificate).unwrap();
        fs::write(dir.join("tls.key"), key).unwrap();
    }

    #[test]
    fn only_what_can_be_served_is_taken() {
        let now = Timestamp::now();
        let issue =
            || Bundle::issue(&Settings::default().dns_names(), LIFETIME, None, now).unwrap();
        let (one, other) = (issue(), issue());
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let missing = certificate(dir, now).unwrap_err();
        assert!(missing.to_string().ends_with("tls.crt"), "{missing}");

        write(dir, &one.certificate, &one.key);
        let found = certificate(dir, now).unwrap();
        assert_eq!(
            (found.certificate, found.key),
            (one.certificate.clone(), one.key.clone())
        );

        let why = |certificate_: &[u8], key: &[u8], at| {
            write(dir, certificate_, key);
            match certificate(dir, at) {
                Err(Error::Unusable(why)) => why,
                other => panic!("{other:?}"),
            }
        };
        for (found, expected) in [
            (why(&one.certificate, &other.key, now), Renewal::KeyMismatch),
            (why(b"", &one.key, now), Renewal::Unreadable),
            (why(&one.certificate, b"", now), Renewal::Unreadable),
            (
                why(&one.certificate[..99], &one.key, now),
                Renewal::Unreadable,
            ),
            (
                why(&one.certificate, &one.key, now + 2 * LIFETIME),
                Renewal::Expired,
            ),
            (
                why(&one.certificate, &one.key, now - LIFETIME),
                Renewal::NotYetValid,
            ),
        ] {
            assert_eq!(found, expected);
        }
    }
}
