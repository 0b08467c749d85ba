use std::sync::Arc;

use di_cache::{JobRef, JobView};
use di_plan::PodView;

use crate::error::{Error, Result};

/// Who sent an authorized request.
#[derive(Clone, Debug)]
pub(crate) enum Identity {
    /// A pod of a job, and that job.
    Pod(Arc<PodView>, JobRef<JobView>),
    /// The owner of a token, or an anonymous sender.
    TokenOrAnonymous,
}

impl Identity {
    /// The namespace of the pod that sent the request.
    pub(crate) fn pod_namespace(&self) -> Option<&str> {
        match self {
            Self::Pod(pod, _) => Some(&pod.namespace),
            Self::TokenOrAnonymous => None,
        }
    }

    /// Fails if the pod belongs to another job, such as an older one of the same name.
    pub(crate) fn check_same_job(&self, job: &JobView) -> Result<()> {
        match self {
            Self::Pod(pod, _) if !owns_pod(job, pod) => Err(foreign_pod_error(pod)),
            Self::Pod(..) | Self::TokenOrAnonymous => Ok(()),
        }
    }
}

/// Whether the pod has this job as its owner.
pub(crate) fn owns_pod(job: &JobView, pod: &PodView) -> bool {
    let uid = job.metadata.uid.as_deref();
    uid.is_some_and(|uid| pod.belongs_to(uid))
}

pub(super) fn foreign_pod_error(pod: &PodView) -> Error {
    Error::Forbidden(format!(
        "pod {} does not belong to the current DIJob {}: it has another owner",
        pod.name, pod.job
    ))
}
