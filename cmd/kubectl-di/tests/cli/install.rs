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

use crate::plugin::{Plugin, Said};

/// A server of its own: the orchestrator is there once in a cluster.
async fn empty() -> Plugin {
    let server = Box::leak(Box::new(Server::start().await));
    Plugin::at(Space::on(server).await)
}

macro_rules! said {
    ($name:literal, $plugin:expr, $args:expr) => {{
        let said = $plugin.run(&$args).await;
        insta::assert_snapshot!($name, $plugin.lasting_anywhere(&said));
        said
    }};
}

fn deployments(plugin: &Plugin) -> Api<Deployment> {
    Api::namespaced(plugin.space.client.clone(), "di-system")
}

/// Does to the deployment what a user by this name does.
async fn change(plugin: &Plugin, manager: &str, change: serde_json::Value) {
    let params = PatchParams {
        field_manager: Some(manager.to_owned()),
        ..PatchParams::default()
    };
    let change = Patch::Merge(change);
    let api = deployments(plugin);
    api.patch("di-webhook", &params, &change).await.unwrap();
}

/// What the deployment controller and the kubelets would do.
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

/// Once both configurations are there, serves the webhooks that they name.
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

/// Somebody leads, and somebody serves the endpoint.
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
        // Before 1.21.
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

/// Lets a namespace go that is being deleted, as its controller would.
async fn finalize(plugin: &Plugin, name: &str) {
    let api: Api<Namespace> = Api::all(plugin.space.client.clone());
    let namespace = eventually("the namespace is being deleted", async || {
        let found = api.get(name).await.map_err(|error| error.to_string())?;
        let going = found.metadata.deletion_timestamp.is_some();
        going.then_some(found).ok_or_else(String::new)
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

fn succeeded(said: &Said) {
    assert_eq!(said.code, Some(0), "{said}");
}

#[tokio::test]
async fn without_a_cluster_it_shows_what_would_be_applied() {
    let plugin = Plugin::new().await;
    let args = [
        "install",
        "--dry-run=client",
        "--kubeconfig=missing",
        "-o",
        "name",
    ];
    said!("shown", plugin, args);
    let args = [&args[..], &["--webhook-only"]].concat();
    said!("shown_webhook_only", plugin, args);
    let args = [
        "install",
        "--dry-run=client",
        "-o",
        "yaml",
        "--image=r/di:1",
    ];
    let said = plugin.run(&args).await;
    assert_eq!(said.stdout.matches("image: r/di:1\n").count(), 2, "{said}");
}

#[tokio::test]
async fn no_other_namespace_is_passed_over() {
    let plugin = Plugin::new().await;
    for verb in ["install", "upgrade", "uninstall"] {
        let said = plugin.run(&[verb, "--dry-run=client", "-n", "foo"]).await;
        assert_eq!(
            (said.code, said.stderr.as_str()),
            (
                Some(1),
                "error: the orchestrator lives in namespace di-system, never in foo; leave -n out\n"
            ),
            "{verb}"
        );
    }
    let said = plugin
        .run(&["install", "--dry-run=client", "-n", "di-system"])
        .await;
    assert_eq!(said.code, Some(0), "{said}");
    let said = plugin.run(&["install", "--as=nobody"]).await;
    assert_eq!(said.stderr.matches("forbidden").count(), 1, "{said}");
    assert!(said.stderr.ends_with("nothing was changed\n"), "{said}");
}

#[tokio::test]
async fn an_orchestrator_comes_and_goes() {
    let plugin = empty().await;
    said!("doctor_of_nothing", plugin, ["doctor"]);
    said!("version_of_nothing", plugin, ["version"]);
    said!("upgrade_of_nothing", plugin, ["upgrade"]);
    said!("uninstall_of_nothing", plugin, ["uninstall", "-y"]);

    said!("install_dry", plugin, ["install", "--dry-run=server"]);
    let said = plugin.run(&["get"]).await;
    assert!(
        said.stderr.contains("is DI Orchestrator installed"),
        "{said}"
    );

    let install = ["install", "--timeout=180s"];
    let (installed, (), webhooks) =
        tokio::join!(plugin.run(&install), roll_out(&plugin, 2), serve(&plugin));
    insta::assert_snapshot!("install", plugin.lasting_anywhere(&installed));
    said!("install_again", plugin, ["install"]);
    said!("version_installed", plugin, ["version", "-o", "yaml"]);
    said!("doctor_with_nobody_leading", plugin, ["doctor"]);
    pretend(&plugin).await;
    said!("doctor_of_all", plugin, ["doctor"]);

    held_up(&plugin).await;
    plugin.space.create(&Job::new("going-on", 0)).await;
    webhooks.stop().await;
    let said = plugin.run(&["doctor"]).await;
    let said = plugin.lasting_anywhere(&said);
    let port = Regex::new(r"\b(svc|127\.0\.0\.1):\d+").unwrap();
    insta::assert_snapshot!(
        "doctor_without_webhooks",
        port.replace_all(&said, "$1:PORT")
    );
    name_the_usual_port(&plugin).await;
    // Pods do not come, and it is told what it waits for.
    roll_out(&plugin, 1).await;
    said!("upgrade_in_vain", plugin, ["upgrade", "--timeout=1s"]);
    changed_by_others(&plugin).await;
    removed(&plugin).await;
}

/// Undoes what serving them in this process took.
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
    let mirror = Patch::Strategic(image("mirror/di-orchestrator:dev"));
    let api = deployments(plugin);
    api.patch("di-webhook", &params, &mirror).await.unwrap();
    let upgrade = ["upgrade", "--wait=false"];
    said!("upgrade_of_a_mirror", plugin, upgrade);
    let ours = [&upgrade[..], &["--image=di-orchestrator:dev"]].concat();
    said!("upgrade_in_conflict", plugin, ours);
    let forced = [&ours[..], &["--force-conflicts"]].concat();
    succeeded(&plugin.run(&forced).await);

    // Whoever applied the same manifests before is followed.
    let newer = json!({"metadata": {"labels": {"app.kubernetes.io/version": "9.0.0"}}});
    change(plugin, "kubectl-client-side-apply", newer).await;
    said!("upgrade_to_less", plugin, upgrade);
    let said = plugin.run(&["version"]).await;
    assert!(
        said.stderr.starts_with("WARNING: version difference"),
        "{said}"
    );
    let said = plugin
        .run(&[&upgrade[..], &["--allow-downgrade"]].concat())
        .await;
    succeeded(&said);
    let told = "deployment.apps/di-webhook: taken over from kubectl apply: .metadata.labels.app.kubernetes.io/version\n";
    assert_eq!(said.stderr, told);
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

    // What an administrator changed is not, whether by `kubectl scale` or in an overlay.
    for (manager, replicas) in [("kubectl", 3), ("kubectl-client-side-apply", 4)] {
        change(plugin, manager, json!({"spec": {"replicas": replicas}})).await;
        let said = plugin.run(&upgrade).await;
        assert_eq!(said.code, Some(1), "{said}");
        assert!(said.stderr.contains(".spec.replicas"), "{said}");
        let found = api.get("di-webhook").await.unwrap();
        assert_eq!(found.spec.replicas, Some(replicas), "{manager}");
    }
    succeeded(
        &plugin
            .run(&[&upgrade[..], &["--force-conflicts"]].concat())
            .await,
    );
}

/// A job that does not go keeps the orchestrator, which is told.
async fn held_up(plugin: &Plugin) {
    plugin.space.create(&Job::new("held", 0).finalizer()).await;
    said!(
        "uninstall_held_up",
        plugin,
        ["uninstall", "--delete-jobs", "-y", "--timeout=100ms"]
    );
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    let jobs = plugin.space.jobs();
    jobs.patch("held", &PatchParams::default(), &patch)
        .await
        .unwrap();
}

async fn removed(plugin: &Plugin) {
    said!("uninstall_with_jobs", plugin, ["uninstall", "-y"]);
    // An answer counts only from somebody who has seen the question.
    let said = plugin
        .run_with(&["uninstall", "--delete-jobs"], "y\n")
        .await;
    insta::assert_snapshot!("uninstall_unasked", plugin.lasting_anywhere(&said));
    let terminal = uninstall_asks(plugin, "--delete-jobs").await;
    terminal.press(&["n", "Enter"]);
    terminal.until_ended(1).await;
    let screen = terminal.screen();
    assert!(
        screen.contains("\nerror: nothing was deleted\n"),
        "{screen}"
    );
    assert!(!screen.contains(" deleted from "), "{screen}");
    said!(
        "uninstall_dry",
        plugin,
        ["uninstall", "--delete-jobs", "--dry-run=server"]
    );
    let said = plugin.run(&["get", "-o", "name"]).await;
    assert_eq!(
        said.stdout, "dijob.diengine.opendilab.org/going-on\n",
        "{said}"
    );

    let all = ["uninstall", "--delete-jobs", "--yes", "--timeout=180s"];
    let (said, ()) = tokio::join!(plugin.run(&all), finalize(plugin, "di-system"));
    insta::assert_snapshot!("uninstall", plugin.lasting_anywhere(&said));
    // The definitions are left.
    let said = plugin.run(&["get"]).await;
    succeeded(&said);
    said!(
        "uninstall_the_rest",
        plugin,
        ["uninstall", "--delete-crds", "-y"]
    );
    said!("uninstall_twice", plugin, ["uninstall", "-y"]);
}

#[tokio::test]
async fn admission_checks_go_without_what_another_operator_has() {
    let plugin = empty().await;
    let install = ["install", "--webhook-only", "--wait=false"];
    succeeded(&plugin.run(&install).await);
    another_operator(&plugin).await;
    create_unchecked(&plugin, "going-on").await;
    let said = plugin.run(&["uninstall", "--yes"]).await;
    succeeded(&said);
    assert!(
        said.stdout
            .contains("deployment.apps \"di-webhook\" deleted"),
        "{said}"
    );
    let kept = "namespace \"di-system\" kept: it has other Deployments: di-operator\n";
    assert!(said.stderr.contains(kept), "{said}");
    let services: Api<Service> = Api::namespaced(plugin.space.client.clone(), "di-system");
    services.get("di-server").await.unwrap();
    let api: Api<Namespace> = Api::all(plugin.space.client.clone());
    let namespace = api.get("di-system").await.unwrap();
    assert_eq!(namespace.metadata.deletion_timestamp, None);
    let jobs = plugin.space.jobs();
    jobs.get("going-on").await.unwrap();

    // The definitions go by what is there when they go, not by what was there before the question.
    let now = DeleteParams::default();
    jobs.delete("going-on", &now).await.unwrap();
    let terminal = uninstall_asks(&plugin, "--delete-crds").await;
    plugin.space.create(&Job::new("late", 0)).await;
    terminal.press(&["y", "Enter"]);
    terminal.until_ended(1).await;
    let screen = terminal.screen();
    assert!(
        screen.contains("\nerror: these DIJobs would go with their definition: "),
        "{screen}"
    );
    jobs.get("late").await.unwrap();
}

/// Uninstalls in a terminal, up to the question.
async fn uninstall_asks(plugin: &Plugin, what: &str) -> Terminal {
    let terminal = plugin.terminal(120, 60, &["uninstall", what]);
    terminal
        .until("it asks", |screen| screen.ends_with("Go on? [y/N]"))
        .await;
    terminal
}

/// One that lives where the Go original does, and has an endpoint of the same name.
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

/// Makes a job where the checks are configured and nobody serves them.
async fn create_unchecked(plugin: &Plugin, name: &str) {
    let client = || plugin.space.client.clone();
    let now = DeleteParams::default();
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client());
    mutating.delete("di-webhook", &now).await.unwrap();
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client());
    validating.delete("di-webhook", &now).await.unwrap();
    let job = serde_json::from_value(Job::new(name, 0).json().clone()).unwrap();
    let jobs = plugin.space.jobs();
    // The server hears of that a moment later.
    eventually("the job is let in", async || {
        let made = jobs.create(&PostParams::default(), &job).await;
        made.map_err(|error| error.to_string())
    })
    .await;
}
