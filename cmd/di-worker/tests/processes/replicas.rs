//! Exit codes of replicas.

use std::{path::Path, process::Command};

use crate::{LifecycleHandles, Worker, ranks::free_port};

/// A replica of this role whose endpoint does not answer.
fn replica(role: &str, storage: &Path) -> (Worker, LifecycleHandles) {
    let port = free_port().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_di-worker"));
    command.arg(role);
    if role != "aggregator" {
        command.arg("--storage").arg(storage);
    }
    command.env("KUBERNETES_POD_NAMESPACE", "rl");
    command.env("KUBERNETES_POD_NAME", format!("pole-{role}"));
    command.env("KUBERNETES_SERVER_URL", "127.0.0.1:9");
    command.env(format!("{}_PORT", role.to_uppercase()), &port);
    (Worker::start(&mut command), LifecycleHandles::at(&port))
}

#[tokio::test]
async fn replica_exit_code_differs_for_signal_and_exit_call() {
    let folder = tempfile::tempdir().unwrap();
    for (role, ready) in [
        ("collector", "listens on port"),
        ("learner", "listens on port"),
        ("aggregator", "waiting for the ranks"),
    ] {
        let (mut worker, _) = replica(role, folder.path());
        worker.wait_for_line(ready);
        assert_eq!(worker.exit_code_after_signal("TERM"), Some(143), "{role}");

        let (mut worker, handles) = replica(role, folder.path());
        worker.wait_for_line(ready);
        handles.call("exit").await;
        assert_eq!(worker.child.wait().unwrap().code(), Some(0), "{role}");
    }
}
