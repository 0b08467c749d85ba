//! What the server makes of writes, and what must hold of each.

use std::rc::Rc;

use di_api::{DIJob, DIJobStatus, EntryState, Phase, PlanEntry, Reason, Role};
use di_plan::{PodView, ServiceView, aggregator_of, find, is_whole, members};

use super::{Failure, Model, version};
use crate::step::{
    Action,
    tests::{
        exploration::{Fate, past::Cache},
        world::{COORDINATOR, made},
    },
};

impl Model {
    /// What becomes of the next write.
    fn fate(&mut self) -> Option<Fate> {
        let sent = self.sent;
        self.sent += 1;
        if let Some((_, happening)) = self.overtaken.take_if(|(at, _)| *at == sent) {
            self.happens(&happening);
        }
        let fault = self.fault.filter(|(at, _)| *at == sent);
        fault.map(|(_, fate)| fate)
    }

    /// Guarded by the version that it was derived from.
    pub(super) fn write(&mut self, cache: &mut Cache, status: DIJobStatus) -> Result<(), Failure> {
        let fate = self.fate();
        match fate {
            Some(Fate::Dies) => return Err(Failure::Died),
            Some(Fate::Refused) => return Err(Failure::Refused(Reason::ApiError)),
            Some(Fate::Unanswered) | None => {}
        }
        self.writes += 1;
        if version(&cache.job) != version(&self.job) {
            return Err(Failure::Conflict);
        }
        self.check(&status);
        self.job.status = Some(status);
        self.job_written();
        if fate.is_some() {
            return Err(Failure::Unanswered);
        }
        self.known = self.job.clone();
        cache.job = self.job.clone();
        Ok(())
    }

    pub(super) fn job_written(&mut self) {
        self.job.metadata.resource_version = Some((version(&self.job) + 1).to_string());
    }

    /// What holds of every status that is written.
    fn check(&mut self, new: &DIJobStatus) {
        let held = self.job.spec.suspend;
        if let Some(old) = &self.job.status {
            if old.phase.is_some_and(Phase::is_terminal) {
                assert_eq!(old.phase, new.phase, "it ended, and goes on");
            }
            for entry in new.plan.iter().filter(|entry| entry.uid.is_none()) {
                let before = find(&old.plan, &entry.name).and_then(|entry| entry.uid.as_ref());
                assert!(
                    held || before.is_none(),
                    "{} is to be made twice",
                    entry.name
                );
            }
        }
        let failed = i32::try_from(self.failures.len()).unwrap();
        let most = failed.min(self.job.spec.backoff_limit);
        assert!(
            new.restarts <= most,
            "{} of {failed} failures",
            new.restarts
        );
        check_units(new);
        for entry in &new.plan {
            if entry.uid.is_some() {
                self.told.insert(entry.name.clone());
            } else {
                self.told.remove(&entry.name);
            }
        }
    }

    /// All are tried, and the first failure is told of.
    pub(super) fn act(&mut self, cache: &mut Cache, actions: Vec<Action>) -> Result<(), Failure> {
        let mut first = None;
        for action in actions {
            let fate = self.fate();
            let result = match fate {
                Some(Fate::Dies) => return Err(Failure::Died),
                Some(Fate::Refused) => Err(Reason::ApiError),
                Some(Fate::Unanswered) => {
                    let mut nobodys = cache.clone();
                    self.carry_out(&mut nobodys, action)
                        .and(Err(Reason::Timeout))
                }
                None => self.carry_out(cache, action),
            };
            first = first.or(result.err());
        }
        first.map_or(Ok(()), |reason| Err(Failure::Refused(reason)))
    }

    fn carry_out(&mut self, cache: &mut Cache, action: Action) -> Result<(), Reason> {
        self.writes += 1;
        let job = cache.job.metadata.uid.clone();
        match action {
            Action::CreatePod(entry) => {
                if let Some(pod) = self.create(&cache.job, &entry)? {
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
            Action::EndPod { name, uid } => {
                for pods in [Rc::make_mut(&mut self.pods), &mut cache.pods] {
                    if let Some(pod) = pods.get_mut(&name).filter(|pod| pod.uid == uid) {
                        assert_eq!(pod.owner, job, "{name} is ended");
                        pod.told_to_end = true;
                    }
                }
            }
            Action::DeleteService { name, uid } => {
                let hit = |service: &ServiceView| service.uid == uid;
                if self.services.get(&name).is_some_and(hit) {
                    assert!(!self.is_heard(&cache.job, &name), "{name} is not heard");
                }
                for services in [Rc::make_mut(&mut self.services), &mut cache.services] {
                    if let Some(service) = services.get(&name).filter(|s| s.uid == uid) {
                        assert_eq!(service.owner, job, "service {name} is deleted");
                        services.remove(&name);
                    }
                }
            }
            Action::DeleteJob if job == self.job.metadata.uid => {
                // It ended so, even if that was lost since.
                let status = cache.job.status.as_ref().unwrap();
                let ended = status.completion_time.as_ref().unwrap().0;
                let kept = self.now.duration_since(ended).as_secs();
                let ttl = cache.job.spec.ttl_seconds_after_finished.unwrap();
                assert!(status.phase.unwrap().is_terminal() && kept >= i64::from(ttl));
                self.deleted = true;
            }
            Action::DeleteJob => {}
        }
        Ok(())
    }

    /// Whoever has a place in the job is to be heard, as long as nobody has seen it end or held.
    fn is_heard(&self, seen: &DIJob, name: &str) -> bool {
        let ended = seen.status.as_ref().is_some_and(DIJobStatus::has_ended);
        let same = seen.metadata.uid == self.job.metadata.uid;
        let mut plan = self.job.status.iter().flat_map(|status| &status.plan);
        let wanted = |entry: &PlanEntry| entry.name == name && entry.is_wanted();
        same && !ended && !seen.spec.suspend && (name == COORDINATOR || plan.any(wanted))
    }

    fn create(&mut self, job: &DIJob, entry: &PlanEntry) -> Result<Option<PodView>, Reason> {
        if entry.role == Role::Aggregator && self.aggregator.found().is_none() {
            // The next look will tell.
            return Ok(None);
        }
        if let Some(there) = self.pods.get(&entry.name) {
            let ours = there.owner == job.metadata.uid;
            return ours
                .then(|| Some(there.clone()))
                .ok_or(Reason::NameConflict);
        }
        if self.quota {
            return Err(Reason::QuotaExceeded);
        }
        assert!(
            !self.told.contains(&entry.name),
            "{} made twice",
            entry.name
        );
        self.serial += 1;
        let pod = made(job, entry, &self.aggregator, self.serial);
        Rc::make_mut(&mut self.pods).insert(entry.name.clone(), pod.clone());
        Ok(Some(pod))
    }

    fn create_service(&mut self, job: &DIJob, entry: &PlanEntry) -> Result<ServiceView, Reason> {
        if let Some(there) = self.services.get(&entry.name) {
            let ours = there.owner == job.metadata.uid;
            return ours.then(|| there.clone()).ok_or(Reason::NameConflict);
        }
        self.serial += 1;
        let service = listening(job, entry, self.serial);
        let services = Rc::make_mut(&mut self.services);
        services.insert(entry.name.clone(), service.clone());
        Ok(service)
    }
}

/// The service of an entry, as it is seen once the server has taken it.
pub(super) fn listening(job: &DIJob, entry: &PlanEntry, serial: u32) -> ServiceView {
    let mut service = ServiceView::new(&di_plan::service(job, entry)).unwrap();
    service.uid = format!("service-{serial}");
    service
}

/// A unit is never half replaced or half let go of: a ddp learner is wanted while its aggregator is, and then all of them are there.
pub(super) fn check_units(status: &DIJobStatus) {
    let plan = &status.plan;
    let aggregators = plan.iter().filter(|e| e.role == Role::Aggregator);
    for unit in aggregators.filter(|e| e.is_wanted()) {
        let bare = members(plan, &unit.name).next().is_none();
        assert!(bare || is_whole(plan, &unit.name), "{plan:#?}");
    }
    for member in plan.iter().filter(|e| e.role == Role::DdpLearner) {
        let leader = aggregator_of(member).and_then(|name| find(plan, name));
        let leader = leader.map_or(EntryState::Removing, |leader| leader.state);
        let follows = member.state == leader
            || member.state == EntryState::Removing && leader != EntryState::Wanted;
        assert!(follows, "{member:?} {leader:?}");
    }
}
