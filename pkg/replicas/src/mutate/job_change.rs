use std::collections::HashMap;

use di_api::{PlanEntry, RequestKind, RequestRecord};
use di_cache::JobView;

use crate::idempotency::recorded_scale_down::{ReplicaGroupRef, ScaleDown};

/// A change of one job.
#[derive(Debug, Default)]
pub(crate) struct JobChange {
    /// The new plan.
    pub(crate) plan: Vec<PlanEntry>,
    /// Record of the request, written with this change so that a repeated request is recognised.
    pub(crate) new_record: Option<RequestRecord>,
    /// Kind and key of an earlier request whose record this change removes.
    pub(crate) rolled_back_request: Option<(RequestKind, String)>,
    /// Scale-down of each declared count: by how much, and the names that are deleted for it.
    pub(crate) scale_downs: HashMap<ReplicaGroupRef, ScaleDown>,
}

impl JobChange {
    pub(super) fn is_noop(&self, job: &JobView) -> bool {
        self.plan == job.plan
            && self.scale_downs.is_empty()
            && self.new_record.is_none()
            && self.rolled_back_request.is_none()
    }
}
