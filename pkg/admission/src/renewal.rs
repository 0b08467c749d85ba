/// The reason to renew a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Renewal {
    /// No certificate exists.
    #[error("the certificate does not exist")]
    Missing,
    /// The certificate, its key or its authority is missing.
    #[error("the certificate, its key or its CA is missing")]
    Incomplete,
    /// The certificate or its key cannot be parsed.
    #[error("the certificate or its key cannot be parsed")]
    Unreadable,
    /// The key belongs to another certificate.
    #[error("the key does not match the certificate")]
    KeyMismatch,
    /// The validity begins in the future.
    #[error("the certificate is not valid yet")]
    NotYetValid,
    /// The certificate has expired.
    #[error("the certificate has expired")]
    Expired,
    /// The API server would not trust the certificate: no valid CA has signed it, or the name
    /// differs.
    #[error("no valid CA has signed the certificate for the name of the Service")]
    Untrusted,
    /// Less than a third of the lifetime is left.
    #[error("less than a third of the certificate's lifetime is left")]
    Aging,
}
