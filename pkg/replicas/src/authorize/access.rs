use di_cache::Key;
use di_plan::PodView;

/// The access that a request needs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Access<'a> {
    /// Read a job, the jobs of a namespace, or all jobs.
    Read {
        namespace: Option<&'a str>,
        job: Option<&'a str>,
    },
    /// Change a job.
    Change(&'a Key),
}

impl Access<'_> {
    pub(super) fn verb(self) -> &'static str {
        match self {
            Self::Read { .. } => "get",
            Self::Change(_) => "update",
        }
    }

    pub(super) fn namespace(&self) -> Option<&str> {
        match self {
            Self::Read { namespace, .. } => *namespace,
            Self::Change(job) => Some(&job.0),
        }
    }

    pub(super) fn job(&self) -> Option<&str> {
        match self {
            Self::Read { job, .. } => *job,
            Self::Change(job) => Some(&job.1),
        }
    }

    /// Pods change only their own job and read only their own namespace. A read of all namespaces is
    /// allowed and returns their own.
    pub(super) fn is_allowed_for(&self, pod: &PodView) -> bool {
        match self {
            Self::Read { namespace, .. } => {
                namespace.is_none_or(|namespace| namespace == pod.namespace)
            }
            Self::Change(job) => job.0 == pod.namespace && job.1 == pod.job,
        }
    }
}
