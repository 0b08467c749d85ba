//! The gang scheduler of the orchestrator.

use di_apiserver_tests::{Server, Space};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;

use super::install::{delete_webhooks, doctor_until, serve_kind};
use crate::plugin::Plugin;

const ROLE: &str = "clusterrole.rbac.authorization.k8s.io/di-orchestrator-gang";

/// The gang scheduler in the environment of the manager.
async fn installed_scheduler(plugin: &Plugin) -> Option<String> {
    let api: Api<Deployment> = Api::namespaced(plugin.space.client.clone(), "di-system");
    let deployment = api.get("di-webhook").await.unwrap();
    let containers = deployment.spec.template.spec.unwrap().containers;
    let manager = containers.into_iter().find(|one| one.name == "manager");
    let mut variables = manager.unwrap().env.unwrap().into_iter();
    let variable = variables.find(|one| one.name == "GANG_SCHEDULER")?;
    variable.value
}

/// Runs a command that must succeed, and returns its output.
async fn run(plugin: &Plugin, args: &[&str]) -> String {
    let result = plugin.run(args).await;
    assert_eq!(result.code, Some(0), "{result}");
    result.stdout
}

/// Checks that the permissions were deleted, or not.
fn check_deletion(output: &str, is_deleted: bool) {
    for kind in ["clusterrolebinding", "clusterrole"] {
        let line = format!("{kind}.rbac.authorization.k8s.io \"di-orchestrator-gang\" deleted\n");
        assert_eq!(output.contains(&line), is_deleted, "{output}");
    }
}

#[tokio::test]
async fn gang_scheduler_is_installed_kept_changed_and_deleted() {
    let server = Box::leak(Box::new(Server::start().await));
    let plugin = Plugin::at(Space::on(server).await);
    let output = run(&plugin, &["install", "--wait=false"]).await;
    assert!(!output.contains("gang"), "{output}");
    assert_eq!(installed_scheduler(&plugin).await, None);
    delete_webhooks(&plugin).await;

    // The orchestrator is installed already.
    let install = ["install", "--gang-scheduler=volcano", "--wait=false"];
    let output = run(&plugin, &install).await;
    let expected = format!(
        "{ROLE} serverside-applied
clusterrolebinding.rbac.authorization.k8s.io/di-orchestrator-gang serverside-applied
deployment.apps/di-webhook serverside-applied
DI Orchestrator {} has the gang scheduler volcano\n",
        env!("CARGO_PKG_VERSION")
    );
    assert_eq!(output, expected);
    let scheduler = installed_scheduler(&plugin).await;
    assert_eq!(scheduler.as_deref(), Some("volcano"));
    let absent = "warning  gang          the scheduler is volcano, but the cluster does not serve PodGroup of scheduling.volcano.sh/v1beta1,";
    doctor_until(&plugin, absent).await;
    serve_kind(&plugin, "scheduling.volcano.sh", "v1beta1", "PodGroup").await;
    let usable = "ok       gang          the scheduler is volcano, its API is served and the orchestrator may use it\n";
    doctor_until(&plugin, usable).await;

    let output = run(&plugin, &["upgrade", "--wait=false"]).await;
    let applied = format!("{ROLE} serverside-applied\n");
    assert!(output.contains(&applied), "{output}");
    let scheduler = installed_scheduler(&plugin).await;
    assert_eq!(scheduler.as_deref(), Some("volcano"), "kept");
    for (verb, scheduler, is_deleted) in [
        ("upgrade", "none", true),
        ("install", "none", false),
        ("install", "volcano", false),
        // It needs no permissions.
        ("install", "yunikorn", true),
        ("upgrade", "kai", false),
    ] {
        let flag = format!("--gang-scheduler={scheduler}");
        let output = run(&plugin, &[verb, &flag, "--wait=false"]).await;
        check_deletion(&output, is_deleted);
        let found = installed_scheduler(&plugin).await;
        let expected = Some(scheduler).filter(|name| *name != "none");
        assert_eq!(found.as_deref(), expected, "{verb} {scheduler}");
    }

    let uninstall = ["uninstall", "--yes", "--wait=false"];
    let output = run(&plugin, &uninstall).await;
    check_deletion(&output, true);
}

#[tokio::test]
async fn gang_scheduler_flag_adds_permissions_and_a_variable() {
    let plugin = Plugin::new().await;
    let flag = "--gang-scheduler=coscheduling:mine";
    let names = ["install", flag, "--dry-run=client", "-o=name"];
    let output = run(&plugin, &names).await;
    assert!(output.lines().any(|line| line == ROLE), "{output}");
    let yaml = ["install", flag, "--dry-run=client", "-o=yaml"];
    let output = run(&plugin, &yaml).await;
    assert!(output.contains("value: coscheduling:mine\n"), "{output}");
    for rejected in [
        &["install", flag, "--webhook-only"][..],
        &["install", "--gang-scheduler=slurm"],
    ] {
        let result = plugin.run(rejected).await;
        assert_eq!(result.code, Some(2), "{result}");
    }
}
