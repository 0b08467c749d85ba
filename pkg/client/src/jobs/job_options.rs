use di_api::{CleanPodPolicy, ReplicaResources, names};
use serde_json::{Map, Value, json};

use crate::Document;

/// Settings of a job that is created from flags instead of a manifest.
#[derive(Clone, Debug, Default)]
pub struct JobOptions {
    /// Name of the job.
    pub name: String,
    /// Image of every pod.
    pub image: String,
    /// Image pull policy of every pod.
    pub image_pull_policy: Option<String>,
    /// Command of every di-container instead of the command in the image.
    pub command: Vec<String>,
    /// Number of declared collectors. Without it the job can have no collectors, not even requested
    /// ones.
    pub collectors: Option<i32>,
    /// Number of declared learners, likewise.
    pub learners: Option<i32>,
    /// Resources of the coordinator.
    pub coordinator_resources: ReplicaResources,
    /// Resources of each collector.
    pub collector_resources: ReplicaResources,
    /// Resources of each learner.
    pub learner_resources: ReplicaResources,
    /// Node selector of every pod.
    pub node_selector: Vec<(String, String)>,
    /// Environment variables of every pod.
    pub env: Vec<(String, String)>,
    /// Labels of the job.
    pub labels: Vec<(String, String)>,
    /// Annotations of the job.
    pub annotations: Vec<(String, String)>,
    /// Job group (`spec.group`).
    pub group: Option<String>,
    /// Priority class of every pod.
    pub priority_class: Option<String>,
    /// Pods to delete after the end of the job.
    pub clean_pod_policy: Option<CleanPodPolicy>,
    /// Service account of every pod.
    pub service_account: Option<String>,
    /// Restarts of a failed coordinator before the job fails.
    pub backoff_limit: Option<i32>,
    /// Maximum run time in seconds.
    pub active_deadline_seconds: Option<i64>,
    /// Seconds until an ended job is deleted.
    pub ttl_seconds_after_finished: Option<i32>,
    /// Creates the job suspended.
    pub suspend: bool,
}

impl JobOptions {
    /// Builds the manifest.
    pub fn to_document(&self) -> Document {
        let mut spec = Map::new();
        let mut set = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                spec.insert(name.to_owned(), value);
            }
        };
        set("group", self.group.clone().map(Value::from));
        set(
            "priorityClassName",
            self.priority_class.clone().map(Value::from),
        );
        set(
            "cleanPodPolicy",
            self.clean_pod_policy.map(|policy| json!(policy)),
        );
        set("backoffLimit", self.backoff_limit.map(Value::from));
        set(
            "activeDeadlineSeconds",
            self.active_deadline_seconds.map(Value::from),
        );
        set(
            "ttlSecondsAfterFinished",
            self.ttl_seconds_after_finished.map(Value::from),
        );
        set("suspend", self.suspend.then_some(Value::from(true)));
        set(
            "coordinator",
            Some(json!({"template": self.pod_template(&self.coordinator_resources)})),
        );
        let replica_spec = |count: Option<i32>, resources: &ReplicaResources| {
            count.map(|count| json!({"replicas": count, "template": self.pod_template(resources)}))
        };
        set(
            "collector",
            replica_spec(self.collectors, &self.collector_resources),
        );
        set(
            "learner",
            replica_spec(self.learners, &self.learner_resources),
        );
        let mut metadata = json!({"name": self.name});
        let maps = [("labels", &self.labels), ("annotations", &self.annotations)];
        for (name, map) in maps.into_iter().filter(|(_, map)| !map.is_empty()) {
            metadata[name] = map.iter().cloned().collect();
        }
        Document {
            origin: self.name.clone(),
            object: json!({
                "apiVersion": format!("{}/{}", names::GROUP, names::VERSION),
                "kind": "DIJob",
                "metadata": metadata,
                "spec": spec,
            }),
        }
    }

    fn pod_template(&self, resources: &ReplicaResources) -> Value {
        let mut container = json!({"name": names::MAIN_CONTAINER, "image": self.image});
        if let Some(policy) = &self.image_pull_policy {
            container["imagePullPolicy"] = policy.as_str().into();
        }
        if !self.command.is_empty() {
            container["command"] = self.command.clone().into();
        }
        if !self.env.is_empty() {
            let env = self.env.iter();
            container["env"] = env
                .map(|(name, value)| json!({"name": name, "value": value}))
                .collect();
        }
        if !resources.is_empty() {
            let all: Map<_, _> = resources
                .named_quantities()
                .map(|(name, quantity)| (name.to_owned(), quantity.0.clone().into()))
                .collect();
            container["resources"] = json!({"requests": all, "limits": all});
        }
        let mut pod = json!({"containers": [container]});
        if let Some(account) = &self.service_account {
            pod["serviceAccountName"] = account.as_str().into();
        }
        if !self.node_selector.is_empty() {
            pod["nodeSelector"] = self.node_selector.iter().cloned().collect();
        }
        json!({"spec": pod})
    }
}

#[cfg(test)]
mod tests {
    use di_api::{Role, validation};
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

    use super::*;

    #[test]
    fn job_options_make_valid_job() {
        let quantity = |text: &str| Quantity(text.to_owned());
        let resources = |gpus: Option<&str>| ReplicaResources {
            gpus: gpus.map(quantity),
            memory: Some(quantity("1Gi")),
            cpus: None,
        };
        let options = JobOptions {
            name: "cartpole".into(),
            image: "i".into(),
            command: vec!["train".into()],
            collectors: Some(4),
            learners: Some(1),
            coordinator_resources: resources(None),
            learner_resources: resources(Some("2")),
            env: vec![("K".into(), "V".into())],
            labels: vec![("team".into(), "rl".into())],
            clean_pod_policy: Some(CleanPodPolicy::All),
            ..JobOptions::default()
        };
        let valid = validation::validate_dijob(&options.to_document().object).unwrap();
        let job = valid.object;
        assert_eq!(job.spec.declared(Role::Collector).unwrap().replicas, 4);
        assert_eq!(job.spec.learner_gpus(&ReplicaResources::default()), 2);
        let main_container = |role: Role| {
            let template = job.spec.declared(role).unwrap().template.decode();
            template.unwrap().spec.unwrap().containers[0].clone()
        };
        let limits = main_container(Role::Coordinator)
            .resources
            .unwrap()
            .limits
            .unwrap();
        assert_eq!(limits.keys().collect::<Vec<_>>(), ["memory"]);
        assert_eq!(main_container(Role::Collector).command.unwrap(), ["train"]);
    }

    #[test]
    fn coordinator_only_job_has_no_replica_specs() {
        let options = JobOptions {
            name: "serial".into(),
            image: "i".into(),
            ..JobOptions::default()
        };
        assert_eq!(
            options.to_document().object["spec"],
            json!({"coordinator": {"template": {"spec": {"containers": [{"name": "di-container", "image": "i"}]}}}})
        );
    }
}
