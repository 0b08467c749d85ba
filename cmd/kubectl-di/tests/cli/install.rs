use di_apiserver_tests::{Job, Server, Space, Terminal, Webhooks, eventually};
use jiff::Timestamp;
use k8s_openapi::api::{
    admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
    apps::v1::Deployment,
    coordination::v1::Lease,
    core::v1::{Endpoints, Namespace, Service},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use regex::Regex;
use serde_json::json;

use crate::plugin::{CallResult, Plugin};

/// Starts a separate API server, because a cluster can have only one orchestrator.
async fn empty() -> Plugin {
    let server = Box::leak(Box::new(Server::start().await));
    Plugin::at(Space::on(server).await)
}

macro_rules! assert_call {
    ($name:literal, $plugin:expr, $args:expr) => {{
        let result = $plugin.run(&$args).await;
        insta::assert_snapshot!($name, $plugin.normalize_versions(&result));
        result
    }};
}

fn deployments(plugin: &Plugin) -> Api<Deployment> {
    Api::namespaced(plugin.space.client.clone(), "di-system")
}

/// Patches the deployment as the field manager `manager`.
async fn change(plugin: &Plugin, manager: &str, change: serde_json::Value) {
    let params = PatchParams {
        field_manager: Some(manager.to_owned()),
        ..PatchParams::default()
    };
    let change = Patch::Merge(change);
    let api = deployments(plugin);
    api.patch("di-webhook", &params, &change).await.unwrap();
}

/// Sets the status of the deployment in place of its controller.
async fn roll_out(plugin: &Plugin, available: i32) {
    let api = deployments(plugin);
    let deployment = eventually("the deployment is there", async || {
        api.get("di-webhook")
            .await
            .map_err(|error| error.to_string())
    })
    .await;
    let status = json!({"status": {
        "observedGeneration": deployment.metadata.generation.unwrap() + 10,
        "replicas": 2, "updatedReplicas": 2, "readyReplicas": available, "availableReplicas": available,
    }});
    let params = PatchParams::default();
    api.patch_status("di-webhook", &params, &Patch::Merge(status))
        .await
        .unwrap();
}

/// Serves the webhooks when both configurations exist.
async fn serve(plugin: &Plugin) -> Webhooks {
    let api: Api<ValidatingWebhookConfiguration> = Api::all(plugin.space.client.clone());
    eventually("the webhooks are configured", async || {
        api.get("di-webhook")
            .await
            .map_err(|error| error.to_string())
    })
    .await;
    Webhooks::of_installed(&plugin.space).await
}

/// Creates a Lease with a holder and an endpoint, so that the doctor finds a leader and a server.
async fn pretend(plugin: &Plugin) {
    let new = PostParams::default();
    let client = || plugin.space.client.clone();
    let lease = json!({
        "metadata": {"name": "di-orchestrator"},
        "spec": {"holderIdentity": "di-webhook-x", "leaseDurationSeconds": 3600, "renewTime": format!("{:.6}", Timestamp::now())},
    });
    let leases: Api<Lease> = Api::namespaced(client(), "di-system");
    leases
        .create(&new, &serde_json::from_value(lease).unwrap())
        .await
        .unwrap();
    let slice = json!({
        "metadata": {"name": "di-server-x", "labels": {"kubernetes.io/service-name": "di-server"}},
        "addressType": "IPv4", "endpoints": [{"addresses": ["10.1.1.1"], "conditions": {"ready": true}}],
    });
    let slices: Api<EndpointSlice> = Api::namespaced(client(), "di-system");
    if slices
        .create(&new, &serde_json::from_value(slice).unwrap())
        .await
        .is_err()
    {
        // Kubernetes before 1.21 has no EndpointSlice v1.
        let endpoints = json!({
            "metadata": {"name": "di-server"},
            "subsets": [{"addresses": [{"ip": "10.1.1.1"}], "ports": [{"port": 8080}]}],
        });
        let api: Api<Endpoints> = Api::namespaced(client(), "di-system");
        api.create(&new, &serde_json::from_value(endpoints).unwrap())
            .await
            .unwrap();
    }
}

/// Removes the finalizers of a terminating namespace in place of its controller.
async fn finalize(plugin: &Plugin, name: &str) {
    let api: Api<Namespace> = Api::all(plugin.space.client.clone());
    let namespace = eventually("the namespace is being deleted", async || {
        let found = api.get(name).await.map_err(|error| error.to_string())?;
        let terminating = found.metadata.deletion_timestamp.is_some();
        terminating.then_some(found).ok_or_else(String::new)
    })
    .await;
    let mut namespace = serde_json::to_value(namespace).unwrap();
    namespace["spec"]["finalizers"] = json!([]);
    let request = http::Request::put(format!("/api/v1/namespaces/{name}/finalize"))
        .header("content-type", "application/json")
        .body(namespace.to_string().into_bytes())
        .unwrap();
    plugin.space.client.request_text(request).await.unwrap();
}

fn succeeded(result: &CallResult) {
    assert_eq!(result.code, Some(0), "{result}");
}

#[tokio::test]
async fn install_client_dry_run_needs_no_cluster() {
    let plugin = Plugin::new().await;
    let args = [
        "install",
        "--dry-run=client",
        "--kubeconfig=missing",
        "-o",
        "name",
    ];
    assert_call!("shown", plugin, args);
    let args = [&args[..], &["--webhook-only"]].concat();
    assert_call!("shown_webhook_only", plugin, args);
    let args = [
        "install",
        "--dry-run=client",
        "-o",
        "yaml",
        "--image=r/di:1",
    ];
    let result = plugin.run(&args).await;
    assert_eq!(
        result.stdout.matches("image: r/di:1\n").count(),
        2,
        "{result}"
    );
}

#[tokio::test]
async fn install_rejects_other_namespaces() {
    let plugin = Plugin::new().await;
    for verb in ["install", "upgrade", "uninstall"] {
        let result = plugin.run(&[verb, "--dry-run=client", "-n", "foo"]).await;
        assert_eq!(
            (result.code, result.stderr.as_str()),
            (
                Some(1),
                "error: the orchestrator must be in namespace di-system, not in foo; omit -n\n"
            ),
            "{verb}"
        );
    }
    let result = plugin
        .run(&["install", "--dry-run=client", "-n", "di-system"])
        .await;
    assert_eq!(result.code, Some(0), "{result}");
    let result = plugin.run(&["install", "--as=nobody"]).await;
    assert_eq!(result.stderr.matches("forbidden").count(), 1, "{result}");
    assert!(result.stderr.ends_with("nothing was changed\n"), "{result}");
}

#[tokio::test]
async fn orchestrator_is_installed_upgraded_and_uninstalled() {
    let plugin = empty().await;
    assert_call!("doctor_of_nothing", plugin, ["doctor"]);
    assert_call!("version_of_nothing", plugin, ["version"]);
    assert_call!("upgrade_of_nothing", plugin, ["upgrade"]);
    assert_call!("uninstall_of_nothing", plugin, ["uninstall", "-y"]);

    assert_call!("install_dry", plugin, ["install", "--dry-run=server"]);
    let result = plugin.run(&["get"]).await;
    assert!(
        result.stderr.contains("is DI Orchestrator installed"),
        "{result}"
    );

    let install = ["install", "--timeout=180s"];
    let (installed, (), webhooks) =
        tokio::join!(plugin.run(&install), roll_out(&plugin, 2), serve(&plugin));
    insta::assert_snapshot!("install", plugin.normalize_versions(&installed));
    assert_call!("install_again", plugin, ["install"]);
    assert_call!("version_installed", plugin, ["version", "-o", "yaml"]);
    assert_call!("doctor_without_a_leader", plugin, ["doctor"]);
    pretend(&plugin).await;
    assert_call!("doctor_of_all", plugin, ["doctor"]);

    job_blocks_uninstall(&plugin).await;
    plugin.space.create(&Job::new("running", 0)).await;
    webhooks.stop().await;
    let result = plugin.run(&["doctor"]).await;
    let result = plugin.normalize_versions(&result);
    let port = Regex::new(r"\b(svc|127\.0\.0\.1):\d+").unwrap();
    insta::assert_snapshot!(
        "doctor_without_webhooks",
        port.replace_all(&result, "$1:PORT")
    );
    name_the_usual_port(&plugin).await;
    // The pods do not become ready, so the upgrade times out.
    roll_out(&plugin, 1).await;
    assert_call!("upgrade_times_out", plugin, ["upgrade", "--timeout=1s"]);
    managed_by_helm(&plugin).await;
    changed_by_others(&plugin).await;
    removed(&plugin).await;
}

/// Restores the port of the webhook configurations.
async fn name_the_usual_port(plugin: &Plugin) {
    let port =
        json!([{"op": "replace", "path": "/webhooks/0/clientConfig/service/port", "value": 443}]);
    let port: Patch<()> = Patch::Json(serde_json::from_value(port).unwrap());
    let params = PatchParams::default();
    let client = || plugin.space.client.clone();
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client());
    mutating.patch("di-webhook", &params, &port).await.unwrap();
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client());
    validating
        .patch("di-webhook", &params, &port)
        .await
        .unwrap();
}

/// The plugin does not change an installation of Helm, but names the commands that do.
async fn managed_by_helm(plugin: &Plugin) {
    let metadata = |manager: Option<&str>, release: Option<&str>| {
        json!({"metadata": {
            "labels": {"app.kubernetes.io/managed-by": manager},
            "annotations": {
                "meta.helm.sh/release-name": release,
                "meta.helm.sh/release-namespace": release.map(|_| "di-system"),
            },
        }})
    };
    change(plugin, "helm", metadata(Some("Helm"), Some("rl"))).await;
    let calls: [&[&str]; 5] = [
        &["install", "--kueue"],
        &["upgrade", "--image=mirror/di-orchestrator:v1"],
        &["upgrade", "--gang-scheduler=volcano", "--dry-run=client"],
        &["uninstall", "--dry-run=client"],
        &["uninstall", "--delete-jobs", "--yes"],
    ];
    let session = plugin.session(&calls).await;
    insta::assert_snapshot!("managed_by_helm", plugin.normalize_versions(&session));
    change(plugin, "helm", metadata(None, None)).await;
}

async fn changed_by_others(plugin: &Plugin) {
    let image = |image| {
        json!({"spec": {"template": {"spec": {"containers": [
            {"name": "manager", "image": image}, {"name": "replicas", "image": image},
        ]}}}})
    };
    let params = PatchParams {
        field_manager: Some("kubectl-set".to_owned()),
        ..PatchParams::default()
    };
    let mirror = format!("mirror/di-orchestrator:v{}", di_client::VERSION);
    let mirror = Patch::Strategic(image(mirror.as_str()));
    let api = deployments(plugin);
    api.patch("di-webhook", &params, &mirror).await.unwrap();
    let upgrade = ["upgrade", "--wait=false"];
    assert_call!("upgrade_of_a_mirror", plugin, upgrade);
    let image = format!("--image={}", di_client::IMAGE);
    let ours = [&upgrade[..], &[image.as_str()]].concat();
    assert_call!("upgrade_in_conflict", plugin, ours);
    let forced = [&ours[..], &["--force-conflicts"]].concat();
    succeeded(&plugin.run(&forced).await);

    // Fields owned by `kubectl apply` are taken over.
    let newer = json!({"metadata": {"labels": {"app.kubernetes.io/version": "9.0.0"}}});
    change(plugin, "kubectl-client-side-apply", newer).await;
    assert_call!("upgrade_to_older_version", plugin, upgrade);
    let result = plugin.run(&["version"]).await;
    assert!(
        result.stderr.starts_with("WARNING: version difference"),
        "{result}"
    );
    let result = plugin
        .run(&[&upgrade[..], &["--allow-downgrade"]].concat())
        .await;
    succeeded(&result);
    let message = "deployment.apps/di-webhook: taken over from kubectl apply: .metadata.labels.app.kubernetes.io/version\n";
    assert_eq!(result.stderr, message);
    let labels = api
        .get("di-webhook")
        .await
        .unwrap()
        .metadata
        .labels
        .unwrap();
    assert_eq!(
        labels["app.kubernetes.io/version"],
        env!("CARGO_PKG_VERSION")
    );

    // Fields that an administrator changed are conflicts, by `kubectl scale` or by an overlay.
    for (manager, replicas) in [("kubectl", 3), ("kubectl-client-side-apply", 4)] {
        change(plugin, manager, json!({"spec": {"replicas": replicas}})).await;
        let result = plugin.run(&upgrade).await;
        assert_eq!(result.code, Some(1), "{result}");
        assert!(result.stderr.contains(".spec.replicas"), "{result}");
        let found = api.get("di-webhook").await.unwrap();
        assert_eq!(found.spec.replicas, Some(replicas), "{manager}");
    }
    succeeded(
        &plugin
            .run(&[&upgrade[..], &["--force-conflicts"]].concat())
            .await,
    );
}

/// A job with a finalizer blocks the uninstall until the timeout.
async fn job_blocks_uninstall(plugin: &Plugin) {
    plugin
        .space
        .create(&Job::new("blocked", 0).finalizer())
        .await;
    assert_call!(
        "uninstall_times_out",
        plugin,
        ["uninstall", "--delete-jobs", "-y", "--timeout=100ms"]
    );
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    let jobs = plugin.space.jobs();
    jobs.patch("blocked", &PatchParams::default(), &patch)
        .await
        .unwrap();
}

async fn removed(plugin: &Plugin) {
    assert_call!("uninstall_with_jobs", plugin, ["uninstall", "-y"]);
    // A confirmation is accepted only from a terminal.
    let result = plugin
        .run_with(&["uninstall", "--delete-jobs"], "y\n")
        .await;
    insta::assert_snapshot!(
        "uninstall_without_a_terminal",
        plugin.normalize_versions(&result)
    );
    let terminal = start_uninstall(plugin, "--delete-jobs").await;
    terminal.press(&["n", "Enter"]);
    terminal.until_ended(1).await;
    let screen = terminal.screen();
    assert!(
        screen.contains("\nerror: nothing was deleted\n"),
        "{screen}"
    );
    assert!(!screen.contains(" deleted from "), "{screen}");
    assert_call!(
        "uninstall_dry",
        plugin,
        ["uninstall", "--delete-jobs", "--dry-run=server"]
    );
    let result = plugin.run(&["get", "-o", "name"]).await;
    assert_eq!(
        result.stdout, "dijob.diengine.opendilab.org/running\n",
        "{result}"
    );

    let all = ["uninstall", "--delete-jobs", "--yes", "--timeout=180s"];
    let (result, ()) = tokio::join!(plugin.run(&all), finalize(plugin, "di-system"));
    insta::assert_snapshot!("uninstall", plugin.normalize_versions(&result));
    // The definitions are kept.
    let result = plugin.run(&["get"]).await;
    succeeded(&result);
    assert_call!(
        "uninstall_the_rest",
        plugin,
        ["uninstall", "--delete-crds", "-y"]
    );
    assert_call!("uninstall_twice", plugin, ["uninstall", "-y"]);
}

#[tokio::test]
async fn webhook_only_uninstall_keeps_the_other_operator() {
    let plugin = empty().await;
    let install = ["install", "--webhook-only", "--wait=false"];
    succeeded(&plugin.run(&install).await);
    another_operator(&plugin).await;
    create_unchecked(&plugin, "running").await;
    let result = plugin.run(&["uninstall", "--yes"]).await;
    succeeded(&result);
    assert!(
        result
            .stdout
            .contains("deployment.apps \"di-webhook\" deleted"),
        "{result}"
    );
    let kept = "namespace \"di-system\" kept: it has other Deployments: di-operator\n";
    assert!(result.stderr.contains(kept), "{result}");
    let services: Api<Service> = Api::namespaced(plugin.space.client.clone(), "di-system");
    services.get("di-server").await.unwrap();
    let api: Api<Namespace> = Api::all(plugin.space.client.clone());
    let namespace = api.get("di-system").await.unwrap();
    assert_eq!(namespace.metadata.deletion_timestamp, None);
    let jobs = plugin.space.jobs();
    jobs.get("running").await.unwrap();

    // Jobs created after the question also block the deletion of the definitions.
    let now = DeleteParams::default();
    jobs.delete("running", &now).await.unwrap();
    let terminal = start_uninstall(&plugin, "--delete-crds").await;
    plugin.space.create(&Job::new("late", 0)).await;
    terminal.press(&["y", "Enter"]);
    terminal.until_ended(1).await;
    let screen = terminal.screen();
    assert!(
        screen.contains("\nerror: these DIJobs would be deleted with their definition: "),
        "{screen}"
    );
    jobs.get("late").await.unwrap();
}

/// Runs uninstall in a terminal until it asks for confirmation.
async fn start_uninstall(plugin: &Plugin, flag: &str) -> Terminal {
    let terminal = plugin.terminal(120, 60, &["uninstall", flag]);
    terminal
        .until("it asks", |screen| {
            screen.ends_with("Do you want to continue? (y/N):")
        })
        .await;
    terminal
}

/// Creates the Deployment and the Service of the Go operator in the same namespace.
async fn another_operator(plugin: &Plugin) {
    let new = PostParams::default();
    let labels = json!({"app": "di-operator"});
    let deployment = json!({
        "metadata": {"name": "di-operator"},
        "spec": {"selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "manager", "image": "none"}]},
        }},
    });
    deployments(plugin)
        .create(&new, &serde_json::from_value(deployment).unwrap())
        .await
        .unwrap();
    let service = json!({
        "metadata": {"name": "di-server"},
        "spec": {"selector": labels, "ports": [{"port": 8080}]},
    });
    let services: Api<Service> = Api::namespaced(plugin.space.client.clone(), "di-system");
    services
        .create(&new, &serde_json::from_value(service).unwrap())
        .await
        .unwrap();
}

/// Creates a job after deleting the webhook configurations, which no server answers.
async fn create_unchecked(plugin: &Plugin, name: &str) {
    let client = || plugin.space.client.clone();
    let now = DeleteParams::default();
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client());
    mutating.delete("di-webhook", &now).await.unwrap();
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client());
    validating.delete("di-webhook", &now).await.unwrap();
    let job = Job::new(name, 0).build();
    let jobs = plugin.space.jobs();
    // The API server notices the deletion of the configurations with a delay.
    eventually("the job is let in", async || {
        let made = jobs.create(&PostParams::default(), &job).await;
        made.map_err(|error| error.to_string())
    })
    .await;
}
