//! Jobs and pods as they are on a cluster.

use std::net::Ipv4Addr;

use anyhow::{Context, Result};
use di_api::{DIJob, DIJobStatus, PlanEntry, Role, names};
use di_plan::{BuildSettings, PodView};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::ResourceExt;
use serde_json::{Value, json};

/// Namespace of jobs that exist only in memory.
pub const NAMESPACE: &str = "training";

/// Jobs of one namespace, each with as many collectors.
#[derive(Clone, Copy, Debug)]
pub struct Fleet {
    /// Number of jobs.
    pub jobs: usize,
    /// Number of collectors per job.
    pub replicas: usize,
}

impl Fleet {
    /// Jobs of ten replicas with this total number of pods.
    pub const fn of_pods(pods: usize) -> Self {
        Self {
            jobs: pods / 10,
            replicas: 9,
        }
    }

    /// Number of pods.
    pub const fn pods(self) -> usize {
        self.jobs * (self.replicas + 1)
    }

    /// All jobs.
    pub fn all(self) -> Result<Vec<DIJob>> {
        (0..self.jobs).map(|i| self.job(i)).collect()
    }

    fn job(self, number: usize) -> Result<DIJob> {
        let mut job = manifest(&job_name(number))?;
        job.metadata.namespace = Some(NAMESPACE.to_owned());
        job.metadata.uid = Some(uid(1, number));
        job.metadata.resource_version = Some((1000 + number).to_string());
        job.metadata.generation = Some(1);
        job.status = Some(running_status(&job, self.replicas)?);
        Ok(job)
    }
}

/// Name of a job.
pub fn job_name(number: usize) -> String {
    format!("train-{number:05}")
}

/// Address of a job's coordinator: one that a client on this machine can call from.
pub fn coordinator_address(number: usize) -> Ipv4Addr {
    let number = u32::try_from(number).unwrap_or(0);
    Ipv4Addr::from_bits(Ipv4Addr::new(127, 1, 0, 1).to_bits() + number)
}

/// A job whose templates hold what those of a training usually do.
pub fn manifest(name: &str) -> Result<DIJob> {
    let template = |args: &str| {
        json!({"spec": {
            "containers": [{
                "name": names::MAIN_CONTAINER,
                "image": "registry.example.org/rl/ding:v0.5.3",
                "imagePullPolicy": "IfNotPresent",
                "command": ["/bin/bash", "-c", args],
                "env": [{"name": "PYTHONUNBUFFERED", "value": "1"}, {"name": "ENV_ID", "value": "CartPole-v1"}],
                "resources": {"requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"cpu": "1", "memory": "2Gi"}},
                "volumeMounts": [{"name": "storage", "mountPath": "/storage"}],
            }],
        }})
    };
    let job = json!({
        "apiVersion": format!("{}/{}", names::GROUP, names::VERSION),
        "kind": "DIJob",
        "metadata": {"name": name},
        "spec": {
            "volumes": [{"name": "storage", "persistentVolumeClaim": {"claimName": "storage"}}],
            "coordinator": {"template": template("ding -m dist --module config -p k8s -c config.py -s 0")},
            "collector": {"template": template("ding -m dist --module collector")},
            "learner": {"template": template("ding -m dist --module learner")},
        },
    });
    serde_json::from_value(job).context("the job of the benchmarks is none")
}

fn uid(kind: usize, number: usize) -> String {
    format!("6f1d2c3b-{kind:04x}-4e5f-8a9b-{number:012x}")
}

/// Status of a running job with this number of requested collectors.
pub fn running_status(job: &DIJob, replicas: usize) -> Result<DIJobStatus> {
    let incarnation = format!("{}/0", uid(2, 0));
    let plan: Vec<Value> = (0..replicas)
        .map(|i| {
            json!({
                "name": replica_name(job, i), "type": "Collector", "origin": "Requested", "index": i,
                "uid": uid(3, i), "plannedAt": "2026-01-01T00:00:00Z", "claimedBy": incarnation, "listed": true,
            })
        })
        .collect();
    let condition = |kind: &str| {
        json!({
            "type": kind, "status": "True", "reason": kind, "message": "as it should be",
            "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1,
        })
    };
    let status = json!({
        "observedGeneration": 1, "phase": "Running", "startTime": "2026-01-01T00:00:00Z",
        "conditions": [condition("Created"), condition("Running"), condition("ReplicasReady")],
        "replicaStatus": {"Coordinator": {"active": 1}, "Collector": {"active": replicas}},
        "plan": plan, "membershipGeneration": 1, "collectors": replicas, "collectorsReady": format!("{replicas}/{replicas}"),
        "selector": format!("dijob-name={},replica-type=collector", job.name_any()),
    });
    serde_json::from_value(status).context("the status of the benchmarks is none")
}

fn replica_name(job: &DIJob, number: usize) -> String {
    names::replica_name(&job.name_any(), Role::Collector, &format!("{number:05x}"))
}

/// Pods of a job as the reconciler makes them: of the coordinator, and of each replica of the plan.
pub fn new_pods(job: &DIJob) -> Vec<Pod> {
    let name = names::coordinator_name(&job.name_any());
    let coordinator = PlanEntry::new(name, Role::Coordinator, di_api::Origin::Declared, 0);
    let plan = job.status.iter().flat_map(|status| &status.plan);
    std::iter::once(&coordinator)
        .chain(plan)
        .filter_map(|entry| {
            let pod = di_plan::build_pod(job, entry, None, &BuildSettings::default())?;
            pod.decode().ok()
        })
        .collect()
}

/// Status of a pod that runs and has this address.
pub fn pod_status(address: Ipv4Addr, ready: bool) -> Result<PodStatus> {
    let when = "2026-01-01T00:00:00Z";
    let condition = |kind: &str, status: bool| {
        let status = if status { "True" } else { "False" };
        json!({"type": kind, "status": status, "lastTransitionTime": when})
    };
    let status = json!({
        "phase": "Running", "hostIP": "192.168.7.20", "podIP": address, "podIPs": [{"ip": address}], "startTime": when,
        "conditions": [
            condition("Initialized", true), condition("Ready", ready), condition("ContainersReady", ready),
            condition("PodScheduled", true),
        ],
        "containerStatuses": [{
            "name": names::MAIN_CONTAINER, "ready": ready, "started": true, "restartCount": 0,
            "image": "registry.example.org/rl/ding:v0.5.3", "imageID": "", "state": {"running": {"startedAt": when}},
        }],
    });
    serde_json::from_value(status).context("the pod status of the benchmarks is none")
}

/// Pods of a job of the fleet, running.
pub fn running_pods(job: &DIJob, number: usize) -> Result<Vec<Pod>> {
    let all = new_pods(job);
    let many = all.len();
    let pods = all.into_iter().enumerate().map(|(i, mut pod)| {
        let nth = number * many + i;
        let address = if i == 0 {
            coordinator_address(number)
        } else {
            replica_address(nth)
        };
        pod.metadata.uid = Some(if i == 0 { uid(2, number) } else { uid(3, nth) });
        pod.metadata.resource_version = Some((100_000 + nth).to_string());
        if let Some(spec) = &mut pod.spec {
            spec.node_name = Some(format!("node-{:04}", nth % 1000));
        }
        pod.status = Some(pod_status(address, true)?);
        Ok(pod)
    });
    pods.collect()
}

/// Address of a replica.
pub fn replica_address(number: usize) -> Ipv4Addr {
    let number = u32::try_from(number).unwrap_or(0);
    Ipv4Addr::from_bits(Ipv4Addr::new(10, 0, 0, 1).to_bits() + number)
}

/// Projections of pods in the caches.
pub fn views(pods: &[Pod]) -> Vec<PodView> {
    pods.iter().filter_map(PodView::new).collect()
}
