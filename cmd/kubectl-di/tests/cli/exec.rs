//! Errors of `exec`, `port-forward` and `logs` that need no kubelet; the rest is in `tests/e2e`.

use di_apiserver_tests::{Job, exit, run};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::{Api, api::PostParams};
use serde_json::json;

use crate::plugin::Plugin;

/// Allows the user `reader` to read jobs and pods.
pub async fn grant_reading(plugin: &Plugin) {
    let (client, namespace) = (plugin.space.client.clone(), &plugin.space.namespace);
    let group = "rbac.authorization.k8s.io";
    let role = json!({"metadata": {"name": "reader"}, "rules": [
        {"apiGroups": ["diengine.opendilab.org", ""], "resources": ["dijobs", "pods"], "verbs": ["get", "list", "watch"]},
    ]});
    let roles: Api<Role> = Api::namespaced(client.clone(), namespace);
    let role = serde_json::from_value(role).unwrap();
    roles.create(&PostParams::default(), &role).await.unwrap();
    let binding = json!({
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "reader"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "reader"}],
    });
    let bindings: Api<RoleBinding> = Api::namespaced(client, namespace);
    let binding = serde_json::from_value(binding).unwrap();
    let bound = bindings.create(&PostParams::default(), &binding).await;
    bound.unwrap();
    plugin.run_until_allowed(&["get", "j", "--as=reader"]).await;
}

#[tokio::test]
async fn exec_port_forward_and_logs_errors() {
    let plugin = Plugin::new().await;
    let manager = plugin.space.manager("manager");
    plugin.space.create(&Job::new("j", 1)).await;
    plugin
        .space
        .until("j", "a collector is made", |status| {
            status.plan.iter().any(|entry| entry.uid.is_some())
        })
        .await;
    plugin.space.until_phase("j", di_api::Phase::Created).await;
    manager.stop().await;
    let pods = plugin.space.pods();
    run(&pods, "j-coordinator").await;
    let mut shown = String::new();
    let mut call = async |args: &[&str]| {
        shown.push_str(&plugin.session(&[args]).await);
    };
    call(&["exec", "nope", "--", "ls"]).await;
    call(&["exec", "j"]).await;
    call(&["exec", "j/learner-abcde", "--", "ls"]).await;
    call(&["exec", "j", "--role=collector", "--index=7", "--", "ls"]).await;
    call(&["exec", "j", "--index=7", "--", "ls"]).await;
    call(&["exec", "j", "-c", "log", "--", "ls"]).await;
    call(&["port-forward", "j", "x:1"]).await;
    call(&[
        "port-forward",
        "j",
        "--role=collector",
        "8080",
        "--pod-running-timeout=1s",
    ])
    .await;
    grant_reading(&plugin).await;
    call(&["exec", "j", "--as=reader", "--", "ls"]).await;
    call(&["port-forward", "j", "--address=here", "8080"]).await;
    call(&["logs", "j", "--role=learner"]).await;
    call(&[
        "logs",
        "j",
        "--since=5m",
        "--since-time=2026-01-31T12:00:00Z",
    ])
    .await;
    call(&["logs", "j", "--since-time=noon"]).await;
    call(&["logs", "j", "-f", "--role=all", "--max-log-requests=1"]).await;
    exit(&pods, "j-coordinator", 0).await;
    call(&["exec", "j", "--", "ls"]).await;
    insta::assert_snapshot!(plugin.normalize(&shown));
}
