//! Metrics of the manager and the endpoint.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Mutex,
};

use di_api::Phase;
use di_apiserver_tests::{
    Endpoint, Job, Kubelet, Manager, Proxy, ProxyAction, Space, eventually, exit, forbid_pods,
};
use di_replicas::Settings;
use kube::api::DeleteParams;

const WATCHED: [&str; 5] = ["dijobs", "pods", "services", "nodes", "aggregatorconfigs"];

/// Starts a proxy that rejects the first list of each watch.
fn failing_at_first(space: &Space, agent: &str) -> Proxy {
    let proxy = Proxy::start(space.server.client_of_manager(agent, &space.namespace));
    let refused = Mutex::new(BTreeSet::new());
    proxy.set_rule(move |request| {
        let path = request.target.split('?').next().unwrap();
        let resource = path.rsplit('/').next().unwrap();
        let lists = request.write == 0 && WATCHED.contains(&resource);
        if lists && refused.lock().unwrap().insert(resource.to_owned()) {
            ProxyAction::Rejected(500)
        } else {
            ProxyAction::Served
        }
    });
    proxy
}

/// Returns the value of each series.
fn series(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let series = lines.map(|line| line.rsplit_once(' ').unwrap());
    series
        .map(|(series, value)| (series.to_owned(), value.parse().unwrap()))
        .collect()
}

async fn until_counted(manager: &Manager, name: &str, wanted: f64) {
    eventually(name, async || {
        let all = series(&manager.metrics());
        match all.get(name) {
            Some(count) if (count - wanted).abs() < 0.5 => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

#[tokio::test]
async fn controller_metrics_count_job_changes() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let quota = forbid_pods(&space).await;
    let proxy = failing_at_first(&space, "manager");
    let manager = Manager::start(proxy.client());
    let before = series(&manager.metrics());
    space.create(&Job::new("job", 1)).await;
    let refused = r#"di_controller_jobs{phase="None",reason="QuotaExceeded"}"#;
    until_counted(&manager, refused, 1.0).await;
    quota
        .delete("none", &DeleteParams::default())
        .await
        .unwrap();
    space.until_settled("job").await;
    let running = r#"di_controller_jobs{phase="Running",reason=""}"#;
    until_counted(&manager, running, 1.0).await;
    exit(&space.pods(), "job-coordinator", 0).await;
    space.until_phase("job", Phase::Succeeded).await;
    let ended = r#"di_controller_jobs{phase="Succeeded",reason="CoordinatorSucceeded"}"#;
    until_counted(&manager, ended, 1.0).await;
    space.until_event("job", "SuccessfulDelete").await;

    let after = series(&manager.metrics());
    assert!(!after.contains_key(refused), "{after:?}");
    let grew = |name: &str| {
        let (before, after) = (before.get(name), after.get(name));
        assert!(before.is_some() && after > before, "{name}: {after:?}");
    };
    for reason in [
        "CoordinatorRunning",
        "CoordinatorSucceeded",
        "QuotaExceeded",
    ] {
        grew(&format!(
            "di_controller_events_total{{reason=\"{reason}\"}}"
        ));
    }
    for resource in WATCHED {
        grew(&format!("di_watch_errors_total{{resource=\"{resource}\"}}"));
    }
    for name in [
        r#"di_controller_reconcile_failures_total{reason="QuotaExceeded"}"#,
        r#"di_controller_writes_total{verb="create",resource="pods"}"#,
        r#"di_controller_writes_total{verb="patch",resource="dijobs/status"}"#,
        "di_controller_reconciles_total",
        "di_controller_reconcile_duration_seconds_count",
        "di_controller_max_concurrent_reconciles",
    ] {
        grew(name);
    }
    // All series except those of jobs must exist from the start.
    let counters = |all: &BTreeMap<String, f64>| {
        let names = all.keys().filter(|name| !name.contains("_jobs{"));
        names.cloned().collect::<BTreeSet<_>>()
    };
    assert_eq!(counters(&before), counters(&after));
    until_counted(&manager, "di_controller_active_reconciles", 0.0).await;
    manager.stop().await;
}

#[tokio::test]
async fn endpoint_metrics_count_connections_and_watch_errors() {
    let space = Space::new().await;
    let proxy = failing_at_first(&space, "endpoint");
    let endpoint = Endpoint::start_with_client(&space, proxy.client(), Settings::default()).await;
    eventually("the failures are counted", async || {
        let url = format!("http://{}/metrics", endpoint.address());
        let text = reqwest::get(&url).await.unwrap().text().await.unwrap();
        let all = series(&text);
        let failed = ["dijobs", "pods"].map(|resource| {
            let name = format!("di_watch_errors_total{{resource=\"{resource}\"}}");
            all[&name] > 0.5
        });
        if failed == [true, true] && all["di_replicas_connections"] > 0.5 {
            Ok(())
        } else {
            Err(text)
        }
    })
    .await;
}
