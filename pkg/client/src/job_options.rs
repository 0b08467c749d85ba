use di_api::{CleanPodPolicy, ReplicaResources, names};
use serde_json::{Map, Value, json};

use crate::Document;

/// A job that is told of in a few words instead of a manifest.
#[derive(Clone, Debug, Default)]
pub struct JobOptions {
    /// Its name.
    pub name: String,
    /// Image of every pod.
    pub image: String,
    /// When kubelets pull it, where that is told.
    pub image_pull_policy: Option<String>,
    /// What every di-container runs instead of what the image says.
    pub command: Vec<String>,
    /// Collectors from the start; with none at all, there are none to be requested either.
    pub collectors: Option<i32>,
    /// The same of learners.
    pub learners: Option<i32>,
    /// What the coordinator needs.
    pub coordinator_resources: ReplicaResources,
    /// What each collector needs.
    pub collector_resources: ReplicaResources,
    /// What each learner needs.
    pub learner_resources: ReplicaResources,
    /// Nodes that every pod may run on, by their labels.
    pub node_selector: Vec<(String, String)>,
    /// Environment of every pod.
    pub env: Vec<(String, String)>,
    /// Labels of the job.
    pub labels: Vec<(String, String)>,
    /// Annotations of the job.
    pub annotations: Vec<(String, String)>,
    /// Collection of jobs that it belongs to.
    pub group: Option<String>,
    /// Priority class of every pod.
    pub priority_class: Option<String>,
    /// What is left at its end.
    pub clean_pod_policy: Option<CleanPodPolicy>,
    /// Service account of every pod.
    pub service_account: Option<String>,
    /// How often a failed coordinator is started again.
    pub backoff_limit: Option<i32>,
    /// How long it may run, in seconds.
    pub active_deadline_seconds: Option<i64>,
    /// How long it stays after its end, in seconds.
    pub ttl_seconds_after_finished: Option<i32>,
    /// Whether it is held at first.
    pub suspend: bool,
}

impl JobOptions {
    /// The manifest that says the same.
    pub fn document(&self) -> Document {
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
            Some(json!({"template": self.template(&self.coordinator_resources)})),
        );
        let workers = |count: Option<i32>, resources: &ReplicaResources| {
            count.map(|count| json!({"replicas": count, "template": self.template(resources)}))
        };
        set(
            "collector",
            workers(self.collectors, &self.collector_resources),
        );
        set("learner", workers(self.learners, &self.learner_resources));
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

    fn template(&self, resources: &ReplicaResources) -> Value {
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
                .quantities()
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
    fn a_few_words_make_a_valid_job() {
        let quantity = |text: &str| Quantity(text.to_owned());
        let of = |gpus: Option<&str>| ReplicaResources {
            gpus: gpus.map(quantity),
            memory: Some(quantity("1Gi")),
            cpus: None,
        };
        let outline = JobOptions {
            name: "cartpole".into(),
            image: "i".into(),
            command: vec!["train".into()],
            collectors: Some(4),
            learners: Some(1),
            coordinator_resources: of(None),
            learner_resources: of(Some("2")),
            env: vec![("K".into(), "V".into())],
            labels: vec![("team".into(), "rl".into())],
            clean_pod_policy: Some(CleanPodPolicy::All),
            ..JobOptions::default()
        };
        let job = validation::dijob(&outline.document().object).unwrap();
        assert_eq!(job.spec.declared(Role::Collector).unwrap().replicas, 4);
        assert_eq!(job.spec.learner_gpus(&ReplicaResources::default()), 2);
        let main = |role: Role| {
            let pod = job.spec.declared(role).unwrap().template.spec.as_ref();
            pod.unwrap().containers[0].clone()
        };
        let limits = main(Role::Coordinator).resources.unwrap().limits.unwrap();
        assert_eq!(limits.keys().collect::<Vec<_>>(), ["memory"]);
        assert_eq!(main(Role::Collector).command.unwrap(), ["train"]);
    }

    #[test]
    fn a_job_of_a_coordinator_alone_is_serial() {
        let outline = JobOptions {
            name: "serial".into(),
            image: "i".into(),
            ..JobOptions::default()
        };
        assert_eq!(
            outline.document().object["spec"],
            json!({"coordinator": {"template": {"spec": {"containers": [{"name": "di-container", "image": "i"}]}}}})
        );
    }
}
