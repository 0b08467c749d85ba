//! Ranks of a learner group.

use std::{
    net::{Ipv4Addr, TcpListener},
    path::Path,
    process::Command,
};

use di_worker_lib::{
    checkpoint::Checkpoint,
    learner::{Learner, settings::Settings},
    lifecycle::Status,
    protocol::{
        http,
        tasks::TaskWorker,
        wire::{LearnerReport, LearnerTask},
    },
    sampler::{Pipeline, sampling::Sampling},
    storage::{Storage, frames},
};

use crate::{LifecycleHandles, Worker};

fn bound(port: u16) -> Option<TcpListener> {
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).ok()
}

/// A free port.
pub(crate) fn free_port() -> u16 {
    bound(0).unwrap().local_addr().unwrap().port()
}

/// The first of two consecutive free ports.
fn free_pair() -> u16 {
    loop {
        let port = free_port();
        if port.checked_add(1).and_then(bound).is_some() {
            return port;
        }
    }
}

/// A pod with `local` of the two ranks. They listen from `port` on; `meeting` is the rendezvous
/// port.
fn pod(first: u16, local: u16, port: u16, meeting: u16, storage: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_di-worker"));
    command.args(["learner", "--storage"]).arg(storage);
    command.env("KUBERNETES_POD_NAMESPACE", "rl");
    command.env("KUBERNETES_POD_NAME", format!("pole-ddp-learner-{first}"));
    command.env("WORLD_SIZE", "2");
    command.env("LOCAL_WORLD_SIZE", local.to_string());
    command.env("START_RANK", first.to_string());
    command.env("LEARNER_PORT", (port - first).to_string());
    command.env("MASTER_ADDR", "127.0.0.1");
    command.env("MASTER_PORT", meeting.to_string());
    command
}

#[tokio::test]
async fn poll_error_is_logged_and_exits_1() {
    let folder = tempfile::tempdir().unwrap();
    let (port, meeting) = (free_port(), free_port());
    // Port 0: the first rank is not called.
    let mut first = Worker::start(&mut pod(0, 1, 0, meeting, folder.path()));
    let mut second = Worker::start(&mut pod(1, 1, port, meeting, folder.path()));
    first.wait_for_line("rank 0 has joined the other ranks");
    second.wait_for_line("rank 1 has joined the other ranks");
    let handles = LifecycleHandles::at(&port.to_string());
    assert_eq!(handles.call("start").await.status, Status::Running);
    assert_eq!(first.exit_code_after_signal("KILL"), None);
    let report = second.wait_for_line("learner error: ");
    assert!(
        report.contains("0 polls") && report.contains("lost rank 0"),
        "{report}"
    );
    second.wait_for_line("ERROR lost rank 0");
    assert_eq!(second.child.wait().unwrap().code(), Some(1));
}

/// Stores a task with its files.
fn stored(storage: &Storage) -> LearnerTask {
    let task = LearnerTask {
        run: storage.root().to_owned(),
        frames: vec![storage.root().join("frames.safetensors")],
        model_path: storage.root().join("model.safetensors"),
        progress: 0.0,
        seed: 5,
    };
    let model = Checkpoint::new_initial(7).model;
    storage.write(&task.model_path, &model.encode()).unwrap();
    let mut sampler = Pipeline::new(Sampling::default()).unwrap();
    let played = sampler.collect(&model.policy, 500, 1).unwrap().trajectories;
    let file = frames::encode(&played);
    storage.write(&task.frames[0], &file).unwrap();
    task
}

#[tokio::test]
async fn two_ranks_in_one_pod_train_same_model() {
    let folder = tempfile::tempdir().unwrap();
    let storage = Storage::open(folder.path()).unwrap();
    let task = stored(&storage);
    let mut alone = Learner::new(storage, Settings::default());
    let alone = alone.run_task(task.clone()).unwrap();

    let port = free_pair();
    let mut both = Worker::start(&mut pod(0, 2, port, free_port(), folder.path()));
    let handles = [port, port + 1].map(|port| LifecycleHandles::at(&port.to_string()));
    for _ in &handles {
        both.wait_for_line("has joined the other ranks");
    }
    for handles in &handles {
        assert_eq!(handles.call("start").await.status, Status::Running);
    }
    let url = format!("http://127.0.0.1:{port}/task");
    let request = http::new_client().unwrap().post(url).json(&task);
    let report: LearnerReport = request.send().await.unwrap().json().await.unwrap();
    assert_eq!((report.model_version, report.frames), (1, alone.frames));
    let difference = report.value_loss - alone.value_loss;
    assert!(difference.abs() < 1e-9, "{report:?}, alone {alone:?}");

    let second = handles[1].call("pause").await;
    assert_eq!(
        (second.polls, second.samples),
        (1, 500),
        "it trained its shard"
    );
    handles[0].call("exit").await;
    assert_eq!(both.child.wait().unwrap().code(), Some(0));
}

#[test]
fn ranks_exit_143_on_sigterm() {
    let folder = tempfile::tempdir().unwrap();
    let mut both = Worker::start(&mut pod(0, 2, free_pair(), free_port(), folder.path()));
    for _ in 0..2 {
        both.wait_for_line("has joined the other ranks");
    }
    assert_eq!(both.exit_code_after_signal("TERM"), Some(143));
}
