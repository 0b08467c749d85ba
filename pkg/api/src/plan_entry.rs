use crate::{role::Role, status::PlanEntry};

impl PlanEntry {
    /// Whether the entry represents a replica. Ddp learners, and the pods of a unit other than its
    /// leader, belong to the replica of another entry.
    pub fn is_replica(&self) -> bool {
        let follows = self.unit.as_ref().is_some_and(|unit| unit.leader.is_some());
        self.role != Role::DdpLearner && !follows
    }

    /// Whether the entry represents a replica that counts as one of this role: an aggregator counts
    /// as a learner.
    pub fn counts_as(&self, role: Role) -> bool {
        self.is_replica() && self.role.counted_as() == role
    }

    /// Whether the entry is a pod of a unit of several pods.
    pub fn is_in_unit(&self) -> bool {
        self.unit.as_ref().is_some_and(|unit| unit.size > 1)
    }

    /// Whether the entry represents a replica of several pods: it is an aggregator, or the leader
    /// of a unit.
    pub fn leads_group(&self) -> bool {
        self.role == Role::Aggregator || self.is_replica() && self.is_in_unit()
    }
}
