//! The algorithms of the Go original (DI-orchestrator v0.2.2), for comparison with ours.
//!
//! Where it converts each object from an untyped map first, this does not: the comparison is in its favour.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::Result;
use di_api::{DIJob, Role, names};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The envelope of a list of a namespace.
#[derive(Debug, Serialize, Deserialize)]
pub struct Answer {
    success: bool,
    code: u8,
    message: String,
    data: Vec<Replicas>,
}

/// The replicas of one coordinator.
#[derive(Debug, Serialize, Deserialize)]
pub struct Replicas {
    namespace: String,
    coordinator: String,
    collectors: Vec<String>,
    learners: Vec<String>,
}

impl Answer {
    /// An answer as a value of its type, ready to be serialized.
    pub fn typed(answer: &Value) -> Result<Self> {
        Ok(Self::deserialize(answer)?)
    }
}

/// Lists one coordinator's replicas: a look at every pod of the namespace.
pub fn list_one(
    jobs: &[&DIJob],
    pods: &[&Pod],
    namespace: &str,
    coordinator: &str,
) -> Vec<Replicas> {
    let Some(job) = jobs.iter().find(|job| {
        job.namespace().as_deref() == Some(namespace)
            && names::coordinator_name(&job.name_any()) == coordinator
    }) else {
        return Vec::new();
    };
    vec![replicas(&job.name_any(), pods, namespace)]
}

/// Lists a namespace: a look at every pod for coordinators, and for each of them again at every pod.
pub fn list_all(jobs: &[&DIJob], pods: &[&Pod], namespace: &str) -> Vec<Replicas> {
    let coordinators = select(pods, namespace, &[(names::labels::ROLE, "coordinator")]);
    let jobs = coordinators.into_iter().filter_map(|pod| {
        let name = pod.labels().get(names::labels::JOB)?;
        jobs.iter().find(|job| job.name_any() == *name)
    });
    jobs.map(|job| replicas(&job.name_any(), pods, namespace))
        .collect()
}

fn replicas(job: &str, pods: &[&Pod], namespace: &str) -> Replicas {
    let own = select(pods, namespace, &[(names::labels::JOB, job)]);
    let of = |role: Role| {
        let of_role = own.iter().filter(|pod| {
            pod.labels().get(names::labels::ROLE).map(String::as_str) == Some(role.label())
                && pod.metadata.deletion_timestamp.is_none()
        });
        of_role
            .map(|pod| names::replica_url(&pod.name_any(), namespace, role.default_port()))
            .collect()
    };
    Replicas {
        namespace: namespace.to_owned(),
        coordinator: names::coordinator_name(job),
        collectors: of(Role::Collector),
        learners: of(Role::Learner),
    }
}

fn select<'a>(pods: &[&'a Pod], namespace: &str, labels: &[(&str, &str)]) -> Vec<&'a Pod> {
    let matches = |own: &BTreeMap<String, String>| {
        labels
            .iter()
            .all(|(key, value)| own.get(*key).is_some_and(|own| own == value))
    };
    pods.iter()
        .filter(|pod| pod.metadata.namespace.as_deref() == Some(namespace) && matches(pod.labels()))
        .copied()
        .collect()
}

/// A client-go limit: calls per second after a burst.
pub struct Throttle {
    per_second: f64,
    burst: f64,
    left: f64,
    at: Instant,
}

impl Throttle {
    /// That of the original's server, client-go's default: 5 calls a second after 10.
    pub fn of_the_server() -> Self {
        Self::new(5.0, 10.0)
    }

    /// That of the original's reconciler, controller-runtime's default: 20 calls a second after 30.
    pub fn of_the_reconciler() -> Self {
        Self::new(20.0, 30.0)
    }

    fn new(per_second: f64, burst: f64) -> Self {
        Self {
            per_second,
            burst,
            left: burst,
            at: Instant::now(),
        }
    }

    /// Waits until another call may be made.
    pub async fn wait(&mut self) {
        let now = Instant::now();
        self.left = (self.left + (now - self.at).as_secs_f64() * self.per_second).min(self.burst);
        self.at = now;
        self.left -= 1.0;
        if self.left < 0.0 {
            tokio::time::sleep(Duration::from_secs_f64(-self.left / self.per_second)).await;
        }
    }
}
