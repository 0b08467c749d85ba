//! Clusters without Kueue's API, with an older version of it, and without the rights for it.

use di_apiserver_tests::{
    Kubelet, Kueue, Server, Space, grant_kueue_rights, install_kueue, queued_job,
    queued_job_with_priority,
};
use tokio::sync::OnceCell;

use super::{base_workload, wait_until_queued, waiting_reason};

/// The oldest version of Kueue's API that managers use.
const OLD_VERSION: &str = "v1beta1";

/// A server for this test only, since the others need Kueue's API.
async fn server_without_kueue() -> &'static Server {
    static SERVER: OnceCell<Server> = OnceCell::const_new();
    SERVER.get_or_init(Server::installed).await
}

async fn space_on(server: &'static Server) -> Space {
    let space = Space::on(server).await;
    space.without_random_faults("a failed discovery is repeated after a minute")
}

/// Takes more than a minute, since managers look for Kueue once a minute. One manager starts
/// without the API, and another one with the API and without the rights.
#[tokio::test]
async fn jobs_start_once_kueue_is_installed_and_allowed() {
    let server = server_without_kueue().await;
    let space = space_on(server).await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    space.create(&queued_job("early", 1)).await;
    let status = wait_until_queued(&space, "early", "QueueNotServed").await;
    let (_, message) = waiting_reason(&status).unwrap();
    assert!(message.contains("queue team"), "{message}");
    assert!(message.contains("install Kueue"), "{message}");

    install_kueue(server, OLD_VERSION).await;
    let kueue = Kueue::start_on_own_server(&space, OLD_VERSION, 2).await;
    let other_space = space_on(server).await;
    let other_kueue = Kueue::start_on_own_server(&other_space, OLD_VERSION, 2).await;
    let _other_kubelet = Kubelet::running(&other_space);
    let class = other_kueue.create_priority_class("high", 10).await;
    let other_manager = other_space.manager("other");
    let late = queued_job_with_priority("late", 1, &class);
    let late = other_space.create(&late).await;
    let status = wait_until_queued(&other_space, "late", "QueueForbidden").await;
    let (_, message) = waiting_reason(&status).unwrap();
    assert!(
        message.contains("run: kubectl di install --kueue"),
        "{message}"
    );
    assert!(other_kueue.workloads_of("late").await.is_empty());

    grant_kueue_rights(server, OLD_VERSION).await;
    space.until_settled("early").await;
    other_space.until_settled("late").await;
    let base = base_workload(&late);
    let workload = other_kueue.workloads().get(&base).await.unwrap();
    let spec = &workload.data["spec"];
    assert_eq!(
        spec["priorityClassSource"],
        "kueue.x-k8s.io/workloadpriorityclass"
    );
    assert_eq!(spec["priorityClassName"], class);
    assert_eq!(spec["priority"], 10);
    assert!(spec["priorityClassRef"].is_null(), "a field of v1beta2");
    for manager in [manager, other_manager] {
        manager.stop().await;
    }
    for kueue in [kueue, other_kueue] {
        kueue.check();
    }
}
