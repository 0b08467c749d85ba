use di_api::{DIJob, DIJobStatus, PodTemplate, names};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::{
    Api, ResourceExt,
    api::{AttachParams, ListParams, LogParams},
};
use tokio::io::AsyncReadExt;

use crate::{Namespace, dry_run, eventually};

/// The image of `di-worker`.
pub const WORKER_IMAGE: &str = concat!("ghcr.io/opendilab/di-worker:v", env!("CARGO_PKG_VERSION"));

/// A container that runs `di-worker` with these arguments.
pub fn container(args: &[&str]) -> serde_json::Value {
    serde_json::json!({
        "name": names::MAIN_CONTAINER,
        "image": WORKER_IMAGE,
        "args": args,
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
    })
}

/// A job whose coordinator runs `di-worker` with these arguments.
///
/// # Panics
/// Never: the JSON is fixed.
pub fn job(name: &str, coordinator: &[&str]) -> DIJob {
    serde_json::from_value(serde_json::json!({
        "apiVersion": "diengine.opendilab.org/v1alpha2",
        "kind": "DIJob",
        "metadata": {"name": name},
        "spec": {"coordinator": {"template": pod_template(coordinator)}},
    }))
    .expect("a job")
}

/// An invalid job: no container has the name of the main one.
///
/// # Panics
/// Never: the job has a container.
pub fn misnamed_job(name: &str) -> DIJob {
    let mut job = job(name, &["hold"]);
    main_container(&mut job.spec.coordinator.template)["name"] = "main".into();
    job
}

/// The message that rejects a [`misnamed_job`].
pub const MISNAMED_MESSAGE: &str = "one container must be named di-container";

/// Waits until the webhooks reject a [`misnamed_job`]: the API server learns of the webhooks and
/// their addresses with a delay.
///
/// # Panics
/// If it is accepted, or rejected for another reason.
pub async fn wait_for_webhook_rejection(namespace: &Namespace) {
    let jobs: Api<DIJob> = namespace.api();
    let (dry, bad) = (dry_run(), misnamed_job("bad"));
    let is_rejected = |answer: &kube::Result<DIJob>| {
        let error = answer.as_ref().err();
        error.is_some_and(|error| error.to_string().contains(MISNAMED_MESSAGE))
    };
    eventually("refused", || jobs.create(&dry, &bad), is_rejected)
        .await
        .expect_err("a refusal");
}

/// Returns the pod spec of a template.
///
/// # Panics
/// If it has none.
pub fn pod_spec(template: &mut PodTemplate) -> &mut serde_json::Value {
    template.0.get_mut("spec").expect("a spec")
}

/// Returns the first container of a template, which is the main one in these tests.
///
/// # Panics
/// If it has none.
pub fn main_container(template: &mut PodTemplate) -> &mut serde_json::Value {
    &mut pod_spec(template)["containers"][0]
}

/// A job whose replicas idle until they are released.
///
/// # Panics
/// Never: the JSON is fixed.
pub fn idle_job(name: &str, collectors: i32, learners: i32) -> DIJob {
    let mut job = job(name, &["hold"]);
    let part =
        |replicas| serde_json::json!({"template": pod_template(&["hold"]), "replicas": replicas});
    job.spec.collector = serde_json::from_value(part(collectors)).expect("collectors");
    job.spec.learner = serde_json::from_value(part(learners)).expect("learners");
    job
}

/// A pod template that runs `di-worker` with these arguments and a short grace period.
pub fn pod_template(args: &[&str]) -> serde_json::Value {
    serde_json::json!({"spec": {
        "terminationGracePeriodSeconds": 2,
        "containers": [container(args)],
    }})
}

/// Returns the status of a job.
///
/// # Panics
/// If the job is gone.
pub async fn status(namespace: &Namespace, job: &str) -> DIJobStatus {
    let api: Api<DIJob> = namespace.api();
    api.get(job)
        .await
        .expect("the job")
        .status
        .unwrap_or_default()
}

fn list_params(job: &str) -> ListParams {
    ListParams::default().labels(&format!("{}={job}", names::labels::JOB))
}

/// Pods of a job.
///
/// # Panics
/// If they cannot be listed.
pub async fn owned_pods(namespace: &Namespace, job: &str) -> Vec<Pod> {
    namespace
        .api::<Pod>()
        .list(&list_params(job))
        .await
        .expect("pods")
        .items
}

/// Names of the services of a job.
///
/// # Panics
/// If they cannot be listed.
pub async fn owned_services(namespace: &Namespace, job: &str) -> Vec<String> {
    let services = namespace
        .api::<Service>()
        .list(&list_params(job))
        .await
        .expect("services");
    services.iter().map(ResourceExt::name_any).collect()
}

/// Returns the log of the main container of a pod.
///
/// # Panics
/// If there is no log.
pub async fn logs(namespace: &Namespace, pod: &str) -> String {
    let params = LogParams {
        container: Some(names::MAIN_CONTAINER.to_owned()),
        ..LogParams::default()
    };
    namespace
        .api::<Pod>()
        .logs(pod, &params)
        .await
        .expect("logs")
}

/// Returns the log of a pod's only container; empty while it has not started.
pub async fn logs_so_far(namespace: &Namespace, pod: &str) -> String {
    let pods = namespace.api::<Pod>();
    let logs = pods.logs(pod, &LogParams::default()).await;
    logs.unwrap_or_default()
}

/// Whether the main container of a pod runs.
pub fn is_running(pod: &Pod) -> bool {
    let containers = pod
        .status
        .iter()
        .filter_map(|status| status.container_statuses.as_ref());
    containers.flatten().any(|container| {
        let state = container.state.as_ref();
        container.name == names::MAIN_CONTAINER
            && state.is_some_and(|state| state.running.is_some())
    })
}

/// Runs the image's program in the main container of a pod once that runs. Returns whether it
/// succeeded, and its output.
///
/// # Panics
/// If the container cannot be entered.
pub async fn exec(namespace: &Namespace, pod: &str, args: &[&str]) -> (bool, String) {
    let command: Vec<&str> = ["/app"].iter().chain(args).copied().collect();
    exec_command(namespace, pod, &command).await
}

/// Runs a command in the main container of a pod once that runs. Returns whether it succeeded, and
/// its output.
///
/// # Panics
/// If the container cannot be entered.
pub async fn exec_command(namespace: &Namespace, pod: &str, command: &[&str]) -> (bool, String) {
    let params = AttachParams::default().container(names::MAIN_CONTAINER);
    let pods: Api<Pod> = namespace.api();
    let runs = |found: &kube::Result<Pod>| found.as_ref().is_ok_and(is_running);
    eventually("running", || pods.get(pod), runs)
        .await
        .expect("the pod");
    let mut process = pods
        .exec(pod, command.to_vec(), &params)
        .await
        .expect("entered");
    let mut output = String::new();
    let mut stdout = process.stdout().expect("stdout");
    let mut stderr = process.stderr().expect("stderr");
    let status = process.take_status().expect("status");
    stdout.read_to_string(&mut output).await.expect("stdout");
    stderr.read_to_string(&mut output).await.expect("stderr");
    let ended = status.await.and_then(|status| status.status);
    (ended.as_deref() == Some("Success"), output)
}
