//! The Secret that the replicas share the certificate by.

use std::collections::BTreeMap;

use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};

use crate::{
    Bundle, Error, Renewal, Result, Settings,
    api_call::{FIELD_MANAGER, call},
    needs_renewal,
};

const TYPE: &str = "kubernetes.io/tls";
/// A replica that loses twice finds what the winner wrote.
const ATTEMPTS: usize = 3;

/// The certificate that all replicas are to serve, renewed if that is due; `served` is what this one serves.
pub(crate) async fn certificate(
    client: &Client,
    settings: &Settings,
    served: Option<&Bundle>,
) -> Result<Bundle> {
    let secrets = Api::namespaced(client.clone(), &settings.namespace);
    let names = settings.dns_names();
    for _ in 0..ATTEMPTS {
        let now = (settings.clock)();
        let name = format!("Secret {}", settings.secret);
        let found: Option<Secret> = call("get", name, secrets.get_opt(&settings.secret)).await?;
        let bundle = found.as_ref().map(read);
        let (due, bundle) = match (needs_renewal(bundle.as_ref(), &names[0], now), bundle) {
            (None, Some(bundle)) => return Ok(bundle),
            (due, bundle) => (due.unwrap_or(Renewal::Missing), bundle),
        };
        let previous = match due {
            Renewal::Aging => bundle.as_ref(),
            // The Secret was lost, spoilt, or put back to an old one: what is served is all that is known of its last certificate.
            _ => served.or(bundle.as_ref()),
        };
        let bundle = Bundle::issue(&names, settings.lifetime, previous, now)?;
        match write(&secrets, settings, found, &bundle).await {
            Ok(()) => {
                tracing::info!(secret = settings.secret, reason = %due, "Made a certificate");
                return Ok(bundle);
            }
            Err(error) if error.is_conflict() => {
                tracing::debug!(secret = settings.secret, "Another replica was first");
            }
            Err(error) => return Err(error),
        }
    }
    Err(Error::Contended)
}

fn read(secret: &Secret) -> Bundle {
    let part = |key| {
        let data = secret.data.as_ref().and_then(|data| data.get(key));
        data.map(|ByteString(bytes)| bytes.clone())
            .unwrap_or_default()
    };
    Bundle {
        certificate: part("tls.crt"),
        key: part("tls.key"),
        authorities: part("ca.crt"),
    }
}

/// Creates the Secret, or replaces it as it was found: either fails if another replica has written since.
async fn write(
    secrets: &Api<Secret>,
    settings: &Settings,
    found: Option<Secret>,
    bundle: &Bundle,
) -> Result<()> {
    let params = PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    let name = &settings.secret;
    let what = format!("Secret {name}");
    if let Some(secret) = found {
        let secret = filled(secret, bundle);
        call("replace", what, secrets.replace(name, &params, &secret)).await?;
    } else {
        let secret = Secret {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                ..ObjectMeta::default()
            },
            type_: Some(TYPE.to_owned()),
            ..Secret::default()
        };
        let secret = filled(secret, bundle);
        call("create", what, secrets.create(&params, &secret)).await?;
    }
    Ok(())
}

/// The rest of the Secret is left as it is: its type cannot be changed, its labels are the user's.
fn filled(mut secret: Secret, bundle: &Bundle) -> Secret {
    let bundle = bundle.clone();
    secret.data.get_or_insert_default().extend(BTreeMap::from([
        ("tls.crt".to_owned(), ByteString(bundle.certificate)),
        ("tls.key".to_owned(), ByteString(bundle.key)),
        ("ca.crt".to_owned(), ByteString(bundle.authorities)),
    ]));
    secret
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else_is_touched() {
        let bundle = Bundle {
            certificate: b"certificate".to_vec(),
            key: b"key".to_vec(),
            authorities: b"authorities".to_vec(),
        };
        let mut found = Secret::default();
        found.metadata.resource_version = Some("7".to_owned());
        found.type_ = Some("Opaque".to_owned());
        let data = BTreeMap::from([("other".to_owned(), ByteString(b"x".to_vec()))]);
        found.data = Some(data);
        let written = filled(found.clone(), &bundle);
        assert_eq!(read(&written), bundle);
        assert_eq!(
            (&written.metadata, &written.type_),
            (&found.metadata, &found.type_)
        );
        assert!(written.data.unwrap().contains_key("other"));
        assert_eq!(read(&Secret::default()), Bundle::default());
    }
}
