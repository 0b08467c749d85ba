//! What `exec`, `port-forward` and `logs` refuse before a kubelet is asked; the rest is tested in `tests/e2e`.

use di_apiserver_tests::{Job, exit, run};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::{Api, api::PostParams};
use serde_json::json;

use crate::plugin::Plugin;

/// Lets a user look at jobs and pods, and do no more.
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
    plugin.until_may(&["get", "j", "--as=reader"]).await;
}

#[tokio::test]
async fn what_cannot_be_entered_is_told() {
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
    let mut say = async |args: &[&str]| {
        shown.push_str(&plugin.session(&[args]).await);
    };
    say(&["exec", "nope", "--", "ls"]).await;
    say(&["exec", "j"]).await;
    say(&["exec", "j/learner-abcde", "--", "ls"]).await;
    say(&["exec", "j", "--role=collector", "--index=7", "--", "ls"]).await;
    say(&["exec", "j", "--index=7", "--", "ls"]).await;
    say(&["exec", "j", "-c", "log", "--", "ls"]).await;
    say(&["port-forward", "j", "x:1"]).await;
    say(&[
        "port-forward",
        "j",
        "--role=collector",
        "8080",
        "--pod-running-timeout=1s",
    ])
    .await;
    grant_reading(&plugin).await;
    say(&["exec", "j", "--as=reader", "--", "ls"]).await;
    say(&["port-forward", "j", "--address=here", "8080"]).await;
    say(&["logs", "j", "--role=learner"]).await;
    say(&[
        "logs",
        "j",
        "--since=5m",
        "--since-time=2026-01-31T12:00:00Z",
    ])
    .await;
    say(&["logs", "j", "--since-time=noon"]).await;
    say(&["logs", "j", "-f", "--role=all", "--max-log-requests=1"]).await;
    exit(&pods, "j-coordinator", 0).await;
    say(&["exec", "j", "--", "ls"]).await;
    insta::assert_snapshot!(plugin.lasting(&shown));
}
