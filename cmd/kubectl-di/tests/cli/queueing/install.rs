//! The permissions of the orchestrator to use Kueue.

use di_api::DIJob;
use di_apiserver_tests::{Job, Server, Space, eventually};
use k8s_openapi::{
    api::admissionregistration::v1::{
        MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde_json::json;

use crate::plugin::Plugin;

const ROLE: &str = "clusterrole.rbac.authorization.k8s.io/di-orchestrator-kueue";

/// Serves a kind without a schema.
pub async fn serve_kind(plugin: &Plugin, group: &str, version: &str, kind: &str) {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let plural = format!("{}s", kind.to_lowercase());
    let crd = json!({
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural},
            "versions": [{
                "name": version, "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema},
            }],
        },
    });
    let crds: Api<CustomResourceDefinition> = Api::all(plugin.space.client.clone());
    crds.create(
        &PostParams::default(),
        &serde_json::from_value(crd).unwrap(),
    )
    .await
    .unwrap();
}

/// Deletes the webhook configurations, so that the doctor does not wait for webhooks.
pub async fn delete_webhooks(plugin: &Plugin) {
    let client = || plugin.space.client.clone();
    let now = DeleteParams::default();
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client());
    mutating.delete("di-webhook", &now).await.unwrap();
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client());
    validating.delete("di-webhook", &now).await.unwrap();
}

/// Repeats the doctor until it prints a line: discovery and the RBAC cache have delays.
pub async fn doctor_until(plugin: &Plugin, line: &str) {
    eventually("the doctor reports it", async || {
        let result = plugin.run(&["doctor"]).await;
        if result.stdout.contains(line) {
            Ok(())
        } else {
            Err(result.to_string())
        }
    })
    .await;
}

/// Creates the job `j` in a queue. The API server calls deleted webhooks for a moment.
async fn create_job_in_queue(plugin: &Plugin) {
    let labels = json!({"labels": {"kueue.x-k8s.io/queue-name": "team-a"}});
    let job: DIJob = Job::new("j", 0).metadata(labels).build();
    let (jobs, params) = (plugin.space.jobs(), PostParams::default());
    eventually("no webhook is called", async || {
        let created = jobs.create(&params, &job).await;
        created.map_err(|error| error.to_string())
    })
    .await;
}

#[tokio::test]
async fn kueue_permissions_are_installed_kept_and_deleted() {
    let server = Box::leak(Box::new(Server::start().await));
    let plugin = Plugin::at(Space::on(server).await);
    let result = plugin.run(&["install", "--wait=false"]).await;
    assert_eq!(result.code, Some(0), "{result}");
    assert!(!result.stdout.contains("kueue"), "{result}");
    delete_webhooks(&plugin).await;
    let doctor = plugin.run(&["doctor"]).await;
    assert!(!doctor.stdout.contains("kueue"), "{doctor}");
    create_job_in_queue(&plugin).await;
    let waits = format!(
        "warning  kueue         Kueue is not served, and jobs with the label of a queue do not start without it: {}/j\n",
        plugin.space.namespace
    );
    doctor_until(&plugin, &waits).await;
    let now = DeleteParams::default();
    plugin.space.jobs().delete("j", &now).await.unwrap();
    serve_kind(&plugin, "kueue.x-k8s.io", "v1beta2", "Workload").await;
    let refused = "warning  kueue         Kueue v1beta2 is served, but the orchestrator may not get/list/watch/create/patch/delete workloads, patch workloads/status, get resourceflavors, get workloadpriorityclasses, get/list priorityclasses\n";
    doctor_until(&plugin, refused).await;

    // The orchestrator is installed already, so only the permissions are applied.
    let result = plugin.run(&["install", "--kueue"]).await;
    insta::assert_snapshot!("install_kueue", plugin.normalize_versions(&result));
    let allowed =
        "ok       kueue         Kueue v1beta2 is served and the orchestrator may use it\n";
    doctor_until(&plugin, allowed).await;

    let result = plugin.run(&["upgrade", "--wait=false"]).await;
    assert_eq!(result.code, Some(0), "{result}");
    let applied = format!("{ROLE} serverside-applied\n");
    assert!(result.stdout.contains(&applied), "{result}");

    let uninstall = ["uninstall", "--yes", "--wait=false"];
    let result = plugin.run(&uninstall).await;
    assert_eq!(result.code, Some(0), "{result}");
    for kind in ["clusterrole", "clusterrolebinding"] {
        let deleted =
            format!("{kind}.rbac.authorization.k8s.io \"di-orchestrator-kueue\" deleted\n");
        assert!(result.stdout.contains(&deleted), "{result}");
    }
}

#[tokio::test]
async fn kueue_flag_adds_the_permissions_to_a_new_installation() {
    let plugin = Plugin::new().await;
    let install = ["install", "--kueue", "--dry-run=client", "-o=name"];
    let result = plugin.run(&install).await;
    assert_eq!(result.code, Some(0), "{result}");
    let lines: Vec<_> = result.stdout.lines().collect();
    let at = |name: &str| lines.iter().position(|line| *line == name);
    assert!(at(ROLE).is_some(), "{result}");
    assert!(at(ROLE) < at("deployment.apps/di-webhook"), "{result}");
    // The webhooks do not use Kueue.
    let result = plugin.run(&["install", "--kueue", "--webhook-only"]).await;
    assert_eq!(result.code, Some(2), "{result}");
}
