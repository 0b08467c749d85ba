use di_api::names;
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Status};
use kube::{
    Api, Error as KubeError, ResourceExt,
    api::{AttachParams, AttachedProcess, TerminalSize},
    client::UpgradeConnectionError,
};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{Cluster, Error, Result};

/// How a command is run in a container.
#[derive(Clone, Debug, Default)]
pub struct ExecOptions {
    /// Container instead of the main one.
    pub container: Option<String>,
    /// Whether it is given input.
    pub stdin: bool,
    /// Whether it is given a terminal; then its errors come with its output.
    pub tty: bool,
}

/// A command that runs in a container.
pub struct Exec {
    process: AttachedProcess,
    pod: String,
    takes_end: bool,
}

/// The first Kubernetes, 1.x, that can be told over WebSockets that input has ended.
const TAKES_END_SINCE: u32 = 30;

/// How much may be on its way; kube's own kilobyte makes large outputs slow.
const BUFFER: usize = 64 * 1024;

/// Runs a command in a pod.
///
/// # Errors
/// [`Error::Replica`] when the pod has ended or has no such container.
pub async fn exec(
    cluster: &Cluster,
    pod: &Pod,
    command: &[String],
    options: &ExecOptions,
) -> Result<Exec> {
    let name = pod.name_any();
    let container = options.container.as_deref();
    let container = container.unwrap_or(names::MAIN_CONTAINER);
    enterable(pod, container).map_err(Error::Replica)?;
    let params = AttachParams::default()
        .container(container)
        // A terminal without input loses the output too on some servers; nothing is typed there, and that is all.
        .stdin(options.stdin || options.tty)
        .stdout(true)
        .stderr(!options.tty)
        .tty(options.tty)
        .max_stdin_buf_size(BUFFER)
        .max_stdout_buf_size(BUFFER)
        .max_stderr_buf_size(BUFFER);
    let namespace = pod.namespace().unwrap_or_default();
    let api: Api<Pod> = Api::namespaced(cluster.client.clone(), &namespace);
    let takes_end = options.stdin && takes_end(cluster).await?;
    match api.exec(&name, command, &params).await {
        Ok(process) => Ok(Exec {
            process,
            pod: name,
            takes_end,
        }),
        Err(error) => Err(stream_error(cluster, error, &name)),
    }
}

async fn takes_end(cluster: &Cluster) -> Result<bool> {
    let version = cluster.client.apiserver_version().await;
    let version = version.map_err(|error| cluster.error(error))?;
    // Some write 29+.
    let minor = version
        .minor
        .trim_end_matches(|c: char| !c.is_ascii_digit());
    Ok(minor
        .parse()
        .is_ok_and(|minor: u32| minor >= TAKES_END_SINCE))
}

/// kubectl's words for what the server would refuse less clearly.
fn enterable(pod: &Pod, container: &str) -> Result<(), String> {
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
    let has: Vec<_> = containers.iter().map(|one| one.name.as_str()).collect();
    Err(format!(
        "container {container} not found in pod {}; it has {}",
        pod.name_any(),
        has.join(", ")
    ))
}

/// What is wrong when there is no stream: the server's own words where it refuses.
pub(crate) fn stream_error(cluster: &Cluster, error: KubeError, pod: &str) -> Error {
    match error {
        KubeError::UpgradeConnection(UpgradeConnectionError::ProtocolSwitch(code)) => {
            Error::Replica(format!(
                "the server did not open a stream to pod {pod} ({code}); is the container running? check: kubectl get pod {pod}"
            ))
        }
        other => cluster.error(other),
    }
}

impl Exec {
    /// Its input, once; none where there is neither input nor a terminal.
    pub fn stdin(&mut self) -> Option<impl AsyncWrite + Unpin + Send + use<>> {
        self.process.stdin()
    }

    /// Whether it can be told that its input has ended. Where it cannot, closing the input would cut off the output, too.
    pub fn takes_end(&self) -> bool {
        self.takes_end
    }

    /// Its output, once.
    pub fn stdout(&mut self) -> Option<impl AsyncRead + Unpin + Send + use<>> {
        self.process.stdout()
    }

    /// Its errors, once; none with a terminal.
    pub fn stderr(&mut self) -> Option<impl AsyncRead + Unpin + Send + use<>> {
        self.process.stderr()
    }

    /// Tells the size of the terminal, in columns and lines, as often as it changes; none without a terminal.
    pub fn sizes(&mut self) -> Option<impl FnMut(u16, u16) + Send + use<>> {
        let mut sender = self.process.terminal_size()?;
        // A size that finds no place is overtaken by the next.
        Some(move |width, height| drop(sender.try_send(TerminalSize { width, height })))
    }

    /// Waits for its end: the exit code. Output that was taken must be read meanwhile.
    ///
    /// # Errors
    /// When the command could not be started, or the connection broke.
    pub async fn wait(&mut self) -> Result<i32> {
        let status = match self.process.take_status() {
            Some(status) => status.await,
            None => None,
        };
        let Some(status) = status else {
            return Err(Error::Replica(format!(
                "lost connection to pod {}",
                self.pod
            )));
        };
        exit_code(&status).map_err(Error::Replica)
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
        None => "the command could not be run".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_exit_code_is_read_from_the_status() {
        let code = |status| exit_code(&serde_json::from_value(status).unwrap());
        assert_eq!(code(json!({"status": "Success"})), Ok(0));
        assert_eq!(
            code(json!({"status": "Failure", "reason": "NonZeroExitCode",
                "details": {"causes": [{"reason": "ExitCode", "message": "42"}]}})),
            Ok(42)
        );
        let error = code(json!({"status": "Failure", "message": "no such file"}));
        assert_eq!(error.unwrap_err(), "Internal error occurred: no such file");
    }

    #[test]
    fn what_cannot_be_entered_is_told_before() {
        let pod = |phase: &str| -> Pod {
            serde_json::from_value(json!({
                "metadata": {"name": "p"},
                "spec": {"containers": [{"name": "di-container"}, {"name": "log"}]},
                "status": {"phase": phase},
            }))
            .unwrap()
        };
        assert_eq!(enterable(&pod("Running"), "log"), Ok(()));
        assert_eq!(
            enterable(&pod("Running"), "lgo").unwrap_err(),
            "container lgo not found in pod p; it has di-container, log"
        );
        assert_eq!(
            enterable(&pod("Succeeded"), "log").unwrap_err(),
            "cannot exec into a container in a completed pod; current phase is Succeeded"
        );
    }
}
