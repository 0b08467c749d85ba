//! Clusters without the API of PodGroups, and without the permissions for it.

use std::time::Instant;

use di_api::Phase;
use di_apiserver_tests::{
    DISCOVERY_INTERVAL, Gangs, Kubelet, Manager, Proxy, RecordedRequest, Space, eventually, exit,
    gang_job, gang_settings, grant_gang_permissions, install_gangs, with_short_discovery,
};
use di_controller::Settings;

use super::{has_gang, until_problem};
use crate::queueing::{space_on, start_server, until_replaced};

fn settings() -> Settings {
    with_short_discovery(gang_settings())
}

fn is_about_groups(request: &RecordedRequest) -> bool {
    request.path().contains("/podgroups")
}

/// One manager starts without the API, and another one with the API and without the permissions.
#[tokio::test]
async fn jobs_get_gangs_once_they_are_served_and_allowed() {
    let server = start_server().await;
    let space = space_on(server).await;
    let _kubelet = Kubelet::running(&space);
    let started = Instant::now();
    let proxy = Proxy::start(server.client_of_manager("manager", &space.namespace));
    let manager = Manager::start_with(proxy.client(), settings());
    space.create(&gang_job(&space, "early", 1)).await;
    let status = space.until_settled("early").await;
    assert_eq!(status.scheduling, None);
    assert_eq!(status.reason.as_deref(), Some("NoGangScheduler"));
    space.until_event("early", "NoGangScheduler").await;
    assert!(!proxy.requests().iter().any(is_about_groups));

    install_gangs(server).await;
    let other_space = space_on(server).await;
    let other_gangs = Gangs::start_on_own_server(&other_space, 2).await;
    let _other_kubelet = Kubelet::running(&other_space);
    let other_manager = other_space.manager_with("other", settings());
    other_space.create(&gang_job(&other_space, "late", 1)).await;
    let message = until_problem(&other_space, "late", "GangForbidden").await;
    let advice = "run: kubectl di install --gang-scheduler=coscheduling:di-test-gang";
    assert!(message.ends_with(advice), "{message}");
    assert!(other_space.pods_of("late").await.is_empty());
    assert!(other_gangs.groups_of("late").await.is_empty());

    grant_gang_permissions(server).await;
    let status = other_space.until_settled("late").await;
    assert!(has_gang(&status, 2, true), "{:?}", status.scheduling);
    eventually("the first manager watches PodGroups", async || {
        let requests = proxy.requests();
        let mut watches = requests.iter().filter(|request| request.is_watch());
        let is_watched = watches.any(is_about_groups);
        is_watched.then_some(()).ok_or_else(String::new)
    })
    .await;
    let gangs = Gangs::start_on_own_server(&space, 2).await;
    space.create(&gang_job(&space, "next", 1)).await;
    let status = space.until_settled("next").await;
    assert!(has_gang(&status, 2, true), "{:?}", status.scheduling);
    assert_eq!(gangs.groups_of("next").await.len(), 1);

    // Once per interval for Kueue, and once for the gang scheduler.
    let requests = proxy.requests();
    let discoveries = requests.iter().filter(|request| request.path() == "/apis");
    let intervals = started.elapsed().as_secs() / DISCOVERY_INTERVAL.as_secs();
    let limit = usize::try_from(2 * (intervals + 1)).unwrap();
    assert!(discoveries.count() <= limit, "in {intervals} intervals");
    for manager in [manager, other_manager] {
        manager.stop().await;
    }
}

#[tokio::test]
async fn placed_gang_continues_while_permissions_are_revoked() {
    let space = Space::new().await;
    let gangs = Gangs::start(&space, 4).await;
    let _kubelet = Kubelet::running(&space);
    let proxy = Proxy::start(space.server.client_of_manager("manager", &space.namespace));
    let manager = Manager::start_with(proxy.client(), settings());
    space.create(&gang_job(&space, "job", 1)).await;
    let lost = space.until_settled("job").await.plan.remove(0).name;

    proxy.forbid("podgroups");
    space.create(&gang_job(&space, "next", 1)).await;
    until_problem(&space, "next", "GangForbidden").await;
    assert!(space.pods_of("next").await.is_empty());
    exit(&space.pods(), &lost, 137).await;
    let status = until_replaced(&space, "job", &lost).await;
    assert_eq!((status.phase, status.restarts), (Some(Phase::Running), 0));
    let gang = status.scheduling.unwrap();
    assert!(gang.placed, "{gang:?}");

    proxy.serve_all();
    let status = space.until_settled("next").await;
    assert!(has_gang(&status, 2, true), "{:?}", status.scheduling);
    assert_eq!(gangs.groups_of("job").await.len(), 1);
    manager.stop().await;
}
