use std::fmt;

use di_api::{ReplicaResources, Role};

/// Numbers of collectors and learners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts<T = i32> {
    /// Collectors.
    pub collectors: T,
    /// Learners.
    pub learners: T,
}

impl<T> Counts<T> {
    pub(crate) fn by_role(self) -> [(Role, T); 2] {
        [
            (Role::Collector, self.collectors),
            (Role::Learner, self.learners),
        ]
    }
}

/// Selects a replica group of a job. The default selects the replicas outside of groups.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReplicaGroupRef {
    /// Name of the group.
    pub group: Option<String>,
    /// Resources of the group. GPUs apply to learners only.
    pub resources: ReplicaResources,
}

impl ReplicaGroupRef {
    pub(crate) fn resources_for(&self, role: Role) -> ReplicaResources {
        let mut resources = self.resources.clone();
        if role == Role::Collector {
            resources.gpus = None;
        }
        resources
    }
}

/// A change of the declared replica counts of a job.
#[derive(Clone, Debug, PartialEq)]
pub enum ScaleRequest {
    /// Changes the counts by a difference.
    By {
        /// Differences. Negative values remove replicas.
        counts: Counts,
        /// The group. Adding replicas with new resources creates a group.
        selector: ReplicaGroupRef,
    },
    /// Sets the counts. `None` keeps a count.
    To {
        /// New counts.
        counts: Counts<Option<i32>>,
        /// The group.
        selector: ReplicaGroupRef,
    },
    /// Removes replicas by name and lowers the counts.
    RemoveNamed(Vec<String>),
}

/// A changed count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScaledCount {
    /// Role of the replicas.
    pub role: Role,
    /// Name of the group. `None` for replicas outside of groups.
    pub group: Option<String>,
    /// Old count.
    pub from: i32,
    /// New count.
    pub to: i32,
}

impl fmt::Display for ScaledCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}s", self.role)?;
        if let Some(group) = &self.group {
            write!(f, " of group {group}")?;
        }
        write!(f, " {} -> {}", self.from, self.to)
    }
}
