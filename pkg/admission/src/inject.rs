//! Injects the CA bundle into the webhook configurations.

use di_cache::call_with_timeout;
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
    error::{Error, Result},
    settings::{CALL_TIMEOUT, FIELD_MANAGER, Settings},
};

/// A webhook configuration in the version that was read.
pub(crate) struct WebhookConfiguration {
    api: Api<DynamicObject>,
    name: String,
    /// Kind and name, for messages.
    label: String,
    found: Option<DynamicObject>,
}

/// Reads both webhook configurations as dynamic objects, because both kinds are handled equally.
pub(crate) async fn read_configurations(
    client: &Client,
    settings: &Settings,
) -> Result<[WebhookConfiguration; 2]> {
    let mutating = ApiResource::erase::<MutatingWebhookConfiguration>(&());
    let validating = ApiResource::erase::<ValidatingWebhookConfiguration>(&());
    Ok([
        WebhookConfiguration::read_from_api(client, &mutating, &settings.mutating_configuration)
            .await?,
        WebhookConfiguration::read_from_api(
            client,
            &validating,
            &settings.validating_configuration,
        )
        .await?,
    ])
}

impl WebhookConfiguration {
    async fn read_from_api(client: &Client, resource: &ApiResource, name: &str) -> Result<Self> {
        let api = Api::all_with(client.clone(), resource);
        let label = format!("{} {name}", resource.kind);
        let operation = || format!("get {label}");
        let found = call_with_timeout(CALL_TIMEOUT, operation, api.get_opt(name)).await?;
        Ok(Self {
            api,
            name: name.to_owned(),
            label,
            found,
        })
    }

    /// Sets the CA bundle of all webhooks to `ca`, if one differs.
    ///
    /// Fails if the configuration has changed since it was read. Read the configuration before the
    /// certificate: a replica with an old certificate then cannot overwrite the CA bundle that
    /// another replica has injected for a new one.
    pub(crate) async fn inject_ca(&self, ca: &[u8]) -> Result<()> {
        let Some(found) = &self.found else {
            return Err(Error::ConfigurationMissing(self.label.clone()));
        };
        let Some(patch) = ca_patch(found, ca) else {
            return Ok(());
        };
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patch = Patch::Json::<()>(patch);
        let patched = self.api.patch(&self.name, &params, &patch);
        let operation = || format!("patch {}", self.label);
        call_with_timeout(CALL_TIMEOUT, operation, patched).await?;
        tracing::info!(
            configuration = self.label,
            "Injected the CA bundle into the webhook configuration"
        );
        Ok(())
    }
}

/// The patch that sets the CA bundle of all webhooks; `None` if it is set.
fn ca_patch(configuration: &DynamicObject, ca: &[u8]) -> Option<json_patch::Patch> {
    let bundle = serde_json::to_value(ByteString(ca.to_vec())).ok()?;
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
    // With this resourceVersion the API server responds with a conflict if the object has changed.
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

    fn configuration_json(bundles: [Option<&str>; 2]) -> Value {
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

    fn patch_for(configuration: &Value) -> Option<json_patch::Patch> {
        ca_patch(
            &serde_json::from_value(configuration.clone()).unwrap(),
            b"new",
        )
    }

    #[test]
    fn webhooks_are_patched_if_one_differs() {
        for bundles in [
            [None, None],
            [Some("bmV3"), None],
            [Some("b2xk"), Some("bmV3")],
        ] {
            let mut configuration = configuration_json(bundles);
            let patch = patch_for(&configuration).unwrap();
            assert_eq!(
                json!(patch)[0],
                json!({"op": "replace", "path": "/metadata/resourceVersion", "value": "7"})
            );
            json_patch::patch(&mut configuration, &patch).unwrap();
            assert_eq!(
                configuration,
                configuration_json([Some("bmV3"), Some("bmV3")])
            );
            assert_eq!(patch_for(&configuration), None);
        }
    }

    #[test]
    fn configuration_without_webhooks_needs_no_patch() {
        assert_eq!(
            patch_for(&json!({"metadata": {"name": "di-webhook"}})),
            None
        );
    }
}
