//! Ranks of a learner that several pods have.

use std::{
    net::{Ipv4Addr, TcpListener},
    path::Path,
    process::Command,
};

use di_runtime::life::Status;

use crate::{Handles, Worker};

/// A port that nobody listens on.
fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

/// The only rank of its pod, one of two. It listens at `port`, and meets the other one at `meeting`.
fn rank(rank: u16, port: u16, meeting: u16, storage: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_di-worker"));
    command.args(["learner", "--storage"]).arg(storage);
    command.env("KUBERNETES_POD_NAMESPACE", "rl");
    command.env("KUBERNETES_POD_NAME", format!("pole-ddp-learner-{rank}"));
    command.env("WORLD_SIZE", "2").env("LOCAL_WORLD_SIZE", "1");
    command.env("START_RANK", rank.to_string());
    command.env("LEARNER_PORT", (port - rank).to_string());
    command.env("MASTER_ADDR", "127.0.0.1");
    command.env("MASTER_PORT", meeting.to_string());
    command
}

#[tokio::test]
async fn an_error_in_a_poll_is_logged_and_ends_the_process_with_1() {
    let folder = tempfile::tempdir().unwrap();
    let (port, meeting) = (free_port(), free_port());
    // Any port will do for who is not called.
    let mut first = Worker::start(&mut rank(0, 0, meeting, folder.path()));
    let mut second = Worker::start(&mut rank(1, port, meeting, folder.path()));
    first.says("rank 0 has met all others");
    second.says("rank 1 has met all others");
    let handles = Handles::at(&port.to_string());
    assert_eq!(handles.call("start").await.status, Status::Running);
    assert_eq!(first.end_by("KILL"), None);
    let told = second.says("learner error: ");
    assert!(
        told.contains("0 polls") && told.contains("rank 0 is lost"),
        "{told}"
    );
    second.says("ERROR rank 0 is lost");
    assert_eq!(second.child.wait().unwrap().code(), Some(1));
}
