//! The pure rule: which calls bring a replica to the status of its panel.

use crate::lifecycle::{Call, Status};

/// The state of a replica that the panel remembers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ReplicaState {
    /// The status of the last poll.
    status: Option<Status>,
    /// Paused by the panel, not by another client.
    paused_by_panel: bool,
    /// Revision of the configuration that was sent last.
    pub(super) given: Option<u64>,
}

impl ReplicaState {
    /// Records the status of a poll.
    pub(super) fn observe_status(&mut self, panel: Status, found: Status) {
        let panel_pauses = wants_paused(panel);
        self.paused_by_panel = match found {
            Status::Running => panel_pauses,
            // Another client may have paused it before the panel did.
            Status::Paused => {
                self.paused_by_panel || (panel_pauses && self.status == Some(Status::Running))
            }
            _ => false,
        };
        if matches!(found, Status::New | Status::Configured) {
            // The replica may have restarted and lost its configuration.
            self.given = None;
        }
        self.status = Some(found);
    }

    /// Treats a manual pause as a pause by the panel.
    pub(super) const fn clear_manual_pause(&mut self) {
        self.paused_by_panel = true;
    }

    /// The calls to make, in order, for the status of the panel and the revision of the
    /// configuration.
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
            // Started by another client, or by the previous coordinator instance.
            Status::Running if panel.is_running() && is_due => CONFIGURE_RUNNING,
            Status::Running if wants_paused(panel) => &[Call::Pause],
            _ => &[],
        }
    }
}

/// Whether the panel pauses its replicas.
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
            // New replicas are configured, if there is a configuration, and started.
            (Running, config, known(New, false, None), both),
            (Running, None, known(New, false, None), none),
            (Running, config, known(Configured, false, None), both),
            (Running, None, known(Configured, false, None), &[Start][..]),
            // A restarted replica has lost its configuration.
            (Running, config, known(Configured, false, config), both),
            // Replicas that the panel paused are resumed; manually paused ones are not.
            (Running, None, known(Paused, true, None), &[Start]),
            (Running, config, known(Paused, true, config), &[Start]),
            (Running, Some(2), known(Paused, true, config), both),
            (Running, Some(2), known(Paused, false, config), none),
            // Replicas that run with another configuration are configured again.
            (Running, config, known(Running, false, None), all),
            (Running, Some(2), known(Running, false, config), all),
            (Running, config, known(Running, false, config), none),
            (Running, None, known(Running, false, None), none),
            // While the panel is paused, running replicas are paused and none is started.
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
                assert!(
                    known(ended, false, None)
                        .next_calls(panel, config)
                        .is_empty()
                );
            }
        }
        for panel in [New, Exiting, Completed, Error] {
            for found in Status::ALL {
                assert!(
                    known(found, true, None)
                        .next_calls(panel, config)
                        .is_empty()
                );
            }
        }
        assert!(
            ReplicaState::default()
                .next_calls(Running, config)
                .is_empty()
        );
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
        assert_eq!(
            known.next_calls(Running, Some(1)),
            &[Pause, Configure, Start]
        );
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
        // kubectl di pause may be faster than the panel.
        assert!(paused_by_panel(&[(Running, Running), (Paused, Paused)]));
        assert!(!paused_by_panel(&[
            (Running, Running),
            (Running, Paused),
            (Paused, Paused)
        ]));
        assert!(
            !paused_by_panel(&[(Paused, Paused)]),
            "it was paused before the first poll"
        );
        let mut claimed = ReplicaState::default();
        claimed.clear_manual_pause();
        claimed.observe_status(Running, Paused);
        assert_eq!(
            claimed.next_calls(Running, None),
            &[Start],
            "it starts with all"
        );
        claimed.observe_status(Running, Running);
        claimed.observe_status(Running, Paused);
        assert!(!claimed.paused_by_panel, "the pause is cleared once");
        assert!(!paused_by_panel(&[
            (Paused, Running),
            (Running, Running),
            (Running, Paused)
        ]));
        assert!(
            !paused_by_panel(&[(Paused, Running), (Running, Configured)]),
            "it restarted"
        );
    }
}
