//! Jobs that run DI-engine's own client classes: `tests/di-engine`.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use di_api::{DIJob, Phase, Role, names};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{Namespace, eventually, send_http, status};

/// Port of the programs' control server.
const CONTROL_PORT: u16 = 8000;
/// Limit for steps that take DI-engine seconds. It is below the two minutes that DI-engine spends
/// on one unresponsive replica.
const SOON: Duration = Duration::from_secs(100);
const GPU: &str = "nvidia.com/gpu";
const PROGRAMS: [(&str, &str); 7] = [
    (
        "client.py",
        include_str!("../../di-engine/programs/client.py"),
    ),
    (
        "coordinator.py",
        include_str!("../../di-engine/programs/coordinator.py"),
    ),
    (
        "replica.py",
        include_str!("../../di-engine/programs/replica.py"),
    ),
    (
        "aggregator.py",
        include_str!("../../di-engine/programs/aggregator.py"),
    ),
    (
        "command_line.py",
        include_str!("../../di-engine/programs/command_line.py"),
    ),
    (
        "ditask.py",
        include_str!("../../di-engine/programs/ditask.py"),
    ),
    (
        "greetings.py",
        include_str!("../../di-engine/programs/greetings.py"),
    ),
];

/// A job that runs DI-engine's client.
pub struct Workload(pub DIJob);

impl Workload {
    /// A job whose coordinator sends this request at its start, and waits for this number of
    /// replicas.
    ///
    /// # Panics
    /// Never: the JSON is fixed.
    pub fn new(name: &str, request: &Value, collectors: usize, learners: usize) -> Self {
        let enough = [collectors.to_string(), learners.to_string()];
        let command = [
            "python3",
            "/programs/coordinator.py",
            &request.to_string(),
            &enough[0],
            &enough[1],
        ];
        let mut replica = Self::template(&["python3", "/programs/replica.py"]);
        // DI-engine disconnects removed replicas late, and their logs are deleted with their pods.
        replica["spec"]["terminationGracePeriodSeconds"] = json!(300);
        let job = json!({
            "apiVersion": "diengine.opendilab.org/v1alpha2",
            "kind": "DIJob",
            "metadata": {"name": name},
            "spec": {
                "volumes": Self::volumes(),
                "coordinator": {"template": Self::template(&command)},
                "collector": {"template": replica},
                "learner": {"template": replica},
            },
        });
        Self(serde_json::from_value(job).expect("a job"))
    }

    /// A template that runs this command with the programs mounted.
    pub fn template(command: &[&str]) -> Value {
        json!({"spec": {"containers": [{
            "name": names::MAIN_CONTAINER,
            "image": "di-engine-client:dev",
            "command": command,
            "volumeMounts": [{"name": "programs", "mountPath": "/programs"}],
            "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
        }]}})
    }

    /// Volumes that mount the programs.
    pub fn volumes() -> Value {
        json!([{"name": "programs", "configMap": {"name": "programs"}}])
    }

    /// Creates the ConfigMap of the programs and submits the job.
    ///
    /// # Panics
    /// If the API server rejects it.
    pub async fn submit(self, namespace: &Namespace) -> Coordinator {
        create_programs(namespace).await;
        let job = namespace.submit(&self.0).await;
        let job = job.metadata.name.expect("a name");
        Coordinator {
            namespace: namespace.clone(),
            job,
        }
    }
}

/// Creates the ConfigMap of the programs.
///
/// # Panics
/// If the API server rejects it.
pub async fn create_programs(namespace: &Namespace) {
    let programs: ConfigMap = serde_json::from_value(json!({
        "metadata": {"name": "programs"},
        "data": PROGRAMS.iter().copied().collect::<BTreeMap<_, _>>(),
    }))
    .expect("a config map");
    let new = PostParams::default();
    namespace
        .api()
        .create(&new, &programs)
        .await
        .expect("programs");
}

/// The state of DI-engine's client: its connections by URL, and its sync thread.
#[derive(Clone, Debug, Deserialize)]
pub struct ClientState {
    /// Whether its start has returned because it has enough replicas.
    #[serde(default)]
    pub started: bool,
    /// Whether its sync thread is alive.
    pub sync_alive: bool,
    /// Collectors that it is connected to.
    #[serde(default)]
    pub collectors: BTreeSet<String>,
    /// Learners that it is connected to.
    pub learners: BTreeSet<String>,
    /// Its last log lines.
    pub log: Vec<String>,
}

/// DI-engine's coordinator in a job.
pub struct Coordinator {
    namespace: Namespace,
    /// Name of the job.
    pub job: String,
}

impl Coordinator {
    /// Name of its pod.
    pub fn pod_name(&self) -> String {
        names::coordinator_name(&self.job)
    }

    /// Returns its state; `None` while it starts.
    ///
    /// # Panics
    /// If the response has another form.
    pub async fn observe(&self) -> Option<ClientState> {
        observe(&self.namespace, &self.pod_name()).await
    }

    /// Returns its state once it responds.
    ///
    /// # Panics
    /// If it does not respond.
    pub async fn state(&self) -> ClientState {
        let seen = eventually("the program responds", || self.observe(), Option::is_some).await;
        seen.expect("seen")
    }

    /// Waits until its state satisfies `done`.
    ///
    /// # Panics
    /// If that takes too long, or its sync thread has ended.
    pub async fn wait_until(
        &self,
        description: &str,
        done: impl Fn(&ClientState) -> bool,
    ) -> ClientState {
        let dead = |seen: &ClientState| seen.started && !seen.sync_alive;
        let seen = eventually(
            description,
            || self.observe(),
            |seen| seen.as_ref().is_some_and(|seen| done(seen) || dead(seen)),
        )
        .await
        .expect("seen");
        assert!(done(&seen) && !dead(&seen), "{description}: {seen:#?}");
        seen
    }

    /// The same as `wait_until` with a limit for quick steps.
    ///
    /// # Panics
    /// If that takes too long, or its sync thread has ended.
    pub async fn wait_until_soon(
        &self,
        description: &str,
        done: impl Fn(&ClientState) -> bool,
    ) -> ClientState {
        tokio::time::timeout(SOON, self.wait_until(description, done))
            .await
            .unwrap_or_else(|_| panic!("not {description} within {SOON:?}"))
    }

    /// Calls the endpoint through a method of DI-engine's `OperatorServer`, and returns `{success,
    /// code, message, data}`.
    ///
    /// # Panics
    /// If DI-engine raises an exception.
    pub async fn call(&self, method: &str, arguments: &Value) -> Value {
        self.post_command("/call", &json!({"method": method, "arguments": arguments}))
            .await
    }

    /// Makes DI-engine report these URLs as failed, as it does when it cannot connect.
    ///
    /// # Panics
    /// If it cannot be reached.
    pub async fn give_up(&self, urls: &Value) {
        self.post_command("/give-up", urls).await;
    }

    async fn post_command(&self, path: &str, body: &Value) -> Value {
        post_command(&self.namespace, &self.pod_name(), path, body).await
    }

    /// Ends the training with a live sync thread: exit code 0, and the job succeeds.
    ///
    /// # Panics
    /// If one of these conditions fails.
    pub async fn close_cleanly(&self) {
        let seen = self.state().await;
        assert!(seen.sync_alive, "{seen:#?}");
        self.close().await;
    }

    /// Ends the training: exit code 0, and the job succeeds.
    ///
    /// # Panics
    /// If one of these conditions fails.
    pub async fn close(&self) {
        self.post_command("/close", &json!({})).await;
        let over = |status: &di_api::DIJobStatus| status.completion_time.is_some();
        let ended = eventually("ended", || status(&self.namespace, &self.job), over).await;
        assert_eq!(ended.phase, Some(Phase::Succeeded));
        // Replicas have a long grace period, so delete them now.
        let now = DeleteParams::default().grace_period(0);
        let pods = self.namespace.api::<Pod>();
        let all = pods.delete_collection(&now, &ListParams::default()).await;
        all.expect("pods");
    }

    /// URLs of the desired replicas in the plan.
    pub async fn planned_urls(&self, role: Role, port: i32) -> BTreeSet<String> {
        let plan = status(&self.namespace, &self.job).await.plan;
        let wanted = plan
            .iter()
            .filter(|entry| entry.role == role && entry.is_wanted());
        wanted
            .map(|entry| names::replica_url(&entry.name, &self.namespace.name, port))
            .collect()
    }
}

/// Sets the number of GPUs of every node, as a device plugin does. No program here uses them.
///
/// # Panics
/// If the node status cannot be written.
pub async fn set_node_gpus(namespace: &Namespace, number: usize) {
    let nodes: Api<Node> = Api::all(namespace.client.clone());
    let all = nodes.list(&ListParams::default()).await.expect("nodes");
    let gpus = json!({GPU: number.to_string()});
    let status = json!({"status": {"capacity": gpus, "allocatable": gpus}});
    for node in all {
        nodes
            .patch_status(
                &node.name_any(),
                &PatchParams::default(),
                &Patch::Merge(&status),
            )
            .await
            .expect("GPUs");
    }
}

/// Returns the state of a coordinator or an aggregator; `None` while it starts.
///
/// # Panics
/// If the response has another form.
pub async fn observe(namespace: &Namespace, pod: &str) -> Option<ClientState> {
    let reply = send_http(
        &namespace.api::<Pod>(),
        pod,
        CONTROL_PORT,
        "GET",
        "/state",
        None,
        &json!({}),
    )
    .await?;
    Some(serde_json::from_value(reply.body).expect("the client state"))
}

/// Sends a command to a coordinator or an aggregator.
///
/// # Panics
/// If DI-engine raises an exception.
pub async fn post_command(namespace: &Namespace, pod: &str, path: &str, body: &Value) -> Value {
    let pods = namespace.api::<Pod>();
    let reply = send_http(&pods, pod, CONTROL_PORT, "POST", path, None, body)
        .await
        .expect("an answer");
    assert_eq!(reply.status, 200, "{path} {body}: {reply:?}");
    reply.body
}
