//! The API server of the model: applies writes and checks their invariants.

use std::{collections::BTreeSet, rc::Rc};

use di_api::{DIJob, DIJobStatus, EntryState, Phase, PlanEntry, Reason, Role};
use di_plan::{
    PodView, ServiceView, find_entry, group_members, is_group_complete, leader_of, wanted_members,
};

use super::{Failure, Model, queue::waits_in_queue, version};
use crate::step::{
    Action,
    tests::{
        exploration::{WriteFault, lagging_caches::Cache},
        fake_cluster::{COORDINATOR, created_pod},
    },
};

impl Model {
    /// Returns the fault of the next write.
    fn next_fault(&mut self) -> Option<WriteFault> {
        let sent = self.sent;
        self.sent += 1;
        if let Some((_, happening)) = self.preceded.take_if(|(at, _)| *at == sent) {
            self.apply_happening(&happening);
        }
        let fault = self.fault.filter(|(at, _)| *at == sent);
        fault.map(|(_, fault)| fault)
    }

    /// Writes the status, guarded by the resource version that it was computed from.
    pub(super) fn write(&mut self, cache: &mut Cache, status: DIJobStatus) -> Result<(), Failure> {
        let fault = self.next_fault();
        match fault {
            Some(WriteFault::Killed) => return Err(Failure::Killed),
            Some(WriteFault::Rejected) => return Err(Failure::Rejected(Reason::ApiError)),
            Some(WriteFault::ResponseLost) | None => {}
        }
        self.writes += 1;
        if version(&cache.job) != version(&self.job) {
            return Err(Failure::Conflict);
        }
        self.check_write(&status);
        self.job.status = Some(status);
        self.job_written();
        if fault.is_some() {
            return Err(Failure::ResponseLost);
        }
        self.known = self.job.clone();
        cache.job = self.job.clone();
        Ok(())
    }

    pub(super) fn job_written(&mut self) {
        self.job.metadata.resource_version = Some((version(&self.job) + 1).to_string());
    }

    /// Checks the invariants of a written status.
    fn check_write(&mut self, new: &DIJobStatus) {
        let old = self.job.status.as_ref();
        if new.queueing.is_some() && old.is_none_or(|old| old.queueing.is_none()) {
            // Pods from before a suspension that was taken back may use other quota of the job.
            self.kueue.forget_workloads();
        }
        // A job that is suspended, or waits in a queue, creates the same names again.
        let waits = self.job.queue_name().is_some() && new.queueing.is_none();
        let is_paused = self.job.spec.suspend || waits;
        if let Some(old) = &self.job.status {
            if old.phase.is_some_and(Phase::is_terminal) {
                assert_eq!(old.phase, new.phase, "an ended job continues");
            }
            for entry in new.plan.iter().filter(|entry| entry.uid.is_none()) {
                let before =
                    find_entry(&old.plan, &entry.name).and_then(|entry| entry.uid.as_ref());
                assert!(
                    is_paused || before.is_none(),
                    "{} would be created twice",
                    entry.name
                );
            }
        }
        let failed = i32::try_from(self.failures.len()).unwrap();
        let max_restarts = failed.min(self.job.spec.backoff_limit);
        assert!(
            new.restarts <= max_restarts,
            "{} of {failed} failures",
            new.restarts
        );
        check_groups(new);
        for entry in &new.plan {
            if entry.uid.is_some() {
                self.recorded.insert(entry.name.clone());
            } else {
                self.recorded.remove(&entry.name);
            }
        }
    }

    /// Applies all actions and returns the first failure.
    pub(super) fn apply(&mut self, cache: &mut Cache, actions: Vec<Action>) -> Result<(), Failure> {
        let mut first = None;
        for action in actions {
            let fault = self.next_fault();
            let result = match fault {
                Some(WriteFault::Killed) => return Err(Failure::Killed),
                Some(WriteFault::Rejected) => Err(Failure::Rejected(Reason::ApiError)),
                Some(WriteFault::ResponseLost) => {
                    let mut unused_cache = cache.clone();
                    self.apply_action(&mut unused_cache, action)
                        .and(Err(Failure::Rejected(Reason::Timeout)))
                }
                None => {
                    let is_for_queue_or_gang = action.is_for_workload() || action.is_for_group();
                    let result = self.apply_action(cache, action);
                    if is_for_queue_or_gang && result.is_ok() {
                        self.history.know_workloads_and_groups();
                    }
                    result
                }
            };
            first = first.or(result.err());
        }
        first.map_or(Ok(()), Err)
    }

    fn apply_action(&mut self, cache: &mut Cache, action: Action) -> Result<(), Failure> {
        self.writes += 1;
        let job = cache.job.metadata.uid.clone();
        match action {
            Action::CreatePod(entry) => {
                if let Some(pod) = self.create_pod(cache, &entry)? {
                    cache.pods.insert(entry.name, pod);
                }
            }
            Action::CreateService(entry) => {
                let service = self.create_service(&cache.job, &entry)?;
                cache.services.insert(entry.name, service);
            }
            Action::DeletePod { name, uid } => {
                for pods in [Rc::make_mut(&mut self.pods), &mut cache.pods] {
                    if let Some(pod) = pods.get_mut(&name).filter(|pod| pod.uid == uid) {
                        assert_eq!(pod.owner, job, "{name} is deleted");
                        pod.deleting = true;
                    }
                }
            }
            Action::StopPod { name, uid } => {
                for pods in [Rc::make_mut(&mut self.pods), &mut cache.pods] {
                    if let Some(pod) = pods.get_mut(&name).filter(|pod| pod.uid == uid) {
                        assert_eq!(pod.owner, job, "{name} is stopped");
                        pod.deadline_requested = true;
                    }
                }
            }
            Action::DeleteService { name, uid } => {
                let is_same = |service: &ServiceView| service.uid == uid;
                if self.services.get(&name).is_some_and(is_same) {
                    assert!(
                        !self.needs_service(&cache.job, &name),
                        "{name} has no service"
                    );
                }
                for services in [Rc::make_mut(&mut self.services), &mut cache.services] {
                    if let Some(service) = services.get(&name).filter(|s| s.uid == uid) {
                        assert_eq!(service.owner, job, "service {name} is deleted");
                        services.remove(&name);
                    }
                }
            }
            Action::DeleteJob if job == self.job.metadata.uid => {
                // The cached job has ended, even if its status was lost since.
                let status = cache.job.status.as_ref().unwrap();
                let ended = status.completion_time.as_ref().unwrap().0;
                let kept = self.now.duration_since(ended).as_secs();
                let ttl = cache.job.spec.ttl_seconds_after_finished.unwrap();
                assert!(status.phase.unwrap().is_terminal() && kept >= i64::from(ttl));
                self.deleted = true;
            }
            Action::DeleteJob => {}
            Action::CreateGroup { .. }
            | Action::UpdateGroup { .. }
            | Action::DeleteGroup { .. }
            | Action::LeaveGroup { .. } => self.apply_gang_action(cache, &action)?,
            other => self.apply_workload_action(cache, &other)?,
        }
        Ok(())
    }

    /// Returns true if a replica needs its service: it is planned, and the observed job is active.
    fn needs_service(&self, observed: &DIJob, name: &str) -> bool {
        let ended = observed.status.as_ref().is_some_and(DIJobStatus::has_ended);
        let is_paused = observed.spec.suspend || waits_in_queue(observed);
        let same = observed.metadata.uid == self.job.metadata.uid;
        let mut plan = self.job.status.iter().flat_map(|status| &status.plan);
        let wanted = |entry: &PlanEntry| entry.name == name && entry.is_wanted();
        same && !ended && !is_paused && (name == COORDINATOR || plan.any(wanted))
    }

    fn create_pod(&mut self, cache: &Cache, entry: &PlanEntry) -> Result<Option<PodView>, Failure> {
        let job = &cache.job;
        if entry.role == Role::Aggregator && self.aggregator.pod_template().is_none() {
            // The next step reports the missing configuration.
            return Ok(None);
        }
        if let Some(existing) = self.pods.get(&entry.name) {
            let ours = existing.owner == job.metadata.uid;
            return ours
                .then(|| Some(existing.clone()))
                .ok_or(Failure::Rejected(Reason::NameConflict));
        }
        if self.quota {
            return Err(Failure::Rejected(Reason::QuotaExceeded));
        }
        assert!(
            !self.recorded.contains(&entry.name),
            "{} created twice",
            entry.name
        );
        let mut plans = job.status.iter().map(|status| &status.plan);
        let is_planned = plans.any(|plan| find_entry(plan, &entry.name).is_some());
        assert!(
            is_planned || entry.role == Role::Coordinator,
            "{} is not planned",
            entry.name
        );
        self.serial += 1;
        let gang = cache.gang.scheduler.clone();
        let pod = created_pod(job, entry, &self.aggregator, gang, self.serial);
        let view = PodView::new(&pod).unwrap();
        Rc::make_mut(&mut self.pods).insert(entry.name.clone(), view.clone());
        self.check_new_pod(cache, entry, &pod);
        Ok(Some(view))
    }

    fn create_service(&mut self, job: &DIJob, entry: &PlanEntry) -> Result<ServiceView, Failure> {
        if let Some(existing) = self.services.get(&entry.name) {
            let ours = existing.owner == job.metadata.uid;
            return ours
                .then(|| existing.clone())
                .ok_or(Failure::Rejected(Reason::NameConflict));
        }
        self.serial += 1;
        let service = created_service(job, entry, self.serial);
        let services = Rc::make_mut(&mut self.services);
        services.insert(entry.name.clone(), service.clone());
        Ok(service)
    }
}

/// Returns the service of an entry as the watch shows it after the create.
pub(super) fn created_service(job: &DIJob, entry: &PlanEntry, serial: u32) -> ServiceView {
    let mut service = ServiceView::new(&di_plan::build_service(job, entry)).unwrap();
    service.uid = format!("service-{serial}");
    service
}

/// Checks that learner groups are replaced and removed as a whole: ddp learners have the state of
/// their aggregator, and a wanted aggregator has all of them. Units too.
pub(super) fn check_groups(status: &DIJobStatus) {
    check_units(status);
    let plan = &status.plan;
    let aggregators = plan.iter().filter(|e| e.role == Role::Aggregator);
    for group in aggregators.filter(|e| e.is_wanted()) {
        let has_no_members = group_members(plan, &group.name).next().is_none();
        assert!(
            has_no_members || is_group_complete(plan, &group.name),
            "{plan:#?}"
        );
    }
    for member in plan.iter().filter(|e| e.role == Role::DdpLearner) {
        let owner = leader_of(member).and_then(|name| find_entry(plan, name));
        let owner = owner.map_or(EntryState::Removing, |owner| owner.state);
        let matches_owner = member.state == owner
            || member.state == EntryState::Removing && owner != EntryState::Wanted;
        assert!(matches_owner, "{member:?} {owner:?}");
    }
}

/// Checks that no two units have one index, no two pods one place, and that no pod of a unit is wanted
/// without its leader. A wanted unit has all pods, or none but the leader: they are planned next.
fn check_units(status: &DIJobStatus) {
    let plan = &status.plan;
    let wanted = || {
        let in_units = plan.iter().filter(|entry| entry.is_in_unit());
        in_units.filter(|entry| entry.is_wanted())
    };
    let leaders = || wanted().filter(|entry| entry.is_replica());
    let indices: BTreeSet<_> = leaders().map(|leader| leader.index).collect();
    assert_eq!(indices.len(), leaders().count(), "{plan:#?}");
    for leader in leaders().filter(|leader| !leader.done) {
        let has_no_members = wanted_members(plan, &leader.name).next().is_none();
        let is_complete = is_group_complete(plan, &leader.name);
        assert!(has_no_members || is_complete, "{plan:#?}");
    }
    let mut places = BTreeSet::new();
    for member in wanted().filter(|entry| !entry.is_replica()) {
        let leader = leader_of(member).and_then(|name| find_entry(plan, name));
        let leader = leader.filter(|leader| leader.is_wanted());
        assert!(leader.is_some(), "{member:?} has no leader");
        let place = member.unit.as_ref().unwrap();
        assert!(places.insert((&place.leader, place.index)), "{plan:#?}");
    }
}
