use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use di_api::{DIJob, DIJobStatus, Phase, Reason, names};
use di_controller::Settings;
use k8s_openapi::api::{
    core::v1::{Namespace, Pod, Service},
    events::v1::Event,
    rbac::v1::RoleBinding,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams, ObjectMeta, PostParams},
};
use serde_json::json;

use crate::{
    Job, Manager, Proxy, Server, Write, audit, eventually,
    random_faults::{RandomFaults, fault_percent},
};

/// Label with the name of a test's namespace. The webhooks of the test select namespaces by it, also
/// others than its own. API servers since 1.21 reset `kubernetes.io/metadata.name`.
pub const SPACE_LABEL: &str = "tests.opendilab.org/space";

/// A namespace of one test on the shared server.
#[derive(Clone)]
pub struct Space {
    /// The server.
    pub server: &'static Server,
    /// Name of the namespace.
    pub namespace: String,
    /// Client of a cluster administrator.
    pub client: Client,
    /// Length of the audit log when the namespace was created; earlier lines are skipped.
    audit_offset: u64,
    /// Whether random faults apply.
    may_fail: bool,
}

impl Space {
    /// Creates a namespace on the shared server.
    pub async fn new() -> Self {
        Self::on(Server::shared().await).await
    }

    /// Creates a namespace on this server.
    pub async fn on(server: &'static Server) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let client = server.client("test");
        let audit_offset = server.audit_log_length();
        let namespace = format!("test-{:03}-ns", COUNT.fetch_add(1, Relaxed));
        let object = Namespace {
            metadata: ObjectMeta {
                name: Some(namespace.clone()),
                labels: Some([(SPACE_LABEL.to_owned(), namespace.clone())].into()),
                ..ObjectMeta::default()
            },
            ..Namespace::default()
        };
        let api: Api<Namespace> = Api::all(client.clone());
        api.create(&PostParams::default(), &object).await.unwrap();
        Self {
            server,
            namespace,
            client,
            audit_offset,
            may_fail: true,
        }
    }

    /// Disables random faults for a test that measures something they would change.
    #[must_use]
    pub fn without_random_faults(mut self, why: &str) -> Self {
        if fault_percent() > 0 {
            println!("without faults: {why}");
        }
        self.may_fail = false;
        self
    }

    /// Binds a user to a ClusterRole in this namespace.
    pub async fn bind_cluster_role(&self, user: &str, role: &str) {
        let group = "rbac.authorization.k8s.io";
        let binding = serde_json::from_value(json!({
            "metadata": {"name": user},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
        }));
        let api: Api<RoleBinding> = Api::namespaced(self.client.clone(), &self.namespace);
        api.create(&PostParams::default(), &binding.unwrap())
            .await
            .unwrap();
    }

    /// Starts a manager with this user agent.
    pub fn manager(&self, agent: &str) -> Manager {
        self.manager_with(agent, Settings::default())
    }

    /// Starts a manager with this user agent and these settings.
    pub fn manager_with(&self, agent: &str, settings: Settings) -> Manager {
        let (client, proxy) = self.client_of(agent);
        Manager::start_with(client, settings).with_proxy(proxy)
    }

    /// Returns a client with the manager's permissions. With random faults it uses a proxy, which
    /// the caller must keep.
    pub(crate) fn client_of(&self, agent: &str) -> (Client, Option<Proxy>) {
        let client = self.server.client_of_manager(agent, &self.namespace);
        let faults = if self.may_fail {
            RandomFaults::from_env(agent)
        } else {
            None
        };
        let Some(faults) = faults else {
            return (client, None);
        };
        let proxy = Proxy::start(client);
        proxy.set_rule(move |request| faults.draw(request));
        (proxy.client(), Some(proxy))
    }

    /// API of the jobs.
    pub fn jobs(&self) -> Api<DIJob> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// API of the jobs in a version, also for undecodable jobs.
    pub fn dynamic_jobs(&self, version: &str) -> Api<DynamicObject> {
        let resource = ApiResource {
            api_version: format!("{}/{version}", names::GROUP),
            version: version.to_owned(),
            ..ApiResource::erase::<DIJob>(&())
        };
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    /// API of the pods.
    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// API of the services.
    pub fn services(&self) -> Api<Service> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Creates a job.
    pub async fn create(&self, job: &Job) -> DIJob {
        let job: DIJob = job.clone().build();
        let params = PostParams::default();
        self.jobs().create(&params, &job).await.unwrap()
    }

    /// Waits until the job status satisfies `done`, and returns it.
    pub async fn until(
        &self,
        job: &str,
        description: &str,
        done: impl Fn(&DIJobStatus) -> bool,
    ) -> DIJobStatus {
        eventually(&format!("{job}: {description}"), async || {
            let found = self.jobs().get(job).await;
            let status = found.map_err(|error| error.to_string())?.status;
            let status = status.unwrap_or_default();
            if done(&status) {
                Ok(status)
            } else {
                Err(serde_json::to_string(&status).unwrap())
            }
        })
        .await
    }

    /// Waits for a phase.
    pub async fn until_phase(&self, job: &str, phase: Phase) -> DIJobStatus {
        let done = |status: &DIJobStatus| status.phase == Some(phase);
        self.until(job, phase.as_str(), done).await
    }

    /// Waits until the job runs, all desired replicas are ready, and the status counts them.
    pub async fn until_settled(&self, job: &str) -> DIJobStatus {
        self.until(job, "everything is ready", |status| {
            let active: i32 = status.replica_status.values().map(|n| n.active).sum();
            let wanted = status.plan.iter().filter(|e| e.is_wanted()).count();
            status.phase == Some(Phase::Running)
                && status.plan.iter().all(|e| e.is_wanted() && e.uid.is_some())
                && i32::try_from(wanted).unwrap() + 1 == active
                && status.collectors_ready.as_deref()
                    == Some(&format!("{0}/{0}", status.collectors))
                && status.learners_ready.as_deref() == Some(&format!("{0}/{0}", status.learners))
                && di_api::is_condition_true(
                    &status.conditions,
                    di_api::ConditionType::ReplicasReady,
                )
        })
        .await
    }

    /// Pods of a job, by name.
    pub async fn pods_of(&self, job: &str) -> BTreeMap<String, Pod> {
        list_by_name(&self.pods(), job).await
    }

    /// Services of a job, by name.
    pub async fn services_of(&self, job: &str) -> BTreeMap<String, Service> {
        list_by_name(&self.services(), job).await
    }

    /// Reasons of the events of a job.
    pub async fn events_of(&self, job: &str) -> Vec<String> {
        self.event_reasons(job, |_| true).await
    }

    /// Reasons of the warning events of a job. With random faults it omits their reasons and
    /// duplicates, since an event with a lost response is sent again.
    pub async fn warnings_of(&self, job: &str) -> Vec<String> {
        let warns = |event: &Event| event.type_.as_deref() == Some("Warning");
        let mut reasons = self.event_reasons(job, warns).await;
        if fault_percent() > 0 {
            let of_faults = [Reason::ApiError, Reason::Timeout].map(|reason| reason.to_string());
            reasons.retain(|reason| !of_faults.contains(reason));
            reasons.sort();
            reasons.dedup();
        }
        reasons
    }

    async fn event_reasons(&self, job: &str, which: impl Fn(&Event) -> bool) -> Vec<String> {
        let api: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        let events = api.list(&ListParams::default()).await.unwrap();
        let about = |event: &Event| {
            let regarding = event.regarding.as_ref()?;
            (regarding.name.as_deref() == Some(job)).then(|| event.reason.clone())?
        };
        let events = events.items.iter().filter(|event| which(event));
        events.filter_map(about).collect()
    }

    /// Waits for an event of a job.
    pub async fn until_event(&self, job: &str, reason: &str) {
        eventually(&format!("{job}: an event {reason}"), async || {
            let all = self.events_of(job).await;
            if all.iter().any(|event| event == reason) {
                Ok(())
            } else {
                Err(all.join(" "))
            }
        })
        .await;
    }

    /// Returns all writes in the namespace, in the order of their responses.
    pub async fn writes(&self) -> Vec<Write> {
        let log = self.server.audit_log();
        audit::writes(&log, self.audit_offset, &self.client, &self.namespace).await
    }

    /// Returns the writes of one user agent.
    pub async fn writes_of(&self, agent: &str) -> Vec<Write> {
        let mut writes = self.writes().await;
        writes.retain(|write| write.agent == agent);
        writes
    }
}

/// Lists the objects with the label of a job, by name.
pub(crate) async fn list_by_name<K>(api: &Api<K>, job: &str) -> BTreeMap<String, K>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let params = ListParams::default().labels(&format!("dijob-name={job}"));
    let all = eventually("objects are listed", async || {
        let all = api.list(&params).await;
        all.map_err(|error| error.to_string())
    })
    .await;
    all.into_iter().map(|k| (k.name_any(), k)).collect()
}

/// Waits until exactly these objects of a job exist.
pub async fn wait_for_objects<K: std::fmt::Debug>(
    description: &str,
    wanted: &[String],
    mut list: impl AsyncFnMut() -> BTreeMap<String, K>,
) -> BTreeMap<String, K> {
    let mut wanted = wanted.to_vec();
    wanted.sort();
    eventually(&format!("{description} are {wanted:?}"), async || {
        let found = list().await;
        if found.keys().eq(&wanted) {
            Ok(found)
        } else {
            Err(format!("{:?}", found.keys()))
        }
    })
    .await
}
