use k8s_openapi::api::{
    core::v1::ServiceAccount,
    rbac::v1::{Role, RoleBinding},
};
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::Namespace;

/// Creates a service account with these RBAC rules in its namespace.
///
/// # Panics
/// If it cannot be created.
pub async fn create_account(namespace: &Namespace, name: &str, rules: &Value) {
    let new = PostParams::default();
    let named = json!({"name": name});
    let account: ServiceAccount =
        serde_json::from_value(json!({"metadata": named})).expect("an account");
    namespace.api().create(&new, &account).await.expect("made");
    let role: Role =
        serde_json::from_value(json!({"metadata": named, "rules": rules})).expect("a role");
    namespace.api().create(&new, &role).await.expect("made");
    let binding: RoleBinding = serde_json::from_value(json!({
        "metadata": named,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace.name}],
    }))
    .expect("a binding");
    namespace.api().create(&new, &binding).await.expect("made");
}
