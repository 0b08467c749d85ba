use di_api::names;
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Status};
use kube::{
    Api, Error as KubeError, ResourceExt,
    api::{AttachParams, AttachedProcess, TerminalSize},
    client::UpgradeConnectionError,
};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{Cluster, Error, Result};

/// Options of [`exec`].
#[derive(Clone, Debug, Default)]
pub struct ExecOptions {
    /// Container instead of the main one.
    pub container: Option<String>,
    /// Passes stdin to the command.
    pub stdin: bool,
    /// Allocates a TTY. stderr is then part of stdout.
    pub tty: bool,
}

/// A command that runs in a container.
pub struct Exec {
    process: AttachedProcess,
    pod: String,
    can_close_stdin: bool,
}

/// First minor version of Kubernetes 1.x that can close stdin over a WebSocket.
///
/// See <https://kubernetes.io/blog/2024/08/20/websockets-transition/>.
const STDIN_CLOSE_MIN_MINOR: u32 = 30;

/// Buffer size in bytes. The 1 KiB of kube makes large outputs slow.
const BUFFER_BYTES: usize = 64 * 1024;

/// Runs a command in a pod.
///
/// # Errors
/// [`Error::Refused`] when the pod has ended or has no such container.
pub async fn exec(
    cluster: &Cluster,
    pod: &Pod,
    command: &[String],
    options: &ExecOptions,
) -> Result<Exec> {
    let name = pod.name_any();
    let container = options.container.as_deref();
    let container = container.unwrap_or(names::MAIN_CONTAINER);
    check_can_exec(pod, container).map_err(Error::Refused)?;
    let params = AttachParams::default()
        .container(container)
        // Some servers lose the output of a TTY without stdin, so always attach stdin to a TTY.
        .stdin(options.stdin || options.tty)
        .stdout(true)
        .stderr(!options.tty)
        .tty(options.tty)
        .max_stdin_buf_size(BUFFER_BYTES)
        .max_stdout_buf_size(BUFFER_BYTES)
        .max_stderr_buf_size(BUFFER_BYTES);
    let namespace = pod.namespace().unwrap_or_default();
    let api: Api<Pod> = Api::namespaced(cluster.client.clone(), &namespace);
    let can_close_stdin = options.stdin && supports_stdin_close(cluster).await?;
    match api.exec(&name, command, &params).await {
        Ok(process) => Ok(Exec {
            process,
            pod: name,
            can_close_stdin,
        }),
        Err(error) => Err(stream_open_error(cluster, error, &name)),
    }
}

async fn supports_stdin_close(cluster: &Cluster) -> Result<bool> {
    let version = cluster.client.apiserver_version().await;
    let version = version.map_err(|error| cluster.convert_error(error))?;
    // Some providers report a minor version such as `29+`.
    let minor = version
        .minor
        .trim_end_matches(|c: char| !c.is_ascii_digit());
    Ok(minor
        .parse()
        .is_ok_and(|minor: u32| minor >= STDIN_CLOSE_MIN_MINOR))
}

/// Checks the pod with kubectl's errors, which are clearer than the server's.
fn check_can_exec(pod: &Pod, container: &str) -> Result<(), String> {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    if let Some(phase @ ("Succeeded" | "Failed")) = phase {
        return Err(format!(
            "cannot exec into a container in a completed pod; current phase is {phase}"
        ));
    }
    let spec = pod.spec.as_ref();
    let containers = spec
        .map(|spec| spec.containers.as_slice())
        .unwrap_or_default();
    let inits = spec.and_then(|spec| spec.init_containers.as_deref());
    let mut all = containers.iter().chain(inits.unwrap_or_default());
    if all.any(|one| one.name == container) {
        return Ok(());
    }
    let names: Vec<_> = containers.iter().map(|one| one.name.as_str()).collect();
    Err(format!(
        "container {container} not found in pod {}; it has {}",
        pod.name_any(),
        names.join(", ")
    ))
}

/// The error of a stream that could not be opened.
pub(crate) fn stream_open_error(cluster: &Cluster, error: KubeError, pod: &str) -> Error {
    match error {
        KubeError::UpgradeConnection(UpgradeConnectionError::ProtocolSwitch(code)) => {
            Error::Refused(format!(
                "cannot open a stream to pod {pod}: the server answered {code}; check that the container is running: kubectl get pod {pod}"
            ))
        }
        other => cluster.convert_error(other),
    }
}

impl Exec {
    /// Takes stdin of the command. `None` without stdin and TTY, or if already taken.
    pub fn stdin(&mut self) -> Option<impl AsyncWrite + Unpin + Send + use<>> {
        self.process.stdin()
    }

    /// Whether stdin can be closed. Otherwise closing it would also end the output.
    pub fn can_close_stdin(&self) -> bool {
        self.can_close_stdin
    }

    /// Takes stdout of the command. `None` if already taken.
    pub fn stdout(&mut self) -> Option<impl AsyncRead + Unpin + Send + use<>> {
        self.process.stdout()
    }

    /// Takes stderr of the command. `None` with a TTY, or if already taken.
    pub fn stderr(&mut self) -> Option<impl AsyncRead + Unpin + Send + use<>> {
        self.process.stderr()
    }

    /// Returns a function that sends the terminal size in columns and rows. `None` without a TTY.
    pub fn resize_sender(&mut self) -> Option<impl FnMut(u16, u16) + Send + use<>> {
        let mut sender = self.process.terminal_size()?;
        // If the channel is full, drop this size: a later one replaces it.
        Some(move |width, height| drop(sender.try_send(TerminalSize { width, height })))
    }

    /// Waits for the exit code. The caller must read stdout and stderr in the meantime.
    ///
    /// # Errors
    /// The command could not start, or the connection was lost.
    pub async fn wait_exit_code(&mut self) -> Result<i32> {
        let status = match self.process.take_status() {
            Some(status) => status.await,
            None => None,
        };
        let Some(status) = status else {
            return Err(Error::Refused(format!(
                "lost connection to pod {}",
                self.pod
            )));
        };
        exit_code(&status).map_err(Error::Refused)
    }
}

fn exit_code(status: &Status) -> Result<i32, String> {
    if status.status.as_deref() == Some("Success") {
        return Ok(0);
    }
    let causes = status
        .details
        .as_ref()
        .and_then(|details| details.causes.as_ref());
    let code = causes
        .into_iter()
        .flatten()
        .find(|cause| cause.reason.as_deref() == Some("ExitCode"))
        .and_then(|cause| cause.message.as_ref()?.parse().ok());
    code.ok_or_else(|| match &status.message {
        Some(message) => format!("Internal error occurred: {message}"),
        None => "the server could not run the command and gave no reason".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn exit_code_is_read_from_status() {
        let code_of = |status| exit_code(&serde_json::from_value(status).unwrap());
        assert_eq!(code_of(json!({"status": "Success"})), Ok(0));
        assert_eq!(
            code_of(json!({"status": "Failure", "reason": "NonZeroExitCode",
                "details": {"causes": [{"reason": "ExitCode", "message": "42"}]}})),
            Ok(42)
        );
        let error = code_of(json!({"status": "Failure", "message": "no such file"}));
        assert_eq!(error.unwrap_err(), "Internal error occurred: no such file");
    }

    #[test]
    fn exec_into_ended_pod_or_unknown_container_fails() {
        let pod = |phase: &str| -> Pod {
            let containers = json!([{"name": "di-container"}, {"name": "log"}]);
            let pod = di_fixtures::Pod::test("p", "collector").phase(phase);
            pod.spec(json!({"containers": containers})).build()
        };
        assert_eq!(check_can_exec(&pod("Running"), "log"), Ok(()));
        assert_eq!(
            check_can_exec(&pod("Running"), "lgo").unwrap_err(),
            "container lgo not found in pod p; it has di-container, log"
        );
        assert_eq!(
            check_can_exec(&pod("Succeeded"), "log").unwrap_err(),
            "cannot exec into a container in a completed pod; current phase is Succeeded"
        );
    }
}
