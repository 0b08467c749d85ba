//! Kueue is installed after the orchestrator, and the permission to use it is granted last. With
//! `DI_REAL_KUEUE`, this suite runs before the other ones: it installs Kueue itself.

use di_api::Phase;
use di_e2e::{Namespace, job, wait_for_phase};
use di_queue_stand_in::uninstall;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::{Api, Client, api::DeleteParams};

use crate::{
    lifecycle::end_pod,
    queueing::{TestQueue, add_queue_label, install_kueue, kueue_manifest, wait_until_queued},
    restart::kill_orchestrator,
};

/// Removes the API of the stand-in, and the permission to use it.
async fn remove_kueue(client: &Client) {
    if kueue_manifest().is_none() {
        uninstall(client).await;
    }
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    let now = DeleteParams::default();
    match bindings.delete("di-orchestrator-kueue", &now).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        other => drop(other.unwrap()),
    }
}

/// Takes two minutes, since the orchestrator looks for Kueue once a minute.
#[tokio::test]
async fn job_waits_until_kueue_is_installed_and_allowed() {
    Namespace::with("kueue-later", |ns| async move {
        remove_kueue(&ns.client).await;
        kill_orchestrator(&ns).await;
        let mut early = job("early", &["hold"]);
        add_queue_label(&mut early);
        ns.submit(&early).await;
        let message = wait_until_queued(&ns, "early", "QueueNotServed").await;
        assert!(message.contains("install Kueue"), "{message}");

        install_kueue(&ns.client).await;
        let message = wait_until_queued(&ns, "early", "QueueForbidden").await;
        let command = "run: kubectl di install --kueue,";
        assert!(message.contains(command), "{message}");

        // Runs this command.
        let queue = TestQueue::create(&ns, "10m", &[]).await;
        wait_for_phase(&ns, "early", Phase::Running).await;
        end_pod(&ns, "early-coordinator", "0").await;
        wait_for_phase(&ns, "early", Phase::Succeeded).await;
        queue.remove().await;
    })
    .await;
}
