//! A fake Kueue in memory: it admits and evicts when a test says so.

use std::collections::BTreeMap;

use di_api::{PlanEntry, Role, names::kueue, quantity::parse_nanos};
use di_cache::QueueApi;
use di_plan::{
    FlavorView, KueueVersion, PodView, Priority, StatusPatch, WorkloadDraft, WorkloadView,
    new_workload, replica_workload_name, updated_workload,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::fake_cluster::World;
use crate::step::{Action, learner_groups::group_owner_entry};

/// The Workloads of a cluster, and the quota that each pod was created with.
#[derive(Clone, Default)]
pub(super) struct FakeKueue {
    objects: BTreeMap<String, DynamicObject>,
    /// UID of the Workload, and pod set, by the UID of the pod.
    quota_of_pods: BTreeMap<String, (String, String)>,
    serial: u32,
}

/// Name of the base Workload of the job of all tests.
pub(super) const BASE: &str = "dijob-j-u";

impl World {
    pub fn serve_kueue(&mut self) {
        self.queue.api = QueueApi::Served(KueueVersion::V1beta2);
        let flavor = json!({"nodeLabels": {"gpu": "fast"}, "tolerations": [{"key": "gpu", "operator": "Exists"}]});
        let flavor: FlavorView = serde_json::from_value(flavor).unwrap();
        self.queue.flavors.insert("fast".into(), flavor);
    }

    pub fn workload(&self, name: &str) -> &WorkloadView {
        let mut all = self.queue.workloads.iter();
        all.find(|workload| workload.name == name).unwrap()
    }

    pub fn workload_object(&self, name: &str) -> &DynamicObject {
        &self.kueue.objects[name]
    }

    pub fn workload_object_mut(&mut self, name: &str) -> &mut DynamicObject {
        self.kueue.objects.get_mut(name).unwrap()
    }

    pub fn workload_names(&self) -> Vec<&str> {
        self.kueue.objects.keys().map(String::as_str).collect()
    }

    /// Admits a Workload with all of its pods.
    pub fn admit(&mut self, name: &str) {
        let pod_sets = self.kueue.objects[name].data["spec"]["podSets"].clone();
        let pod_sets = pod_sets.as_array().unwrap().iter();
        let assignments: Vec<_> = pod_sets
            .map(|set| json!({"name": set["name"], "count": set["count"], "flavors": {"cpu": "fast"}}))
            .collect();
        self.change_workload(name, |status, now| {
            status["admission"] = json!({"clusterQueue": "cq", "podSetAssignments": assignments});
            set_condition(status, "QuotaReserved", true, "QuotaReserved", now);
            set_condition(status, "Admitted", true, "Admitted", now);
            set_condition(status, "Evicted", false, "QuotaReserved", now);
        });
    }

    pub fn evict(&mut self, name: &str, reason: &str) {
        self.change_workload(name, |status, now| {
            set_condition(status, "Evicted", true, reason, now);
        });
    }

    /// Deletes a Workload, as a user does.
    pub fn delete_workload(&mut self, name: &str) {
        self.kueue.objects.remove(name).unwrap();
        self.refresh_workloads();
    }

    fn change_workload(&mut self, name: &str, change: impl FnOnce(&mut Value, &Value)) {
        let now = json!(Time(self.now));
        self.kueue.serial += 1;
        let object = self.kueue.objects.get_mut(name).unwrap();
        object.metadata.resource_version = Some(self.kueue.serial.to_string());
        change(&mut object.data["status"], &now);
        self.refresh_workloads();
    }

    fn refresh_workloads(&mut self) {
        let objects = self.kueue.objects.values();
        self.queue.workloads = objects.filter_map(WorkloadView::new).collect();
    }

    /// Applies an action for a Workload, as the API server does.
    pub fn apply_workload_action(&mut self, action: Action) {
        match action {
            Action::CreateWorkload(draft) => self.create_workload(&draft),
            Action::UpdateWorkload {
                draft,
                resource_version,
            } => {
                let known = self.workload(&draft.name);
                assert_eq!(known.resource_version, resource_version);
                assert!(
                    !known.has_quota(),
                    "the pods of {} are immutable",
                    draft.name
                );
                let priority = Priority::default();
                let patch = updated_workload(&draft, KueueVersion::V1beta2, &priority, "");
                let object = self.kueue.objects.get_mut(&draft.name).unwrap();
                object.data["spec"] = patch["spec"].clone();
                object.metadata.annotations =
                    serde_json::from_value(patch["metadata"]["annotations"].clone()).unwrap();
                self.change_workload(&draft.name, |_, _| {});
            }
            Action::PatchWorkloadStatus(patch) => self.patch_status(&patch),
            Action::DeleteWorkload { name, uid } => {
                assert_eq!(self.workload(&name).uid, uid);
                self.delete_workload(&name);
            }
            other => panic!("{other:?}"),
        }
    }

    fn create_workload(&mut self, draft: &WorkloadDraft) {
        assert!(
            !self.kueue.objects.contains_key(&draft.name),
            "{} exists",
            draft.name
        );
        let version = KueueVersion::V1beta2;
        let mut object = new_workload(&self.job, draft, version, &Priority::default());
        self.kueue.serial += 1;
        object.metadata.uid = Some(format!("workload-{}", self.kueue.serial));
        object.data["status"] = json!({});
        self.kueue.objects.insert(draft.name.clone(), object);
        self.change_workload(&draft.name, |_, _| {});
    }

    fn patch_status(&mut self, patch: &StatusPatch) {
        let known = self.workload(&patch.name).clone();
        assert_eq!(known.resource_version, patch.resource_version, "{patch:?}");
        if patch.field_manager == "kueue-admission" {
            let pods = self.pods_with_quota_of(&known.uid);
            assert!(pods.is_empty(), "the quota of {pods:?} is returned");
        }
        self.change_workload(&patch.name, |status, _| {
            if patch.field_manager == "kueue-admission" {
                status.as_object_mut().unwrap().remove("admission");
            }
            for condition in patch.status["conditions"].as_array().into_iter().flatten() {
                replace_condition(status, condition.clone());
            }
            if let Some(pods) = patch.status.get("reclaimablePods") {
                status["reclaimablePods"] = pods.clone();
            }
        });
        let now = self.workload(&patch.name);
        let has_fallen = known
            .reclaimable
            .iter()
            .any(|(name, count)| now.reclaimable.get(name) < Some(count));
        assert!(
            !(has_fallen && known.has_quota() && now.has_quota()),
            "reclaimable pods fall: {patch:?}"
        );
    }

    /// Names of the pods that use the quota of a Workload.
    fn pods_with_quota_of(&self, workload: &str) -> Vec<&str> {
        let pods = self.pods.values().filter(|pod| pod.is_active());
        let uses_it = |pod: &&PodView| {
            let quota = self.kueue.quota_of_pods.get(&pod.uid);
            quota.is_some_and(|(uid, _)| uid == workload)
        };
        pods.filter(uses_it).map(|pod| pod.name.as_str()).collect()
    }

    /// Records the quota of a new pod.
    pub fn record_quota(&mut self, entry: &PlanEntry) {
        if self.job.queue_name().is_none() {
            return;
        }
        let owner = group_owner_entry(self.plan(), entry);
        let workload = match owner.queue {
            None => BASE.to_owned(),
            Some(_) => replica_workload_name(BASE, owner),
        };
        let labels = self.object(&entry.name).metadata.labels.clone().unwrap();
        let pod_set = labels[kueue::POD_SET_LABEL].clone();
        let view = self.workload(&workload);
        assert!(view.is_admitted(), "{} has no quota", entry.name);
        let uid_of_workload = view.uid.clone();
        let is_coordinator = entry.role == Role::Coordinator;
        assert_eq!(is_coordinator, pod_set == "coordinator", "{}", entry.name);
        self.check_requests(&workload, &pod_set, &entry.name);
        let uid = self.pods[&entry.name].uid.clone();
        let quota = (uid_of_workload, pod_set);
        self.kueue.quota_of_pods.insert(uid, quota);
        self.check_quota();
    }

    /// Checks that a new pod requests what was admitted for its pod set.
    fn check_requests(&self, workload: &str, pod_set: &str, pod: &str) {
        let pod_sets = &self.kueue.objects[workload].data["spec"]["podSets"];
        let mut pod_sets = pod_sets.as_array().unwrap().iter();
        let admitted = pod_sets.find(|set| set["name"] == pod_set).unwrap();
        let admitted = &admitted["template"]["spec"]["containers"][0]["resources"];
        let pod_spec = json!(self.object(pod).spec);
        let created = &pod_spec["containers"][0]["resources"];
        for (resource, quantity) in created["requests"].as_object().into_iter().flatten() {
            let parse = |quantity: &Value| parse_nanos(quantity.as_str().unwrap()).unwrap();
            let admitted = &admitted["requests"][resource];
            assert!(
                parse(quantity) <= parse(admitted),
                "{resource} of {pod}: {quantity}, {admitted} of {workload}/{pod_set}"
            );
        }
    }

    /// Checks that the pods of no pod set exceed its quota.
    pub fn check_quota(&self) {
        let mut used: BTreeMap<(&str, &str), i32> = BTreeMap::new();
        for pod in self.pods.values().filter(|pod| pod.is_active()) {
            if let Some((workload, pod_set)) = self.kueue.quota_of_pods.get(&pod.uid) {
                *used.entry((workload, pod_set)).or_default() += 1;
            }
        }
        for ((workload, pod_set), count) in used {
            let mut all = self.queue.workloads.iter();
            // A user may have deleted it.
            let Some(view) = all.find(|view| view.uid == workload) else {
                continue;
            };
            let capacity = view.capacities().get(pod_set).copied();
            assert!(
                capacity.is_some_and(|capacity| count <= capacity),
                "{count} pods of {}/{pod_set}: {capacity:?}",
                view.name
            );
        }
    }
}

fn set_condition(status: &mut Value, type_: &str, is_true: bool, reason: &str, now: &Value) {
    let text = if is_true { "True" } else { "False" };
    replace_condition(
        status,
        json!({"type": type_, "status": text, "reason": reason, "message": reason, "lastTransitionTime": now}),
    );
}

fn replace_condition(status: &mut Value, condition: Value) {
    let mut all = status["conditions"].as_array().cloned().unwrap_or_default();
    all.retain(|known| known["type"] != condition["type"]);
    all.push(condition);
    status["conditions"] = all.into();
}
