use std::net::IpAddr;

use di_api::Role;
use di_plan::{PodView, ServiceView};

use crate::Key;

/// What is cached of an object that belongs to a job.
pub trait View: Clone + PartialEq + Send + Sync {
    /// Key of its job.
    fn job(&self) -> Key;
    /// Its name.
    fn name(&self) -> &str;
    /// Its UID.
    fn uid(&self) -> &str;
    /// Addresses by which it is known.
    fn addresses(&self) -> &[IpAddr] {
        &[]
    }
    /// Whether an address that both have is this one's: it goes over from who is gone, though nobody may have said so yet.
    fn has_rather(&self, _other: &Self) -> bool {
        true
    }
    /// Notes that its deletion was asked for.
    fn mark_deleting(&mut self);
    /// Whether how it was at last matters once it has gone.
    fn matters_gone(&self) -> bool {
        false
    }
}

impl View for PodView {
    fn job(&self) -> Key {
        (self.namespace.clone(), self.job.clone())
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn uid(&self) -> &str {
        &self.uid
    }
    fn addresses(&self) -> &[IpAddr] {
        // The address of a pod that has ended may be another's by now.
        match &self.ips {
            Some(ips) if self.uses_cluster() => ips,
            _ => &[],
        }
    }
    fn has_rather(&self, other: &Self) -> bool {
        (!self.deleting, self.created) >= (!other.deleting, other.created)
    }
    fn mark_deleting(&mut self) {
        self.deleting = true;
    }
    fn matters_gone(&self) -> bool {
        // How it ended is how its job ends.
        self.role == Some(Role::Coordinator) && self.end.is_some()
    }
}

impl View for ServiceView {
    fn job(&self) -> Key {
        (self.namespace.clone(), self.job.clone())
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn uid(&self) -> &str {
        &self.uid
    }
    fn mark_deleting(&mut self) {
        self.deleting = true;
    }
}
