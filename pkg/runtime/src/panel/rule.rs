//! What a replica is told, so that it becomes as its panel wants it. Pure.

use crate::lifecycle::{Call, Status};

/// What a panel knows of a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ReplicaState {
    /// How it was when it was looked at last.
    status: Option<Status>,
    /// It is paused as all are, and not by somebody who paused it alone.
    paused_by_panel: bool,
    /// Number of the configuration that it was given last.
    pub(super) given: Option<u64>,
}

impl ReplicaState {
    /// Takes in how a replica is found.
    pub(super) fn observe_status(&mut self, panel: Status, found: Status) {
        let holds = wants_paused(panel);
        self.paused_by_panel = match found {
            Status::Running => holds,
            // Somebody else may have been faster.
            Status::Paused => self.paused_by_panel || (holds && self.status == Some(Status::Running)),
            _ => false,
        };
        if matches!(found, Status::New | Status::Configured) {
            // It may have begun anew, and then it has forgotten that.
            self.given = None;
        }
        self.status = Some(found);
    }

    /// Takes it for one that is paused with all others or by its panel, if it is paused.
    pub(super) const fn clear_manual_pause(&mut self) {
        self.paused_by_panel = true;
    }

    /// What to call, one after the other, where the panel is so and has the configuration of this number for it.
    pub(super) fn next_calls(&self, panel: Status, config: Option<u64>) -> &'static [Call] {
        const CONFIGURE: &[Call] = &[Call::Configure, Call::Start];
        const START: &[Call] = &[Call::Start];
        const CONFIGURE_RUNNING: &[Call] = &[Call::Pause, Call::Configure, Call::Start];
        let Some(found) = self.status else {
            return &[];
        };
        let is_due = config.is_some() && config != self.given;
        match found {
            Status::New | Status::Configured if panel.is_running() && config.is_some() => CONFIGURE,
            Status::Configured if panel.is_running() => START,
            Status::Paused if panel.is_running() && self.paused_by_panel && is_due => CONFIGURE,
            Status::Paused if panel.is_running() && self.paused_by_panel => START,
            // Somebody else was faster, or it is of the panel before.
            Status::Running if panel.is_running() && is_due => CONFIGURE_RUNNING,
            Status::Running if wants_paused(panel) => &[Call::Pause],
            _ => &[],
        }
    }
}

/// Whether whoever has the panel wants nothing to run.
const fn wants_paused(panel: Status) -> bool {
    matches!(panel, Status::Configured | Status::Paused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Call::{Configure, Pause, Start};
    use Status::{Completed, Configured, Error, Exiting, New, Paused, Running};

    #[test]
    fn next_calls_match_table() {
        let config = Some(1);
        let known = |status, paused_by_panel, given| ReplicaState {
            status: Some(status),
            paused_by_panel,
            given,
        };
        let both: &[Call] = &[Configure, Start];
        let all: &[Call] = &[Pause, Configure, Start];
        let none: &[Call] = &[];
        let table = [
            // Those that come are started, and configured where there is something to configure.
            (Running, config, known(New, false, None), both),
            (Running, None, known(New, false, None), none),
            (Running, config, known(Configured, false, None), both),
            (Running, None, known(Configured, false, None), &[Start][..]),
            // One that began anew has forgotten what it was given.
            (Running, config, known(Configured, false, config), both),
            // Those that were paused go on, but not those that somebody paused alone.
            (Running, None, known(Paused, true, None), &[Start]),
            (Running, config, known(Paused, true, config), &[Start]),
            (Running, Some(2), known(Paused, true, config), both),
            (Running, Some(2), known(Paused, false, config), none),
            // Those that run with something else are configured all the same.
            (Running, config, known(Running, false, None), all),
            (Running, Some(2), known(Running, false, config), all),
            (Running, config, known(Running, false, config), none),
            (Running, None, known(Running, false, None), none),
            // While all is paused, whoever runs is paused, and nobody is started.
            (Paused, config, known(Running, true, None), &[Pause]),
            (Paused, config, known(Configured, false, None), none),
            (Paused, config, known(New, false, None), none),
            (Paused, None, known(Paused, true, None), none),
            (Configured, None, known(Running, true, None), &[Pause]),
            (Configured, config, known(Paused, true, None), none),
        ];
        for (panel, config, known, wanted) in table {
            assert_eq!(
                known.next_calls(panel, config),
                wanted,
                "{panel} {config:?} {known:?}"
            );
        }
        for panel in Status::ALL {
            for ended in [Exiting, Completed, Error] {
                assert!(known(ended, false, None).next_calls(panel, config).is_empty());
            }
        }
        for panel in [New, Exiting, Completed, Error] {
            for found in Status::ALL {
                assert!(known(found, true, None).next_calls(panel, config).is_empty());
            }
        }
        assert!(ReplicaState::default().next_calls(Running, config).is_empty());
    }

    #[test]
    fn restarted_replica_is_configured_again() {
        let mut known = ReplicaState::default();
        known.observe_status(Paused, Running);
        known.given = Some(1);
        known.observe_status(Paused, Paused);
        assert_eq!(known.next_calls(Running, Some(1)), &[Start]);
        known.observe_status(Paused, Configured);
        known.observe_status(Running, Running);
        assert_eq!(known.next_calls(Running, Some(1)), &[Pause, Configure, Start]);
    }

    #[test]
    fn manually_paused_replica_is_not_resumed() {
        let paused_by_panel = |found: &[(Status, Status)]| {
            let mut known = ReplicaState::default();
            for (panel, found) in found {
                known.observe_status(*panel, *found);
            }
            known.paused_by_panel
        };
        assert!(paused_by_panel(&[(Running, Running), (Paused, Running)]));
        assert!(paused_by_panel(&[
            (Paused, Running),
            (Paused, Paused),
            (Running, Paused)
        ]));
        // The plugin may have been faster than the panel.
        assert!(paused_by_panel(&[(Running, Running), (Paused, Paused)]));
        assert!(!paused_by_panel(&[
            (Running, Running),
            (Running, Paused),
            (Paused, Paused)
        ]));
        assert!(!paused_by_panel(&[(Paused, Paused)]), "it was found so");
        let mut claimed = ReplicaState::default();
        claimed.clear_manual_pause();
        claimed.observe_status(Running, Paused);
        assert_eq!(
            claimed.next_calls(Running, None),
            &[Start],
            "it is to start with all"
        );
        claimed.observe_status(Running, Running);
        claimed.observe_status(Running, Paused);
        assert!(!claimed.paused_by_panel, "that was once");
        assert!(!paused_by_panel(&[
            (Paused, Running),
            (Running, Running),
            (Running, Paused)
        ]));
        assert!(
            !paused_by_panel(&[(Paused, Running), (Running, Configured)]),
            "it began anew"
        );
    }
}
