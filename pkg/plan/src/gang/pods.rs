use std::collections::BTreeSet;

use di_api::{DIJob, PlanEntry, PodTemplate, Role, names, names::gang};
use kube::ResourceExt;

use super::{
    floor::floor_members,
    groups::{group_name, topology_term},
    scheduler::GangScheduler,
    task_groups::build_task_groups,
};
use crate::{
    build::{NewPod, PodSpecEditor},
    job::Job,
    queueing::pod_set_name,
};

/// The gang of a job, for its new pods.
#[derive(Debug)]
pub(crate) struct Gang<'a> {
    job: &'a DIJob,
    scheduler: &'a GangScheduler,
    floor: BTreeSet<&'a str>,
    /// Annotation of the pods of the floor; only for YuniKorn.
    task_groups: String,
}

impl<'a> Gang<'a> {
    /// The gang of a job by its plan. `aggregator` is the template of aggregators.
    pub(crate) fn new(
        job: &'a DIJob,
        aggregator: Option<&PodTemplate>,
        scheduler: &'a GangScheduler,
    ) -> Self {
        let floor = floor_members(job, job.plan_entries()).unwrap_or_default();
        let task_groups = if *scheduler == GangScheduler::Yunikorn {
            build_task_groups(job, &floor, aggregator)
        } else {
            String::new()
        };
        Self {
            job,
            scheduler,
            floor,
            task_groups,
        }
    }

    /// Adds a pod to the gang: the scheduler, the group, and the topology of the floor.
    pub(crate) fn add_pod(&self, pod: &mut NewPod, entry: &PlanEntry) {
        let job = self.job;
        let group = group_name(job);
        let queue = job.spec.scheduling.as_ref().map(|part| part.queue.clone());
        let queue = queue.unwrap_or_default();
        let is_in_floor = entry.role == Role::Coordinator || self.floor.contains(&*entry.name);
        let mut spec = PodSpecEditor::from_fields(std::mem::take(&mut pod.spec));
        if let Some(name) = self.scheduler.scheduler_name() {
            spec.default_scheduler(name);
        }
        let (mut labels, mut annotations) = (Vec::new(), Vec::new());
        match self.scheduler {
            GangScheduler::Volcano => {
                annotations.push((gang::VOLCANO_GROUP, group.clone()));
                annotations.push((gang::VOLCANO_TASK, entry.role.label().to_owned()));
                annotations.push((gang::VOLCANO_PREEMPTABLE, (!is_in_floor).to_string()));
            }
            GangScheduler::Coscheduling { .. } => {
                labels.push((gang::COSCHEDULING_GROUP, group.clone()));
            }
            GangScheduler::Yunikorn => {
                labels.push((gang::YUNIKORN_APPLICATION, job.uid().unwrap_or_default()));
                labels.push((gang::YUNIKORN_QUEUE, queue));
                if is_in_floor {
                    annotations.push((gang::YUNIKORN_TASK_GROUP, pod_set_name(entry)));
                    annotations.push((gang::YUNIKORN_TASK_GROUPS, self.task_groups.clone()));
                }
            }
            GangScheduler::Kai => {
                annotations.push((gang::KAI_GROUP, group.clone()));
                annotations.push((gang::KAI_SKIP_GROUPER, true.to_string()));
                labels.push((gang::KAI_QUEUE, queue));
            }
            GangScheduler::Kubernetes => spec.set_scheduling_group(&group),
        }
        // The group of Kubernetes has the topology itself.
        let has_own_topology = *self.scheduler == GangScheduler::Kubernetes;
        if let Some(term) = topology_term(job).filter(|_| is_in_floor && !has_own_topology) {
            labels.push((names::GANG_LABEL, group));
            spec.add_pod_affinity(term);
        }
        pod.spec = spec.into_fields();
        for (own, added) in [
            (&mut pod.metadata.labels, labels),
            (&mut pod.metadata.annotations, annotations),
        ] {
            let added = added.into_iter().filter(|(_, value)| !value.is_empty());
            let added = added.map(|(key, value)| (key.to_owned(), value));
            own.get_or_insert_default().extend(added);
        }
    }
}
