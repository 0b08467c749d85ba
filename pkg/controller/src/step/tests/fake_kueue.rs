//! A fake Kueue in memory: it admits and evicts when a test says so.

use std::collections::BTreeMap;

use di_api::{DIJob, PlanEntry, QueueState, Role, names::kueue, quantity::parse_nanos};
use di_cache::QueueApi;
use di_plan::{
    FlavorView, KueueVersion, PodView, Priority, StatusPatch, WorkloadDraft, WorkloadView,
    controlling_job, job_object_name, new_workload, replica_workload_name, updated_workload,
};
use jiff::Timestamp;
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Time};
use kube::{ResourceExt, api::DynamicObject};
use serde_json::{Value, json};

use super::fake_cluster::World;
use crate::step::{Action, learner_groups::group_owner_entry};

/// The Workloads of a cluster, and the quota that each pod was created with.
#[derive(Clone, Default)]
pub(super) struct FakeKueue {
    objects: BTreeMap<String, DynamicObject>,
    /// The quota of each pod, by the UID of the pod. A pod whose Workload was deleted by others has
    /// none.
    quota_of_pods: BTreeMap<String, Quota>,
    serial: u32,
}

/// The quota that a pod uses.
#[derive(Clone)]
pub(super) struct Quota {
    /// UID of the Workload. `None` if it is not known which one of the job it is.
    workload: Option<String>,
    pod_set: String,
}

/// Pods by name.
type Pods = BTreeMap<String, PodView>;

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

    pub fn admit(&mut self, name: &str) {
        self.kueue.admit(name, self.now);
        self.refresh_workloads();
    }

    pub fn evict(&mut self, name: &str, reason: &str) {
        self.kueue.evict(name, reason, self.now);
        self.refresh_workloads();
    }

    fn refresh_workloads(&mut self) {
        self.queue.workloads = self.kueue.views();
    }

    /// Applies an action for a Workload, as the API server does.
    pub fn apply_workload_action(&mut self, action: &Action) {
        let (job, pods) = (&self.job, &self.pods);
        self.kueue.apply(action, job, pods, self.now);
        self.refresh_workloads();
    }

    /// Records the quota of a new pod.
    pub fn record_quota(&mut self, entry: &PlanEntry) {
        if self.job.queue_name().is_none() {
            return;
        }
        let (pod, workloads) = (self.object(&entry.name), &self.queue.workloads);
        let quota = self.kueue.find_quota(&self.job, entry, pod, workloads);
        let uid = self.pods[&entry.name].uid.clone();
        self.kueue.record_quota(uid, quota);
        self.kueue.check_quota(&self.pods, &self.queue.workloads);
    }
}

impl FakeKueue {
    /// The Workloads as the watch shows them.
    pub fn views(&self) -> Vec<WorkloadView> {
        let objects = self.objects.values();
        objects.filter_map(WorkloadView::new).collect()
    }

    fn view(&self, name: &str) -> WorkloadView {
        WorkloadView::new(&self.objects[name]).unwrap()
    }

    /// Admits a Workload with all of its pods.
    pub fn admit(&mut self, name: &str, now: Timestamp) {
        let pod_sets = self.objects[name].data["spec"]["podSets"].clone();
        let pod_sets = pod_sets.as_array().unwrap().iter();
        let assignments: Vec<_> = pod_sets
            .map(|set| json!({"name": set["name"], "count": set["count"], "flavors": {"cpu": "fast"}}))
            .collect();
        self.change(name, now, |status, now| {
            status["admission"] = json!({"clusterQueue": "cq", "podSetAssignments": assignments});
            set_condition(status, "QuotaReserved", true, "QuotaReserved", now);
            set_condition(status, "Admitted", true, "Admitted", now);
            set_condition(status, "Evicted", false, "QuotaReserved", now);
        });
    }

    pub fn evict(&mut self, name: &str, reason: &str, now: Timestamp) {
        self.change(name, now, |status, now| {
            set_condition(status, "Evicted", true, reason, now);
        });
    }

    /// Sets `spec.active`, as an administrator does. Kueue evicts a Workload that is not active.
    pub fn set_active(&mut self, name: &str, active: bool, now: Timestamp) {
        let is_evicted = !active && self.view(name).has_quota();
        self.change(name, now, |status, now| {
            if is_evicted {
                set_condition(status, "Evicted", true, "Deactivated", now);
            }
        });
        let object = self.objects.get_mut(name).unwrap();
        object.data["spec"]["active"] = active.into();
    }

    fn delete(&mut self, name: &str) {
        self.objects.remove(name).unwrap();
    }

    /// Deletes a Workload, as a user does.
    pub fn delete_by_user(&mut self, name: &str) {
        let uid = self.view(name).uid;
        self.delete(name);
        self.forget_quota_of(&uid);
    }

    /// Deletes all Workloads but those of the job with this UID.
    pub fn retain_of_job(&mut self, uid: &str) {
        self.objects
            .retain(|_, object| controlling_job(object).as_deref() == Some(uid));
    }

    /// Deletes all Workloads, as when the definitions of Kueue are deleted.
    pub fn clear(&mut self) {
        self.objects.clear();
        self.forget_pods();
    }

    fn change(&mut self, name: &str, now: Timestamp, change: impl FnOnce(&mut Value, &Value)) {
        self.serial += 1;
        let object = self.objects.get_mut(name).unwrap();
        object.metadata.resource_version = Some(self.serial.to_string());
        change(&mut object.data["status"], &json!(Time(now)));
    }

    /// Applies an action for a Workload, which must have the version or the UID in the action.
    pub fn apply(&mut self, action: &Action, job: &DIJob, pods: &Pods, now: Timestamp) {
        match action {
            Action::CreateWorkload(draft) => self.create(job, draft, now),
            Action::UpdateWorkload {
                draft,
                resource_version,
            } => {
                let known = self.view(&draft.name);
                assert_eq!(known.resource_version, *resource_version);
                assert!(
                    !known.has_quota(),
                    "the pods of {} are immutable",
                    draft.name
                );
                self.update(draft, now);
            }
            Action::PatchWorkloadStatus(patch) => self.patch_status(patch, pods, now),
            Action::DeleteWorkload { name, uid } => {
                assert_eq!(self.view(name).uid, *uid);
                self.delete(name);
            }
            other => panic!("{other:?}"),
        }
    }

    fn create(&mut self, job: &DIJob, draft: &WorkloadDraft, now: Timestamp) {
        assert!(
            !self.objects.contains_key(&draft.name),
            "{} exists",
            draft.name
        );
        let version = KueueVersion::V1beta2;
        let mut object = new_workload(job, draft, version, &Priority::default());
        self.serial += 1;
        object.metadata.uid = Some(format!("workload-{}", self.serial));
        object.data["status"] = json!({});
        self.objects.insert(draft.name.clone(), object);
        self.change(&draft.name, now, |_, _| {});
    }

    fn update(&mut self, draft: &WorkloadDraft, now: Timestamp) {
        let priority = Priority::default();
        let patch = updated_workload(draft, KueueVersion::V1beta2, &priority, "");
        let object = self.objects.get_mut(&draft.name).unwrap();
        object.data["spec"] = patch["spec"].clone();
        object.metadata.annotations =
            serde_json::from_value(patch["metadata"]["annotations"].clone()).unwrap();
        self.change(&draft.name, now, |_, _| {});
    }

    fn patch_status(&mut self, patch: &StatusPatch, pods: &Pods, now: Timestamp) {
        let known = self.view(&patch.name);
        assert_eq!(known.resource_version, patch.resource_version, "{patch:?}");
        self.change(&patch.name, now, |status, _| {
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
        let new = self.view(&patch.name);
        if known.has_quota() && !new.has_quota() {
            let pods = self.pods_with_quota_of(&known.uid, pods);
            assert!(pods.is_empty(), "the quota of {pods:?} is returned");
        }
        let has_fallen = known
            .reclaimable
            .iter()
            .any(|(name, count)| new.reclaimable.get(name) < Some(count));
        assert!(
            !(has_fallen && known.has_quota() && new.has_quota()),
            "reclaimable pods fall: {patch:?}"
        );
    }

    /// Names of the pods that use the quota of a Workload.
    pub fn pods_with_quota_of<'a>(&self, workload: &str, pods: &'a Pods) -> Vec<&'a str> {
        let pods = pods.values().filter(|pod| pod.is_active());
        let uses_it = |pod: &&PodView| {
            let quota = self.quota_of_pods.get(&pod.uid);
            quota.is_some_and(|quota| quota.workload.as_deref() == Some(workload))
        };
        pods.filter(uses_it).map(|pod| pod.name.as_str()).collect()
    }

    /// Finds the quota of a new pod, which must be admitted in these Workloads.
    pub fn find_quota(
        &self,
        job: &DIJob,
        entry: &PlanEntry,
        pod: &Pod,
        workloads: &[WorkloadView],
    ) -> Quota {
        let plan: &[PlanEntry] = job.status.as_ref().map_or(&[], |status| &status.plan);
        let owner = group_owner_entry(plan, entry);
        let is_waiting = owner.queue == Some(QueueState::Waiting);
        assert!(!is_waiting, "{} waits for quota", entry.name);
        let base = job_object_name(&job.name_any(), &job.uid().unwrap());
        let workload = match owner.queue {
            None => base,
            Some(_) => replica_workload_name(&base, owner),
        };
        let view = workloads.iter().find(|view| view.name == workload);
        let view = view.filter(|view| view.is_admitted());
        let view = view.unwrap_or_else(|| panic!("{} has no quota", entry.name));
        let pod_set = pod.labels()[kueue::POD_SET_LABEL].clone();
        let is_coordinator = entry.role == Role::Coordinator;
        assert_eq!(is_coordinator, pod_set == "coordinator", "{}", entry.name);
        self.check_requests(view, &pod_set, pod);
        Quota {
            workload: Some(view.uid.clone()),
            pod_set,
        }
    }

    /// Records the quota of the pod with this UID, unless its Workload was deleted since.
    pub fn record_quota(&mut self, pod: String, quota: Quota) {
        let is_used = |object: &DynamicObject| object.uid() == quota.workload;
        if self.objects.values().any(is_used) {
            self.quota_of_pods.insert(pod, quota);
        }
    }

    /// Forgets which Workload each pod uses. The pods still use quota of their job.
    pub fn forget_workloads(&mut self) {
        for quota in self.quota_of_pods.values_mut() {
            quota.workload = None;
        }
    }

    /// Forgets the pods that use a Workload, and those that may use it: they are not checked any
    /// more.
    pub fn forget_quota_of(&mut self, workload: &str) {
        let uses_other =
            |quota: &Quota| quota.workload.as_deref().is_some_and(|uid| uid != workload);
        self.quota_of_pods.retain(|_, quota| uses_other(quota));
    }

    /// Forgets all pods: they are not checked any more.
    pub fn forget_pods(&mut self) {
        self.quota_of_pods.clear();
    }

    /// Checks that a new pod requests what was admitted for its pod set.
    fn check_requests(&self, workload: &WorkloadView, pod_set: &str, pod: &Pod) {
        let object = self.objects.get(&workload.name);
        let is_same = |object: &&DynamicObject| object.uid().as_ref() == Some(&workload.uid);
        // It may have been deleted since.
        let Some(object) = object.filter(is_same) else {
            return;
        };
        let mut pod_sets = object.data["spec"]["podSets"].as_array().unwrap().iter();
        let admitted = pod_sets.find(|set| set["name"] == pod_set).unwrap();
        let admitted = &admitted["template"]["spec"]["containers"][0]["resources"];
        let pod_spec = json!(pod.spec);
        let created = &pod_spec["containers"][0]["resources"];
        for (resource, quantity) in created["requests"].as_object().into_iter().flatten() {
            let parse = |quantity: &Value| parse_nanos(quantity.as_str().unwrap()).unwrap();
            let admitted = &admitted["requests"][resource];
            assert!(
                parse(quantity) <= parse(admitted),
                "{resource} of {}: {quantity}, {admitted} of {}/{pod_set}",
                pod.name_any(),
                workload.name
            );
        }
    }

    /// Checks that the pods of no pod set exceed its quota: neither that of their Workload, nor
    /// that of all Workloads.
    pub fn check_quota(&self, pods: &Pods, workloads: &[WorkloadView]) {
        let mut used: BTreeMap<(Option<&str>, &str), i32> = BTreeMap::new();
        for pod in pods.values().filter(|pod| pod.is_active()) {
            let Some(quota) = self.quota_of_pods.get(&pod.uid) else {
                continue;
            };
            let pod_set = quota.pod_set.as_str();
            *used.entry((None, pod_set)).or_default() += 1;
            if let Some(workload) = quota.workload.as_deref() {
                *used.entry((Some(workload), pod_set)).or_default() += 1;
            }
        }
        for ((workload, pod_set), count) in used {
            let is_meant = |uid: &str| workload.is_none_or(|workload| workload == uid);
            let views = workloads.iter();
            let views = views.filter(|view| view.has_quota() && is_meant(&view.uid));
            let capacities = views.map(|view| view.capacities().get(pod_set).copied());
            let capacity: i32 = capacities.flatten().sum();
            assert!(
                count <= capacity,
                "{count} pods of pod set {pod_set} of {workload:?}: {capacity}"
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
