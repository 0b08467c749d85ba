use std::net::IpAddr;

use di_api::Role;
use di_plan::{GroupView, PodView, ServiceView, WorkloadView};

use crate::key::Key;

/// The cached part of an object that belongs to a job.
pub trait View: Clone + PartialEq + Send + Sync {
    /// Key of the job that the object belongs to.
    fn job_key(&self) -> Key;
    /// Name of the object.
    fn name(&self) -> &str;
    /// UID of the object.
    fn uid(&self) -> &str;
    /// Pod IPs that the object owns. A service has none.
    fn pod_ips(&self) -> &[IpAddr] {
        &[]
    }
    /// Whether this object owns a pod IP that both objects report: a pod that is not being deleted
    /// wins over one that is, then the newer pod wins.
    ///
    /// Kubernetes reuses pod IPs, and the deletion of the old owner may not be visible yet.
    fn owns_shared_ip(&self, _other: &Self) -> bool {
        true
    }
    /// Whether a deletion of the object was requested.
    fn is_deleting(&self) -> bool;
    /// Records that a deletion of the object was requested.
    fn mark_deleting(&mut self);
    /// Whether the cache keeps the final state of the object after its deletion.
    fn should_keep_final_state(&self) -> bool {
        false
    }
}

impl View for PodView {
    fn job_key(&self) -> Key {
        (self.namespace.clone(), self.job.clone())
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn uid(&self) -> &str {
        &self.uid
    }
    fn pod_ips(&self) -> &[IpAddr] {
        // Another pod may have the IP of a pod that has ended.
        match &self.ips {
            Some(ips) if self.is_active() => ips,
            _ => &[],
        }
    }
    fn owns_shared_ip(&self, other: &Self) -> bool {
        (!self.deleting, self.created) >= (!other.deleting, other.created)
    }
    fn is_deleting(&self) -> bool {
        self.deleting
    }
    fn mark_deleting(&mut self) {
        self.deleting = true;
    }
    fn should_keep_final_state(&self) -> bool {
        // The result of the coordinator decides the result of the job.
        self.role == Some(Role::Coordinator) && self.end.is_some()
    }
}

impl View for ServiceView {
    fn job_key(&self) -> Key {
        (self.namespace.clone(), self.job.clone())
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn uid(&self) -> &str {
        &self.uid
    }
    fn is_deleting(&self) -> bool {
        self.deleting
    }
    fn mark_deleting(&mut self) {
        self.deleting = true;
    }
}

impl View for WorkloadView {
    fn job_key(&self) -> Key {
        (self.namespace.clone(), self.job.clone())
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn uid(&self) -> &str {
        &self.uid
    }
    fn is_deleting(&self) -> bool {
        self.deleting
    }
    fn mark_deleting(&mut self) {
        self.deleting = true;
    }
}

impl View for GroupView {
    fn job_key(&self) -> Key {
        (self.namespace.clone(), self.job.clone())
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn uid(&self) -> &str {
        &self.uid
    }
    fn is_deleting(&self) -> bool {
        self.deleting
    }
    fn mark_deleting(&mut self) {
        self.deleting = true;
    }
}
