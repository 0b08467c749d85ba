use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use serde_json::json;
use tokio::net::TcpListener;

use super::*;
use crate::{
    lifecycle::{
        report::PollResult,
        routes::lifecycle_routes,
        status::Status,
        worker::Worker,
        worker_loop::{LaunchedWorker, WorkerControl, launch_worker},
    },
    protocol::http,
    sampler::sampling::Sampling,
};

/// Records its configurations and rejects them while `refuses` is set.
#[derive(Clone, Default)]
struct Idle {
    configured: Arc<Mutex<Vec<usize>>>,
    refuses: Arc<AtomicBool>,
}

impl Worker for Idle {
    type Config = Sampling;
    const NAME: &'static str = "idle";

    fn configure(&mut self, config: Sampling) -> Result<()> {
        if self.refuses.load(SeqCst) {
            return Err(Error::BadConfig("not now".to_owned()));
        }
        lock_unpoisoned(&self.configured).push(config.num_workers);
        Ok(())
    }

    fn poll(&mut self) -> Result<PollResult> {
        Ok(PollResult::NOTHING)
    }
}

/// Launches a replica; returns its address.
async fn launch_replica() -> (Idle, WorkerControl, Address) {
    let worker = Idle::default();
    let LaunchedWorker { control, .. } =
        launch_worker(worker.clone(), Sampling::default()).unwrap();
    let mut reports = control.subscribe();
    let configured = reports.wait_for(|report| report.status == Status::Configured);
    configured.await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = listener.local_addr().unwrap().to_string();
    let router = lifecycle_routes(control.clone());
    tokio::spawn(async { axum::serve(listener, router).await });
    let pod = "idle".to_owned();
    (worker, control, Address { pod, url })
}

fn new_panel(gate: &PauseGate) -> ControlPanel {
    ControlPanel::new(
        http::new_client().unwrap(),
        gate.clone(),
        Configs::default(),
    )
}

async fn call_gate(gate: &PauseGate, call: Call) {
    gate.handle_call(call, json!(null)).await.unwrap();
}

fn configs_with_workers(number: usize) -> Configs {
    serde_json::from_value(json!({"collector": {"num_workers": number}})).unwrap()
}

const COLLECTOR: Option<Role> = Some(Role::Collector);

#[tokio::test]
async fn replica_follows_panel_status() {
    let (worker, control, address) = launch_replica().await;
    let gate = PauseGate::new_running();
    let panel = new_panel(&gate);
    let status = async || panel.poll_worker(COLLECTOR, &address).await.unwrap().status;
    assert_eq!(status().await, Status::Running);
    assert_eq!(status().await, Status::Running, "and stays it");
    assert_eq!(
        *lock_unpoisoned(&worker.configured),
        [1],
        "by its command line alone"
    );

    let task = gate.try_admit().unwrap();
    let pause = tokio::spawn({
        let gate = gate.clone();
        async move { call_gate(&gate, Call::Pause).await }
    });
    let mut reports = gate.subscribe();
    reports.wait_for(|report| !report.running).await.unwrap();
    assert_eq!(status().await, Status::Running, "a task is in flight");
    drop(task);
    pause.await.unwrap();
    assert_eq!(status().await, Status::Paused);
    panel.configure(configs_with_workers(2)).unwrap();
    assert_eq!(status().await, Status::Paused);
    call_gate(&gate, Call::Start).await;
    assert_eq!(status().await, Status::Running);
    assert_eq!(*lock_unpoisoned(&worker.configured), [1, 2]);
    assert!(
        panel.configure(configs_with_workers(3)).is_err(),
        "rejected while it runs"
    );

    call_gate(&gate, Call::Pause).await;
    status().await;
    call_gate(&gate, Call::Start).await;
    assert_eq!(status().await, Status::Running);
    assert_eq!(
        *lock_unpoisoned(&worker.configured),
        [1, 2],
        "the revision was sent already"
    );

    control.handle_call(Call::Pause, json!(null)).await.unwrap();
    assert_eq!(status().await, Status::Paused, "paused manually");
    panel
        .call_all(Call::Exit, std::slice::from_ref(&address))
        .await;
    assert!(control.current_report().exiting);
}

#[tokio::test]
async fn rejected_config_is_sent_again() {
    let (worker, _control, address) = launch_replica().await;
    let gate = PauseGate::new_running();
    let panel = ControlPanel::new(http::new_client().unwrap(), gate, configs_with_workers(2));
    worker.refuses.store(true, SeqCst);
    for _ in 0..2 {
        let report = panel.poll_worker(COLLECTOR, &address).await.unwrap();
        // A replica must not run with a configuration that it rejected.
        assert!(!report.running);
    }
    worker.refuses.store(false, SeqCst);
    let report = panel.poll_worker(COLLECTOR, &address).await.unwrap();
    assert_eq!(report.status, Status::Running);
    assert_eq!(*lock_unpoisoned(&worker.configured), [1, 2]);
}

#[tokio::test]
async fn replica_with_other_config_is_reconfigured() {
    let (worker, control, address) = launch_replica().await;
    let gate = PauseGate::new_running();
    control.handle_call(Call::Start, json!(null)).await.unwrap();
    let mut configs = configs_with_workers(2);
    configs.learner = Some(crate::learner::settings::Settings::default());
    let panel = ControlPanel::new(http::new_client().unwrap(), gate.clone(), configs);
    let status = async |role| panel.poll_worker(role, &address).await.unwrap().status;
    // A collector rejects the configuration of a learner, and is paused at that time.
    assert_eq!(status(Some(Role::Learner)).await, Status::Paused);
    for _ in 0..2 {
        assert_eq!(status(COLLECTOR).await, Status::Running);
        assert_eq!(*lock_unpoisoned(&worker.configured), [1, 2], "once");
    }

    control.handle_call(Call::Pause, json!(null)).await.unwrap();
    assert_eq!(status(COLLECTOR).await, Status::Paused, "paused manually");
    call_gate(&gate, Call::Pause).await;
    panel.configure(configs_with_workers(3)).unwrap();
    call_gate(&gate, Call::Start).await;
    assert_eq!(status(COLLECTOR).await, Status::Paused, "paused manually");
    control.handle_call(Call::Start, json!(null)).await.unwrap();
    assert_eq!(status(COLLECTOR).await, Status::Running);
    assert_eq!(*lock_unpoisoned(&worker.configured), [1, 2, 3]);
}

#[tokio::test]
async fn replica_without_role_is_started_unconfigured() {
    let (worker, _control, address) = launch_replica().await;
    let gate = PauseGate::new_unready();
    let panel = ControlPanel::new(
        http::new_client().unwrap(),
        gate.clone(),
        configs_with_workers(2),
    );
    let status = async || panel.poll_worker(None, &address).await.unwrap().status;
    assert_eq!(status().await, Status::Configured, "the panel is not ready");
    gate.mark_ready();
    assert_eq!(status().await, Status::Configured);
    call_gate(&gate, Call::Start).await;
    assert_eq!(status().await, Status::Running);
    assert_eq!(*lock_unpoisoned(&worker.configured), [1]);
    let unreachable = Address {
        url: "127.0.0.1:1".to_owned(),
        ..address
    };
    assert_eq!(panel.poll_worker(None, &unreachable).await, None);
}
