use std::{collections::BTreeMap, mem};

use di_controller::Settings;
use di_gang_stand_in::{GangScheduler, SCHEDULER_NAME, install, pod_groups};
use di_plan::BuildSettings;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::sync::OnceCell;

use crate::{Job, Manager, Server, Space, eventually, install::apply, space::list_by_name};

/// Settings of a manager whose gang scheduler is the stand-in.
pub fn gang_settings() -> Settings {
    let scheduler = format!("coscheduling:{SCHEDULER_NAME}");
    Settings {
        build: BuildSettings {
            gang: Some(scheduler.parse().unwrap()),
            ..BuildSettings::default()
        },
        ..Settings::default()
    }
}

/// The resource that each pod of a gang job in the namespace of a test requests once.
pub fn slot_resource(space: &Space) -> String {
    format!("di-tests/{}", space.namespace)
}

/// A job all of whose pods start together. Each one needs a slot.
pub fn gang_job(space: &Space, name: &str, collectors: usize) -> Job {
    let slot = json!({"limits": {(slot_resource(space)): "1"}});
    let job = Job::new(name, collectors).with(|spec| {
        for role in ["coordinator", "collector"] {
            let container = &mut spec[role]["template"]["spec"]["containers"][0];
            container["resources"] = slot.clone();
        }
    });
    job.spec(json!({"scheduling": {"gang": {}}}))
}

/// Installs the API of PodGroups on a server.
pub async fn install_gangs(server: &Server) {
    install(&server.client("installs")).await;
}

/// Grants managers the permissions for PodGroups, whose API is installed.
pub async fn grant_gang_permissions(server: &Server) {
    apply(&server.client("installs"), "gang/role.yaml").await;
    let client = server.client_of_manager("installs", "default");
    let groups = pod_groups(&client, "default");
    // The API server applies new roles with a delay, and a manager retries only after a minute.
    eventually("managers may list PodGroups", async || {
        let listed = groups.list(&ListParams::default()).await;
        listed.map(drop).map_err(|error| error.to_string())
    })
    .await;
}

/// A node for the gang jobs of one namespace, and the stand-in for coscheduling.
pub struct Gangs {
    space: Space,
    scheduler: GangScheduler,
}

impl Gangs {
    /// Starts on the shared server, with slots for this number of pods.
    pub async fn start(space: &Space, slots: usize) -> Self {
        static INSTALLED: OnceCell<()> = OnceCell::const_new();
        let server = Server::shared().await;
        INSTALLED
            .get_or_init(async || {
                install_gangs(server).await;
                grant_gang_permissions(server).await;
            })
            .await;
        Self::start_on_own_server(space, slots).await
    }

    /// Starts on a server where the API of PodGroups is installed.
    pub async fn start_on_own_server(space: &Space, slots: usize) -> Self {
        let nodes: Api<Node> = Api::all(space.client.clone());
        let name = &space.namespace;
        let node = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        nodes.create(&PostParams::default(), &node).await.unwrap();
        // The API server taints new nodes as not ready.
        let ready = Patch::Merge(json!({"spec": {"taints": null}}));
        let params = PatchParams::default();
        nodes.patch(name, &params, &ready).await.unwrap();
        let gangs = Self {
            scheduler: GangScheduler::start(scheduler_client(space), &space.namespace),
            space: space.clone(),
        };
        gangs.set_slots(slots).await;
        gangs
    }

    /// Replaces the stand-in by a new one without a graceful stop.
    pub fn restart_scheduler(&mut self) {
        self.restart_scheduler_with(scheduler_client(&self.space));
    }

    /// The same as `restart_scheduler` with another client, such as that of a proxy.
    pub fn restart_scheduler_with(&mut self, client: Client) {
        let next = GangScheduler::start(client, &self.space.namespace);
        drop(mem::replace(&mut self.scheduler, next));
    }

    /// Starts a manager that uses the stand-in.
    pub fn manager(&self, agent: &str) -> Manager {
        self.space.manager_with(agent, gang_settings())
    }

    /// Changes for how many pods the node has slots.
    pub async fn set_slots(&self, slots: usize) {
        let nodes: Api<Node> = Api::all(self.space.client.clone());
        let amounts = json!({"pods": "110", (slot_resource(&self.space)): slots.to_string()});
        let status = json!({"status": {"capacity": amounts, "allocatable": amounts}});
        let params = PatchParams::default();
        let patch = Patch::Merge(status);
        nodes
            .patch_status(&self.space.namespace, &params, &patch)
            .await
            .unwrap();
    }

    /// API of the PodGroups.
    pub fn groups(&self) -> Api<DynamicObject> {
        pod_groups(&self.space.client, &self.space.namespace)
    }

    /// PodGroups of a job, by name.
    pub async fn groups_of(&self, job: &str) -> BTreeMap<String, DynamicObject> {
        list_by_name(&self.groups(), job).await
    }
}

fn scheduler_client(space: &Space) -> Client {
    space.server.client("scheduler")
}
