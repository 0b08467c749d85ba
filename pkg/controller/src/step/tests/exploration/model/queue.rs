//! Kueue and the gang scheduler of the model: what they do, and the writes of their objects.

use std::rc::Rc;

use di_api::{
    DIJob, DIJobSpec, GangSpec, PlanEntry, Reason, Role, SchedulingSpec, names::kueue,
    validation::validate_dijob_update,
};
use di_cache::{OptionalApi, QueueApi};
use di_plan::{KueueVersion, PodView, WorkloadView, group_name};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use super::{Failure, Model};
use crate::step::{
    Action, ObservedGang, ObservedQueue,
    tests::{
        exploration::{lagging_caches::Cache, queue_happenings::QueueHappening},
        fake_gang_scheduler::{apply_group_action, check_gang, find_group, place_pods},
    },
};

/// Adds the label of a queue, or removes it.
pub(super) fn set_queue(job: &mut DIJob, is_queued: bool) {
    let label = is_queued.then(|| (kueue::QUEUE_LABEL.to_owned(), "team".to_owned()));
    job.metadata.labels = label.map(|label| [label].into());
}

/// Asks for a gang with this number of collectors.
pub(super) fn ask_for_gang(job: &mut DIJob, min_collectors: i32) {
    let gang = GangSpec {
        min_collectors: Some(min_collectors),
        ..GangSpec::default()
    };
    job.spec.scheduling = Some(SchedulingSpec {
        gang: Some(gang),
        ..SchedulingSpec::default()
    });
}

/// Sets the number of collectors in the floor of a gang, or keeps it. In a new job it may not be
/// larger than that of all collectors.
pub(super) fn set_min_collectors(spec: &mut DIJobSpec, min_collectors: Option<i32>) {
    let collectors = spec.collector.as_ref().unwrap().replicas;
    let scheduling = spec.scheduling.as_mut();
    if let Some(gang) = scheduling.and_then(|scheduling| scheduling.gang.as_mut()) {
        let min = min_collectors.or(gang.min_collectors);
        gang.min_collectors = min.map(|min| min.min(collectors));
    }
}

/// Whether a job is in a queue and not admitted.
pub(super) fn waits_in_queue(job: &DIJob) -> bool {
    let status = job.status.as_ref();
    let is_admitted = status.is_some_and(|status| status.queueing.is_some());
    job.queue_name().is_some() && !is_admitted
}

fn can_be_admitted(workload: &WorkloadView) -> bool {
    workload.active && !workload.has_quota() && !workload.is_true("Finished")
}

impl Model {
    pub fn queue(&self) -> &ObservedQueue {
        &self.queue
    }

    pub fn gang(&self) -> &ObservedGang {
        &self.gang
    }

    pub fn waits_in_queue(&self) -> bool {
        waits_in_queue(&self.job)
    }

    pub(super) fn apply_queue_happening(&mut self, happening: QueueHappening) {
        let now = self.now;
        match happening {
            QueueHappening::Admit(n) => {
                if let Some(name) = self.nth_workload(n, can_be_admitted) {
                    self.kueue.admit(&name, now);
                }
            }
            QueueHappening::Evict(n) => {
                let can_be_evicted =
                    |workload: &WorkloadView| workload.has_quota() && !workload.is_evicted();
                if let Some(name) = self.nth_workload(n, can_be_evicted) {
                    let reason = ["Preempted", "PodsReadyTimeout"][n % 2];
                    self.kueue.evict(&name, reason, now);
                }
            }
            QueueHappening::SetActive(n, active) => {
                if let Some(name) = self.nth_workload(n, |workload| workload.active != active) {
                    self.kueue.set_active(&name, active, now);
                }
            }
            QueueHappening::DeleteWorkload(n) => {
                if let Some(name) = self.nth_workload(n, |_| true) {
                    self.kueue.delete_by_user(&name);
                }
            }
            QueueHappening::DeleteGroup => Rc::make_mut(&mut self.gang).groups.clear(),
            QueueHappening::ServeKueue(api) => self.serve_kueue(api),
            QueueHappening::ServeGroups(api) => self.serve_groups(api),
            QueueHappening::Schedule(free) => self.schedule(free),
        }
        self.refresh_workloads();
    }

    /// Name of the nth Workload that `is_chosen` accepts. After the last one the first one follows.
    fn nth_workload(&self, n: usize, is_chosen: impl Fn(&WorkloadView) -> bool) -> Option<String> {
        let all = self.queue.workloads.iter();
        let names = all.filter(|workload| is_chosen(workload));
        let names: Vec<_> = names.map(|workload| &workload.name).collect();
        let name = names.get(n % names.len().max(1))?;
        Some((*name).clone())
    }

    /// A cluster that does not serve the API has lost its definitions, and with them all objects.
    fn serve_kueue(&mut self, api: OptionalApi<()>) {
        if !self.may_be_queued {
            return;
        }
        if api == OptionalApi::NotServed {
            self.kueue.clear();
        }
        Rc::make_mut(&mut self.queue).api = match api {
            OptionalApi::Unknown => QueueApi::Unknown,
            OptionalApi::NotServed => QueueApi::NotServed,
            OptionalApi::Forbidden => QueueApi::Forbidden,
            OptionalApi::Served(()) => QueueApi::Served(KueueVersion::V1beta2),
        };
    }

    fn serve_groups(&mut self, api: OptionalApi<()>) {
        if self.gang.scheduler.is_none() {
            return;
        }
        let gang = Rc::make_mut(&mut self.gang);
        if api == OptionalApi::NotServed {
            gang.groups.clear();
        }
        gang.api = api;
    }

    /// Assigns nodes, of which this number is free. Pods of a gang wait while its group is missing.
    pub(super) fn schedule(&mut self, free: usize) {
        let Some(group) = find_group(&self.gang, &group_name(&self.job)) else {
            return;
        };
        let min_member = group.min_member;
        let uid = self.uid().to_owned();
        place_pods(Rc::make_mut(&mut self.pods), &uid, min_member, free);
    }

    /// Serves the APIs again, and activates all Workloads.
    pub(super) fn end_queue_faults(&mut self) {
        self.serve_kueue(OptionalApi::Served(()));
        self.serve_groups(OptionalApi::Served(()));
        self.refresh_workloads();
        while let Some(name) = self.nth_workload(0, |workload| !workload.active) {
            self.kueue.set_active(&name, true, self.now);
            self.refresh_workloads();
        }
    }

    /// Admits all Workloads that wait. Returns true if there are any.
    pub(super) fn admit_all(&mut self) -> bool {
        let mut has_admitted = false;
        while let Some(name) = self.nth_workload(0, can_be_admitted) {
            self.kueue.admit(&name, self.now);
            self.refresh_workloads();
            has_admitted = true;
        }
        has_admitted
    }

    /// Deletes the Workloads and groups of previous jobs, as the garbage collector does.
    pub(super) fn collect_garbage(&mut self) {
        let uid = self.job.metadata.uid.clone();
        self.kueue.retain_of_job(uid.as_deref().unwrap());
        self.refresh_workloads();
        let groups = &mut Rc::make_mut(&mut self.gang).groups;
        groups.retain(|group| group.owner == uid);
    }

    fn refresh_workloads(&mut self) {
        Rc::make_mut(&mut self.queue).workloads = self.kueue.views();
    }

    /// Adds or removes the label of the queue, if the webhook allows it.
    pub(super) fn change_queue(&mut self, is_queued: bool) {
        let mut changed = self.job.clone();
        set_queue(&mut changed, is_queued);
        let is_allowed = validate_dijob_update(&json!(self.job), &json!(changed)).is_ok();
        if self.may_be_queued && is_allowed {
            self.job = changed;
        }
    }

    /// Checks that a new pod has quota and its place in the gang, as far as the process knows.
    ///
    /// The caches of the process have its own writes and never go back; see `di_cache`. They may
    /// lag behind Kueue, so a pod may be created just after Kueue has evicted its Workload. The
    /// evicted Workload keeps its quota until the orchestrator returns it. So this holds at every
    /// moment, and the model and its fake Kueue check it:
    ///
    /// - The stored status says that the job is admitted before any of its pods is created.
    /// - No pod set has more active pods than its Workload has places that are not reclaimed.
    /// - A Workload is released, finished or deleted only when none of its pods is active.
    ///
    /// After a loss of the status, or a suspension that was taken back, the status no longer says
    /// which Workload the existing pods use. They are checked against the sum of all Workloads. Not
    /// checked are pods whose Workload a user has deleted, and those that are created while the
    /// orchestrator may not use Kueue: an admitted job continues without it.
    pub(super) fn check_new_pod(&mut self, cache: &Cache, entry: &PlanEntry, pod: &Pod) {
        if self.may_be_queued || self.gang.scheduler.is_some() {
            // Also if the response is lost: the watch soon shows the pod.
            self.history.know_pods();
        }
        check_gang(&cache.job, &cache.gang, entry);
        self.check_outside_of_gang(&entry.name);
        if cache.job.queue_name().is_none() {
            return;
        }
        let is_admitted = !waits_in_queue(&cache.job);
        assert!(is_admitted, "{} is created while its job waits", entry.name);
        if !matches!(cache.queue.api, QueueApi::Served(_)) {
            let is_known = cache.queue.api != QueueApi::Unknown;
            let may_be_created = is_known || entry.role == Role::Coordinator;
            assert!(may_be_created, "the quota of {} is unknown", entry.name);
            return;
        }
        let workloads = &cache.queue.workloads;
        let quota = self.kueue.find_quota(&cache.job, entry, pod, workloads);
        let uid = pod.metadata.uid.clone().unwrap();
        self.kueue.record_quota(uid, quota);
        self.check_quota();
    }

    /// Checks that a new pod is in the gang if others wait there: a job with pods outside of a gang
    /// gets no group, so these would wait for ever.
    fn check_outside_of_gang(&self, name: &str) {
        let pod = &self.pods[name];
        let is_waiting = |other: &PodView| {
            let waits_in_gang = other.in_gang && !other.deleting && !other.is_on_node();
            waits_in_gang && other.owner == pod.owner
        };
        let others_wait = self.pods.values().any(is_waiting);
        assert!(pod.in_gang || !others_wait, "{name} is not in the gang");
    }

    fn check_quota(&self) {
        self.kueue.check_quota(&self.pods, &self.queue.workloads);
    }

    /// Applies an action for a Workload, as the API server does.
    pub(super) fn apply_workload_action(
        &mut self,
        cache: &mut Cache,
        action: &Action,
    ) -> Result<(), Failure> {
        if !matches!(self.queue.api, QueueApi::Served(_)) {
            return Err(Failure::Rejected(Reason::ApiError));
        }
        let (name, version) = written_workload(action);
        let mut all = self.queue.workloads.iter();
        let known = all.find(|workload| workload.name == name);
        let is_other = |known: &WorkloadView| known.resource_version != version.unwrap_or_default();
        if version.is_some() && known.is_some_and(is_other) {
            return Err(Failure::Conflict);
        }
        let is_applied = match action {
            Action::CreateWorkload(_) => {
                let is_foreign = |known: &WorkloadView| known.owner != cache.job.metadata.uid;
                if known.is_some_and(is_foreign) {
                    return Err(Failure::Rejected(Reason::NameConflict));
                }
                known.is_none()
            }
            Action::DeleteWorkload { uid, .. } => {
                if cache.job.queue_name().is_none() {
                    // A job that has left its queue continues without quota.
                    self.kueue.forget_quota_of(uid);
                }
                let is_same = known.is_some_and(|known| known.uid == *uid);
                let pods = self.kueue.pods_with_quota_of(uid, &self.pods);
                assert!(!is_same || pods.is_empty(), "{pods:?} have no quota");
                is_same
            }
            // The cache shows it until the watch reports its deletion.
            _ if known.is_none() => return Ok(()),
            _ => true,
        };
        if is_applied {
            let (job, pods) = (&cache.job, &self.pods);
            self.kueue.apply(action, job, pods, self.now);
            self.refresh_workloads();
            self.check_quota();
        }
        let mut all = self.queue.workloads.iter();
        let written = all.find(|workload| workload.name == name).cloned();
        let cached = &mut cache.queue.workloads;
        cached.retain(|workload| workload.name != name);
        cached.extend(written);
        Ok(())
    }

    /// Applies an action for a group, as the API server does.
    pub(super) fn apply_gang_action(
        &mut self,
        cache: &mut Cache,
        action: &Action,
    ) -> Result<(), Failure> {
        let (name, uid) = match action {
            Action::LeaveGroup { name, uid } => {
                for pods in [Rc::make_mut(&mut self.pods), &mut cache.pods] {
                    if let Some(pod) = pods.get_mut(name).filter(|pod| pod.uid == *uid) {
                        pod.in_gang = false;
                    }
                }
                return Ok(());
            }
            Action::UpdateGroup { name, uid, .. } | Action::DeleteGroup { name, uid } => {
                (name.clone(), Some(uid))
            }
            _ => (group_name(&cache.job), None),
        };
        if self.gang.api != OptionalApi::Served(()) {
            return Err(Failure::Rejected(Reason::ApiError));
        }
        let known = find_group(&self.gang, &name);
        let is_applied = match (known, uid) {
            (Some(known), Some(uid)) => known.uid == *uid,
            (Some(known), None) if known.owner != cache.job.metadata.uid => {
                return Err(Failure::Rejected(Reason::GangNameTaken));
            }
            // The cache shows it until the watch reports its deletion.
            (None, Some(_)) if matches!(action, Action::UpdateGroup { .. }) => return Ok(()),
            (Some(_), None) | (None, Some(_)) => false,
            (None, None) => true,
        };
        if is_applied {
            self.serial += 1;
            let new_uid = format!("group-{}", self.serial);
            let gang = Rc::make_mut(&mut self.gang);
            apply_group_action(gang, &cache.job, action, &new_uid);
        }
        let written = find_group(&self.gang, &name).cloned();
        let cached = &mut cache.gang.groups;
        cached.retain(|group| group.name != name);
        cached.extend(written);
        Ok(())
    }
}

/// Name of the Workload that an action writes, and the version that it must have.
fn written_workload(action: &Action) -> (&str, Option<&str>) {
    match action {
        Action::CreateWorkload(draft) => (&draft.name, None),
        Action::UpdateWorkload {
            draft,
            resource_version,
        } => (&draft.name, Some(resource_version)),
        Action::PatchWorkloadStatus(patch) => (&patch.name, Some(&patch.resource_version)),
        Action::DeleteWorkload { name, .. } => (name, None),
        other => panic!("{other:?}"),
    }
}
