//! The Secret with the certificate that all replicas share.

use std::collections::BTreeMap;

use di_cache::call_with_timeout;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};

use crate::{
    certificate::ServingCert,
    certificate_check::needs_renewal,
    error::{Error, Result},
    renewal::Renewal,
    settings::{CALL_TIMEOUT, FIELD_MANAGER, Settings},
};

const TYPE: &str = "kubernetes.io/tls";
/// Maximum number of attempts. A replica that loses a conflict finds the new certificate
/// afterwards.
const MAX_ATTEMPTS: usize = 3;

/// Reads the certificate from the Secret, and renews it if needed.
///
/// `served` is the certificate that this replica serves.
pub(crate) async fn ensure_certificate(
    client: &Client,
    settings: &Settings,
    served: Option<&ServingCert>,
) -> Result<ServingCert> {
    let secrets = Api::namespaced(client.clone(), &settings.namespace);
    let names = settings.dns_names();
    for _ in 0..MAX_ATTEMPTS {
        let now = (settings.clock)();
        let operation = || format!("get Secret {}", settings.secret);
        let read = secrets.get_opt(&settings.secret);
        let found: Option<Secret> = call_with_timeout(CALL_TIMEOUT, operation, read).await?;
        let serving_cert = found.as_ref().map(read_serving_cert);
        let (reason, serving_cert) = match (
            needs_renewal(serving_cert.as_ref(), &names[0], now),
            serving_cert,
        ) {
            (None, Some(serving_cert)) => return Ok(serving_cert),
            (reason, serving_cert) => (reason.unwrap_or(Renewal::Missing), serving_cert),
        };
        let previous = match reason {
            Renewal::Aging => serving_cert.as_ref(),
            // The Secret was deleted, damaged or restored from a backup. The served certificate is
            // the only copy of the latest one.
            _ => served.or(serving_cert.as_ref()),
        };
        let serving_cert = ServingCert::issue(&names, settings.lifetime, previous, now)?;
        match write_secret(&secrets, settings, found, &serving_cert).await {
            Ok(()) => {
                tracing::info!(secret = settings.secret, %reason, "Issued a new webhook certificate");
                return Ok(serving_cert);
            }
            Err(error) if error.is_conflict() => {
                tracing::debug!(
                    secret = settings.secret,
                    "Another replica wrote the certificate Secret first"
                );
            }
            Err(error) => return Err(error),
        }
    }
    Err(Error::Contended)
}

fn read_serving_cert(secret: &Secret) -> ServingCert {
    let field = |key| {
        let data = secret.data.as_ref().and_then(|data| data.get(key));
        data.map(|ByteString(bytes)| bytes.clone())
            .unwrap_or_default()
    };
    ServingCert {
        certificate: field("tls.crt"),
        key: field("tls.key"),
        ca: field("ca.crt"),
    }
}

/// Creates or replaces the Secret. Fails with a conflict if another replica has written it since
/// `found`.
async fn write_secret(
    secrets: &Api<Secret>,
    settings: &Settings,
    found: Option<Secret>,
    serving_cert: &ServingCert,
) -> Result<()> {
    let params = PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    let name = &settings.secret;
    if let Some(secret) = found {
        let secret = with_serving_cert(secret, serving_cert);
        let operation = || format!("replace Secret {name}");
        let write = secrets.replace(name, &params, &secret);
        call_with_timeout(CALL_TIMEOUT, operation, write).await?;
    } else {
        let secret = Secret {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                ..ObjectMeta::default()
            },
            type_: Some(TYPE.to_owned()),
            ..Secret::default()
        };
        let secret = with_serving_cert(secret, serving_cert);
        let operation = || format!("create Secret {name}");
        call_with_timeout(CALL_TIMEOUT, operation, secrets.create(&params, &secret)).await?;
    }
    Ok(())
}

/// Sets the certificate in a Secret and keeps its other fields: the type is immutable, and labels
/// belong to the user.
fn with_serving_cert(mut secret: Secret, serving_cert: &ServingCert) -> Secret {
    let serving_cert = serving_cert.clone();
    secret.data.get_or_insert_default().extend(BTreeMap::from([
        ("tls.crt".to_owned(), ByteString(serving_cert.certificate)),
        ("tls.key".to_owned(), ByteString(serving_cert.key)),
        ("ca.crt".to_owned(), ByteString(serving_cert.ca)),
    ]));
    secret
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_bundle_is_read_back_and_rest_is_kept() {
        let serving_cert = ServingCert {
            certificate: b"certificate".to_vec(),
            key: b"key".to_vec(),
            ca: b"ca".to_vec(),
        };
        let mut found = Secret::default();
        found.metadata.resource_version = Some("7".to_owned());
        found.type_ = Some("Opaque".to_owned());
        let data = BTreeMap::from([("other".to_owned(), ByteString(b"x".to_vec()))]);
        found.data = Some(data);
        let written = with_serving_cert(found.clone(), &serving_cert);
        assert_eq!(read_serving_cert(&written), serving_cert);
        assert_eq!(
            (&written.metadata, &written.type_),
            (&found.metadata, &found.type_)
        );
        assert!(written.data.unwrap().contains_key("other"));
        assert_eq!(
            read_serving_cert(&Secret::default()),
            ServingCert::default()
        );
    }
}
