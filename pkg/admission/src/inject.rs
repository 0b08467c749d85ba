//! Makes the webhook configurations trust our certificate.

use json_patch::{AddOperation, PatchOperation, ReplaceOperation, jsonptr::PointerBuf};
use k8s_openapi::{
    ByteString,
    api::admissionregistration::v1::{
        MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
    },
};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
};
use serde_json::Value;

use crate::{
    Error, Result, Settings,
    api_call::{FIELD_MANAGER, call},
};

/// A webhook configuration as it was read.
pub(crate) struct Configuration {
    api: Api<DynamicObject>,
    name: String,
    /// Kind and name, for messages.
    what: String,
    found: Option<DynamicObject>,
}

/// Reads both webhook configurations.
///
/// Dynamic objects, because both kinds are handled alike.
pub(crate) async fn read(client: &Client, settings: &Settings) -> Result<[Configuration; 2]> {
    let mutating = ApiResource::erase::<MutatingWebhookConfiguration>(&());
    let validating = ApiResource::erase::<ValidatingWebhookConfiguration>(&());
    Ok([
        Configuration::read(client, &mutating, &settings.mutating_configuration).await?,
        Configuration::read(client, &validating, &settings.validating_configuration).await?,
    ])
}

impl Configuration {
    async fn read(client: &Client, resource: &ApiResource, name: &str) -> Result<Self> {
        let api = Api::all_with(client.clone(), resource);
        let what = format!("{} {name}", resource.kind);
        let found = call("get", what.as_str(), api.get_opt(name)).await?;
        Ok(Self {
            api,
            name: name.to_owned(),
            what,
            found,
        })
    }

    /// Makes every webhook trust `authorities`, if one does not yet.
    ///
    /// Fails if the configuration has changed since it was read. It must be read before the certificate is: then a replica that
    /// holds an old certificate cannot overwrite what another has injected with the new one.
    pub(crate) async fn inject(&self, authorities: &[u8]) -> Result<()> {
        let Some(found) = &self.found else {
            return Err(Error::ConfigurationMissing(self.what.clone()));
        };
        let Some(patch) = patch(found, authorities) else {
            return Ok(());
        };
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patch = Patch::Json::<()>(patch);
        let patched = self.api.patch(&self.name, &params, &patch);
        call("patch", self.what.as_str(), patched).await?;
        tracing::info!(
            configuration = self.what,
            "Injected the webhooks' authorities"
        );
        Ok(())
    }
}

/// What has to change for every webhook to trust `authorities`; none when all do.
fn patch(configuration: &DynamicObject, authorities: &[u8]) -> Option<json_patch::Patch> {
    let bundle = serde_json::to_value(ByteString(authorities.to_vec())).ok()?;
    let webhooks = configuration.data["webhooks"].as_array()?;
    let differing = (0..webhooks.len())
        .filter(|i| webhooks[*i]["clientConfig"]["caBundle"] != bundle)
        .map(|i| {
            let i = i.to_string();
            PatchOperation::Add(AddOperation {
                path: PointerBuf::from_tokens(["webhooks", &i, "clientConfig", "caBundle"]),
                value: bundle.clone(),
            })
        });
    // Writing the version that was read makes the API server answer with a conflict if there is a newer one.
    let version = configuration.metadata.resource_version.clone();
    let guard = PatchOperation::Replace(ReplaceOperation {
        path: PointerBuf::from_tokens(["metadata", "resourceVersion"]),
        value: version.map_or(Value::Null, Value::String),
    });
    let operations: Vec<_> = [guard].into_iter().chain(differing).collect();
    (operations.len() > 1).then_some(json_patch::Patch(operations))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn configuration(bundles: [Option<&str>; 2]) -> Value {
        let webhooks = bundles.map(|bundle| match bundle {
            Some(bundle) => json!({"name": "a", "clientConfig": {"service": {"name": "di-webhook"}, "caBundle": bundle}}),
            None => json!({"name": "a", "clientConfig": {"service": {"name": "di-webhook"}}}),
        });
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "di-webhook", "resourceVersion": "7"},
            "webhooks": webhooks,
        })
    }

    fn patch_of(configuration: &Value) -> Option<json_patch::Patch> {
        super::patch(
            &serde_json::from_value(configuration.clone()).unwrap(),
            b"new",
        )
    }

    #[test]
    fn every_webhook_is_injected_and_only_when_one_differs() {
        for bundles in [
            [None, None],
            [Some("bmV3"), None],
            [Some("b2xk"), Some("bmV3")],
        ] {
            let mut configuration = configuration(bundles);
            let patch = patch_of(&configuration).unwrap();
            assert_eq!(
                json!(patch)[0],
                json!({"op": "replace", "path": "/metadata/resourceVersion", "value": "7"})
            );
            json_patch::patch(&mut configuration, &patch).unwrap();
            assert_eq!(
                configuration,
                self::configuration([Some("bmV3"), Some("bmV3")])
            );
            assert_eq!(patch_of(&configuration), None);
        }
    }

    #[test]
    fn a_configuration_without_webhooks_needs_nothing() {
        assert_eq!(patch_of(&json!({"metadata": {"name": "di-webhook"}})), None);
    }
}
