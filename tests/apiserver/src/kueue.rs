use std::{collections::BTreeMap, mem};

use di_api::{
    GPU_RESOURCE,
    names::kueue::{PRIORITY_CLASS_LABEL, QUEUE_LABEL},
};
use di_queue_stand_in::{
    QueueController, QuotaMonitor, cluster_queue, create, flavor, install, local_queue, objects,
    priority_class, uninstall,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::json;
use tokio::sync::OnceCell;

use crate::{Job, Server, Space, eventually, install::apply, slot_resource, space::list_by_name};

/// Version of Kueue's API on the shared server.
const SHARED_VERSION: &str = "v1beta2";
/// Name of the LocalQueue of each test.
const LOCAL_QUEUE: &str = "team";
/// Quota of the resources that have enough quota for all pods of a test.
const ENOUGH: &str = "1000";

/// The same job in the LocalQueue of its namespace.
pub fn in_queue(job: Job) -> Job {
    job.metadata(json!({"labels": {(QUEUE_LABEL): LOCAL_QUEUE}}))
}

/// A job in the LocalQueue of its namespace.
pub fn queued_job(name: &str, collectors: usize) -> Job {
    in_queue(Job::new(name, collectors))
}

/// The same as `queued_job` with a WorkloadPriorityClass.
pub fn queued_job_with_priority(name: &str, collectors: usize, class: &str) -> Job {
    queued_job(name, collectors).metadata(json!({"labels": {(PRIORITY_CLASS_LABEL): class}}))
}

/// Reason of a condition of a Workload; `None` unless it is True.
pub fn condition_reason<'a>(workload: &'a DynamicObject, type_: &str) -> Option<&'a str> {
    let conditions = workload.data["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    let found = conditions.find(|condition| condition["type"] == type_)?;
    found["reason"]
        .as_str()
        .filter(|_| found["status"] == "True")
}

/// Installs Kueue's API in this version on a server.
pub async fn install_kueue(server: &Server, version: &str) {
    install(&server.client("installs"), version).await;
}

/// Removes Kueue's API with all its objects from a server.
pub async fn uninstall_kueue(server: &Server) {
    uninstall(&server.client("installs")).await;
}

/// Grants managers the permissions for Kueue's API, which is installed in this version.
pub async fn grant_kueue_permissions(server: &Server, version: &str) {
    apply(&server.client("installs"), "kueue/role.yaml").await;
    let client = server.client_of_manager("installs", "default");
    let workloads = objects(&client, version, "Workload", Some("default"));
    // The API server applies new roles with a delay, and a manager retries only after a minute.
    eventually("managers may list Workloads", async || {
        let listed = workloads.list(&ListParams::default()).await;
        listed.map(drop).map_err(|error| error.to_string())
    })
    .await;
}

/// A queue with a quota of pods for the namespace of a test, and the stand-in for Kueue's
/// controller. GPUs and the slots of gangs have enough quota.
pub struct Kueue {
    space: Space,
    version: &'static str,
    cluster_queue: String,
    /// Namespaces with a LocalQueue.
    namespaces: Vec<String>,
    controller: QueueController,
    monitor: QuotaMonitor,
}

impl Kueue {
    /// Starts on the shared server, with one flavor and a quota of this number of pods.
    pub async fn start(space: &Space, pods: usize) -> Self {
        Self::start_with_flavors(space, &[(default_flavor(space), pods)]).await
    }

    /// Starts on the shared server, with these flavors and their quotas of pods. The first flavor
    /// is preferred.
    pub async fn start_with_flavors(space: &Space, flavors: &[(DynamicObject, usize)]) -> Self {
        static INSTALLED: OnceCell<()> = OnceCell::const_new();
        let server = Server::shared().await;
        INSTALLED
            .get_or_init(async || {
                install_kueue(server, SHARED_VERSION).await;
                grant_kueue_permissions(server, SHARED_VERSION).await;
            })
            .await;
        Self::start_in(space, SHARED_VERSION, flavors).await
    }

    /// Starts on a server where Kueue's API is installed in this version.
    pub async fn start_on_own_server(space: &Space, version: &'static str, pods: usize) -> Self {
        Self::start_in(space, version, &[(default_flavor(space), pods)]).await
    }

    async fn start_in(
        space: &Space,
        version: &'static str,
        flavors: &[(DynamicObject, usize)],
    ) -> Self {
        for (flavor, _) in flavors {
            create(&space.client, flavor.clone()).await;
        }
        let queue = new_cluster_queue(space, flavors);
        let cluster_queue = queue.name_any();
        create(&space.client, queue).await;
        let queue = local_queue(&space.namespace, LOCAL_QUEUE, &cluster_queue);
        create(&space.client, queue).await;
        let namespaces = vec![space.namespace.clone()];
        Self {
            monitor: QuotaMonitor::start(&space.client, &namespaces, version).await,
            controller: start_controller(controller_client(space), &namespaces, version),
            space: space.clone(),
            version,
            cluster_queue,
            namespaces,
        }
    }

    /// Adds a LocalQueue of the same ClusterQueue in another namespace, before there are pods.
    pub async fn add_local_queue(&mut self, namespace: &str) {
        let queue = local_queue(namespace, LOCAL_QUEUE, &self.cluster_queue);
        create(&self.space.client, queue).await;
        self.namespaces.push(namespace.to_owned());
        self.restart_controller();
        self.restart_monitor().await;
    }

    /// Name of the ClusterQueue.
    pub fn cluster_queue(&self) -> &str {
        &self.cluster_queue
    }

    /// Replaces the controller by a new one without a graceful stop.
    pub fn restart_controller(&mut self) {
        self.restart_controller_with(controller_client(&self.space));
    }

    /// The same as `restart_controller` with another client, such as that of a proxy.
    pub fn restart_controller_with(&mut self, client: Client) {
        let next = start_controller(client, &self.namespaces, self.version);
        drop(mem::replace(&mut self.controller, next));
    }

    /// Raises the quota of a queue with one flavor.
    pub async fn raise_quota(&mut self, pods: usize) {
        // A monitor reads the quota once.
        self.check().await;
        let queue = new_cluster_queue(&self.space, &[(default_flavor(&self.space), pods)]);
        let groups = &queue.data["spec"]["resourceGroups"];
        let patch = Patch::Merge(json!({"spec": {"resourceGroups": groups}}));
        let queues = objects(&self.space.client, self.version, "ClusterQueue", None);
        let params = PatchParams::default();
        queues
            .patch(&self.cluster_queue, &params, &patch)
            .await
            .unwrap();
        self.restart_monitor().await;
    }

    async fn restart_monitor(&mut self) {
        let client = &self.space.client;
        self.monitor = QuotaMonitor::start(client, &self.namespaces, self.version).await;
    }

    /// Creates a WorkloadPriorityClass for this test, and returns its name.
    pub async fn create_priority_class(&self, name: &str, value: i32) -> String {
        let name = unique_name(&self.space, name);
        create(&self.space.client, priority_class(&name, value)).await;
        name
    }

    /// API of the Workloads.
    pub fn workloads(&self) -> Api<DynamicObject> {
        let namespace = Some(self.space.namespace.as_str());
        objects(&self.space.client, self.version, "Workload", namespace)
    }

    /// Workloads of a job, by name.
    pub async fn workloads_of(&self, job: &str) -> BTreeMap<String, DynamicObject> {
        list_by_name(&self.workloads(), job).await
    }

    /// Waits until a Workload satisfies `done`, and returns it.
    pub async fn until_workload(
        &self,
        name: &str,
        description: &str,
        done: impl Fn(&DynamicObject) -> bool,
    ) -> DynamicObject {
        let workloads = self.workloads();
        eventually(&format!("{name}: {description}"), async || {
            let found = workloads.get(name).await;
            let found = found.map_err(|error| error.to_string())?;
            if done(&found) {
                Ok(found)
            } else {
                Err(found.data.to_string())
            }
        })
        .await
    }

    /// Activates or deactivates a Workload, as an administrator does.
    pub async fn set_active(&self, workload: &str, active: bool) {
        let patch = Patch::Merge(json!({"spec": {"active": active}}));
        let params = PatchParams::default();
        let workloads = self.workloads();
        workloads.patch(workload, &params, &patch).await.unwrap();
    }

    /// Checks that in each namespace jobs were admitted, that up to now pods of jobs in a queue had
    /// quota and together did not exceed it, and that Workloads kept to Kueue's rules.
    pub async fn check(&self) {
        self.monitor.check().await;
    }
}

fn controller_client(space: &Space) -> Client {
    space.server.client("kueue")
}

fn start_controller(client: Client, namespaces: &[String], version: &str) -> QueueController {
    QueueController::start_for_namespaces(client, namespaces.to_vec(), version)
}

/// Returns a name for an object that all tests of the server see.
fn unique_name(space: &Space, name: &str) -> String {
    format!("{name}-{}", space.namespace)
}

fn default_flavor(space: &Space) -> DynamicObject {
    flavor(&unique_name(space, "default"), &[])
}

fn new_cluster_queue(space: &Space, flavors: &[(DynamicObject, usize)]) -> DynamicObject {
    let flavors = flavors.iter();
    let flavors: Vec<(String, String)> = flavors
        .map(|(flavor, pods)| (flavor.name_any(), pods.to_string()))
        .collect();
    let slots = slot_resource(space);
    let quotas = flavors.iter().map(|(_, pods)| {
        [
            ("pods", pods.as_str()),
            (GPU_RESOURCE, ENOUGH),
            (slots.as_str(), ENOUGH),
        ]
    });
    let quotas: Vec<[(&str, &str); 3]> = quotas.collect();
    let with_quotas = flavors.iter().zip(&quotas);
    let with_quotas: Vec<(&str, &[(&str, &str)])> = with_quotas
        .map(|((flavor, _), quota)| (flavor.as_str(), quota.as_slice()))
        .collect();
    cluster_queue(&unique_name(space, "team"), &with_quotas, true)
}
