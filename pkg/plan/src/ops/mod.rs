//! Changes of the plan. A name enters it before its pod is made, and leaves it after its pod and service are gone.

mod declared;
mod replacement;
mod requested;
mod slots;
#[cfg(test)]
mod tests;
mod victims;

use di_api::{EntryState, PlanEntry};

pub use declared::{adopt, declare};
pub use replacement::replace;
pub use requested::{Request, request};
pub use victims::{release, release_declared, release_surplus};

/// The entry of this name.
pub fn find<'a>(plan: &'a [PlanEntry], name: &str) -> Option<&'a PlanEntry> {
    plan.iter().find(|entry| entry.name == name)
}

/// The replica that holds the place of `name` now: itself while it is wanted, else the last that replaced it.
pub fn successor<'a>(plan: &'a [PlanEntry], name: &str) -> Option<&'a PlanEntry> {
    if let Some(entry) = find(plan, name).filter(|entry| entry.is_wanted()) {
        return Some(entry);
    }
    let next = plan
        .iter()
        .find(|entry| entry.replaces.as_deref() == Some(name))?;
    successor(plan, &next.name)
}

/// Lets go of one replica.
pub fn remove(plan: &mut [PlanEntry], name: &str) {
    for entry in plan.iter_mut().filter(|entry| entry.name == name) {
        entry.state = EntryState::Removing;
    }
}

/// Drops entries that are let go of and of which nothing is left.
pub fn drop_gone(plan: &mut Vec<PlanEntry>, is_there: impl Fn(&str) -> bool) {
    plan.retain(|entry| entry.is_wanted() || is_there(&entry.name));
}
