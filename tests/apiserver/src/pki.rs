use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

/// Writes the serving certificate and the key pair of service accounts. Returns the CA certificate
/// as PEM.
pub(crate) fn write_pki(dir: &Path) -> String {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();

    let names = ["127.0.0.1", "localhost"].map(str::to_owned);
    let mut params = CertificateParams::new(names).unwrap();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap();

    let accounts = KeyPair::generate().unwrap();
    let ca = authority.pem();
    for (file, text) in [
        ("ca.crt", ca.clone()),
        ("server.crt", certificate.pem()),
        ("server.key", key.serialize_pem()),
        ("accounts.key", accounts.serialize_pem()),
        ("accounts.pub", accounts.public_key_pem()),
    ] {
        std::fs::write(dir.join(file), text).unwrap();
    }
    ca
}
