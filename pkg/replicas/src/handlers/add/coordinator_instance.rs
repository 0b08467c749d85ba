use di_api::names;
use di_cache::JobView;
use di_plan::{Job, PodView, RestartPolicy, entry_kind};
use tokio::time::{Instant, timeout_at};

use super::addition::Addition;
use crate::authorize::identity::{Identity, owns_pod};

/// A coordinator pod since its last restart.
pub(super) struct CoordinatorInstance {
    /// Pod UID and restart count.
    pub(super) id: String,
    /// Whether the kubelet may have restarted the container and not reported it yet.
    may_have_restarted: bool,
}

/// Returns the coordinator instance of the job if a pod of the job sent the request. A restarted
/// instance claims the replicas of the previous one.
pub(super) fn coordinator_instance(
    addition: &Addition<'_>,
    job: &JobView,
) -> Option<CoordinatorInstance> {
    let Addition { state, key, .. } = *addition;
    let Identity::Pod(sender, _) = addition.identity else {
        return None;
    };
    let instance_of = |pod: &PodView| CoordinatorInstance {
        id: pod.coordinator_instance(),
        may_have_restarted: pod.restart_policy != RestartPolicy::Never,
    };
    let coordinator = names::coordinator_name(&key.1);
    state.pods.read_objects(key, |pods| {
        let pod = pods.get(&coordinator).filter(|pod| owns_pod(job, pod));
        pod.map(instance_of)
            .or_else(|| (sender.name == coordinator).then(|| instance_of(sender)))
    })
}

/// Waits for the restart status if the coordinator may have been restarted.
///
/// A coordinator that restarts in place may send requests before the kubelet reports the restart. Its
/// replicas would be planned twice. So a request for more replicas of existing kinds waits.
pub(super) async fn wait_for_restart_status(addition: &Addition<'_>) {
    let Addition { state, key, .. } = *addition;
    let deadline = Instant::now() + state.settings.kubelet_wait;
    let mut changes = state.pods.subscribe_changes();
    loop {
        changes.mark_unchanged();
        let may_be_restarted = state.jobs.get(key).is_some_and(|job| {
            let own = coordinator_instance(addition, &job).filter(|own| own.may_have_restarted);
            own.is_some_and(|own| has_other_replicas(addition, &job, &own.id))
        });
        if !may_be_restarted || !matches!(timeout_at(deadline, changes.changed()).await, Ok(Ok(())))
        {
            return;
        }
    }
}

/// Whether a coordinator instance has replicas of the requested kinds from other requests.
fn has_other_replicas(addition: &Addition<'_>, job: &JobView, instance: &str) -> bool {
    let kinds: Vec<_> = addition
        .roles
        .iter()
        .map(|(role, part)| entry_kind(job, *role, &part.resources))
        .collect();
    job.plan_entries()
        .iter()
        .filter(|e| e.is_wanted() && e.claimed_by.as_deref() == Some(instance))
        .filter(|e| e.request_key.as_deref() != Some(addition.request_key))
        .any(|e| {
            kinds
                .iter()
                .any(|kind| (kind.0, &kind.1) == (e.role, &e.resources))
        })
}
