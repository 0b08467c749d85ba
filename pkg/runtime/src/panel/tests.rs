use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use serde_json::json;
use tokio::net::TcpListener;

use super::*;
use crate::{
    http,
    life::{Control, Life, Polled, Status, Worker, handles, launch},
    sampling::Sampling,
};

/// Notes what it is configured with, and refuses that once it is told to.
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
        lock(&self.configured).push(config.num_workers);
        Ok(())
    }

    fn poll(&mut self) -> Result<Polled> {
        Ok(Polled::NOTHING)
    }
}

/// A replica, and where it is.
async fn replica() -> (Idle, Control, Address) {
    let worker = Idle::default();
    let Life { control, .. } = launch(worker.clone(), Sampling::default()).unwrap();
    let mut told = control.subscribe();
    let configured = told.wait_for(|report| report.status == Status::Configured);
    configured.await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = listener.local_addr().unwrap().to_string();
    let router = handles(control.clone());
    tokio::spawn(async { axum::serve(listener, router).await });
    let pod = "idle".to_owned();
    (worker, control, Address { pod, url })
}

fn panel(gate: &Gate) -> Panel {
    Panel::new(http::client().unwrap(), gate.clone(), Configs::default())
}

async fn call(gate: &Gate, call: Call) {
    gate.call(call, json!(null)).await.unwrap();
}

fn workers(number: usize) -> Configs {
    serde_json::from_value(json!({"collector": {"num_workers": number}})).unwrap()
}

const COLLECTOR: Option<Role> = Some(Role::Collector);

#[tokio::test]
async fn a_replica_becomes_what_the_panel_is() {
    let (worker, control, address) = replica().await;
    let gate = Gate::running();
    let panel = panel(&gate);
    let status = async || panel.look(COLLECTOR, &address).await.unwrap().status;
    assert_eq!(status().await, Status::Running);
    assert_eq!(status().await, Status::Running, "and stays it");
    assert_eq!(*lock(&worker.configured), [1], "by its command line alone");

    let flight = gate.pass().unwrap();
    let pause = tokio::spawn({
        let gate = gate.clone();
        async move { call(&gate, Call::Pause).await }
    });
    let mut told = gate.subscribe();
    told.wait_for(|report| !report.running).await.unwrap();
    assert_eq!(status().await, Status::Running, "a task is on its way");
    drop(flight);
    pause.await.unwrap();
    assert_eq!(status().await, Status::Paused);
    panel.configure(workers(2)).unwrap();
    assert_eq!(status().await, Status::Paused);
    call(&gate, Call::Start).await;
    assert_eq!(status().await, Status::Running);
    assert_eq!(*lock(&worker.configured), [1, 2]);
    assert!(panel.configure(workers(3)).is_err(), "not while it runs");

    call(&gate, Call::Pause).await;
    status().await;
    call(&gate, Call::Start).await;
    assert_eq!(status().await, Status::Running);
    assert_eq!(*lock(&worker.configured), [1, 2], "it has that already");

    control.call(Call::Pause, json!(null)).await.unwrap();
    assert_eq!(status().await, Status::Paused, "by somebody else");
    panel.call(Call::Exit, std::slice::from_ref(&address)).await;
    assert!(control.report().exiting);
}

#[tokio::test]
async fn what_is_refused_is_told_again() {
    let (worker, _control, address) = replica().await;
    let gate = Gate::running();
    let panel = Panel::new(http::client().unwrap(), gate, workers(2));
    worker.refuses.store(true, SeqCst);
    for _ in 0..2 {
        let report = panel.look(COLLECTOR, &address).await.unwrap();
        // What it did not take on it must not run with.
        assert!(!report.running);
    }
    worker.refuses.store(false, SeqCst);
    let report = panel.look(COLLECTOR, &address).await.unwrap();
    assert_eq!(report.status, Status::Running);
    assert_eq!(*lock(&worker.configured), [1, 2]);
}

#[tokio::test]
async fn one_that_runs_with_something_else_is_configured_all_the_same() {
    let (worker, control, address) = replica().await;
    let gate = Gate::running();
    control.call(Call::Start, json!(null)).await.unwrap();
    let mut configs = workers(2);
    configs.learner = Some(crate::ppo::Settings::default());
    let panel = Panel::new(http::client().unwrap(), gate.clone(), configs);
    let status = async |role| panel.look(role, &address).await.unwrap().status;
    // It is no learner: it refuses to be configured as one, and is paused by then.
    assert_eq!(status(Some(Role::Learner)).await, Status::Paused);
    for _ in 0..2 {
        assert_eq!(status(COLLECTOR).await, Status::Running);
        assert_eq!(*lock(&worker.configured), [1, 2], "once");
    }

    control.call(Call::Pause, json!(null)).await.unwrap();
    assert_eq!(status(COLLECTOR).await, Status::Paused, "by somebody else");
    call(&gate, Call::Pause).await;
    panel.configure(workers(3)).unwrap();
    call(&gate, Call::Start).await;
    assert_eq!(status(COLLECTOR).await, Status::Paused, "alone");
    control.call(Call::Start, json!(null)).await.unwrap();
    assert_eq!(status(COLLECTOR).await, Status::Running);
    assert_eq!(*lock(&worker.configured), [1, 2, 3]);
}

#[tokio::test]
async fn one_without_a_role_is_started_and_not_configured() {
    let (worker, _control, address) = replica().await;
    let gate = Gate::unready();
    let panel = Panel::new(http::client().unwrap(), gate.clone(), workers(2));
    let status = async || panel.look(None, &address).await.unwrap().status;
    assert_eq!(status().await, Status::Configured, "the panel is not ready");
    gate.ready();
    assert_eq!(status().await, Status::Configured);
    call(&gate, Call::Start).await;
    assert_eq!(status().await, Status::Running);
    assert_eq!(*lock(&worker.configured), [1]);
    let nobody = Address {
        url: "127.0.0.1:1".to_owned(),
        ..address
    };
    assert_eq!(panel.look(None, &nobody).await, None);
}
