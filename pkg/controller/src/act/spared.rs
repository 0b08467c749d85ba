//! What is not tried because others like it were tried in vain: each try takes its time of a turn and of the server.

use di_api::Reason;

use super::made_by;
use crate::{Action, Error, error::Result};

/// A server that is ill fails some of many calls. Where so many failed and none got through, it is what they ask for that fails.
pub(super) const IN_VAIN: usize = 3;

/// What became of the actions so far.
#[derive(Debug, Default)]
pub(super) struct Tried<'a> {
    /// None [like these](alike) is to be tried.
    turned_down: Vec<&'a Action>,
    /// The server or the way to it failed these.
    failed: Vec<&'a Action>,
    /// The first of its like that got through.
    got_through: Vec<&'a Action>,
}

impl<'a> Tried<'a> {
    /// Whether this need not be tried.
    pub fn spares(&self, action: &Action) -> bool {
        let count = |others: &[&Action]| {
            let others = others.iter().filter(|other| alike(action, other));
            others.count()
        };
        count(&self.turned_down) > 0
            || (count(&self.got_through) == 0 && count(&self.failed) >= IN_VAIN)
    }

    /// Notes what became of this one.
    pub fn note(&mut self, action: &'a Action, result: &Result<bool>) {
        match result {
            // That there is a coordinator says nothing of what is refused to the others.
            Ok(_) if action.makes_coordinator() => {}
            Ok(_) => {
                if !self.got_through.iter().any(|other| alike(action, other)) {
                    self.got_through.push(action);
                }
            }
            Err(error) if is_for_all(action, error) => self.turned_down.push(action),
            Err(error) if error.may_be_done() => self.failed.push(action),
            Err(_) => {}
        }
    }
}

/// Whether one action is to wait where another is refused. What it makes takes as much of a quota and is of the same template, or is a pod of a
/// job whose coordinator waits; what it deletes is of the same resource. A pod is told to end by another verb: whoever has no answer to deletions
/// may well have one to that.
fn alike(one: &Action, other: &Action) -> bool {
    match (one, other) {
        (Action::CreatePod(_), other) if other.makes_coordinator() => true,
        (Action::CreatePod(one), Action::CreatePod(other)) => {
            (one.role, &one.resources) == (other.role, &other.resources)
        }
        (Action::CreateService(_), Action::CreateService(_))
        | (Action::DeletePod { .. }, Action::DeletePod { .. })
        | (Action::DeleteService { .. }, Action::DeleteService { .. }) => true,
        _ => false,
    }
}

/// Whether others like this action are to be spared: whoever refuses it, or has no answer to it, has none to them. Without its coordinator no
/// other pod is of use, and there might be no room for it any more once they were made. But what may not be deleted may be protected by itself.
fn is_for_all(action: &Action, error: &Error) -> bool {
    let reason = error.reason();
    (Reason::REFUSALS.contains(&reason) && made_by(action).is_some())
        || reason == Reason::Timeout
        || (action.makes_coordinator() && !error.is_passing())
}
