//! What a replica is told, so that it becomes as its panel wants it. Pure.

use crate::life::{Call, Status};

/// What a panel knows of a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    /// How it was when it was looked at last.
    status: Option<Status>,
    /// It is paused as all are, and not by somebody who paused it alone.
    held: bool,
    /// Number of the configuration that it was given last.
    pub(super) given: Option<u64>,
}

impl Known {
    /// Takes in how a replica is found.
    pub(super) fn find(&mut self, panel: Status, found: Status) {
        let holds = holds(panel);
        self.held = match found {
            Status::Running => holds,
            // Somebody else may have been faster.
            Status::Paused => self.held || (holds && self.status == Some(Status::Running)),
            _ => false,
        };
        if matches!(found, Status::New | Status::Configured) {
            // It may have begun anew, and then it has forgotten that.
            self.given = None;
        }
        self.status = Some(found);
    }

    /// Takes it for one that is paused with all others or by its panel, if it is paused.
    pub(super) const fn claim(&mut self) {
        self.held = true;
    }

    /// What to call, one after the other, where the panel is so and has the configuration of this number for it.
    pub(super) fn calls(&self, panel: Status, config: Option<u64>) -> &'static [Call] {
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
            Status::Paused if panel.is_running() && self.held && is_due => CONFIGURE,
            Status::Paused if panel.is_running() && self.held => START,
            // Somebody else was faster, or it is of the panel before.
            Status::Running if panel.is_running() && is_due => CONFIGURE_RUNNING,
            Status::Running if holds(panel) => &[Call::Pause],
            _ => &[],
        }
    }
}

/// Whether whoever has the panel wants nothing to run.
const fn holds(panel: Status) -> bool {
    matches!(panel, Status::Configured | Status::Paused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Call::{Configure, Pause, Start};
    use Status::{Completed, Configured, Error, Exiting, New, Paused, Running};

    #[test]
    fn what_a_replica_is_told_stands_in_the_table() {
        let config = Some(1);
        let known = |status, held, given| Known {
            status: Some(status),
            held,
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
                known.calls(panel, config),
                wanted,
                "{panel} {config:?} {known:?}"
            );
        }
        for panel in Status::ALL {
            for ended in [Exiting, Completed, Error] {
                assert!(known(ended, false, None).calls(panel, config).is_empty());
            }
        }
        for panel in [New, Exiting, Completed, Error] {
            for found in Status::ALL {
                assert!(known(found, true, None).calls(panel, config).is_empty());
            }
        }
        assert!(Known::default().calls(Running, config).is_empty());
    }

    #[test]
    fn one_that_began_anew_is_configured_though_somebody_else_started_it() {
        let mut known = Known::default();
        known.find(Paused, Running);
        known.given = Some(1);
        known.find(Paused, Paused);
        assert_eq!(known.calls(Running, Some(1)), &[Start]);
        known.find(Paused, Configured);
        known.find(Running, Running);
        assert_eq!(known.calls(Running, Some(1)), &[Pause, Configure, Start]);
    }

    #[test]
    fn who_was_paused_alone_is_told_from_those_that_were_paused_with_all() {
        let held = |found: &[(Status, Status)]| {
            let mut known = Known::default();
            for (panel, found) in found {
                known.find(*panel, *found);
            }
            known.held
        };
        assert!(held(&[(Running, Running), (Paused, Running)]));
        assert!(held(&[
            (Paused, Running),
            (Paused, Paused),
            (Running, Paused)
        ]));
        // The plugin may have been faster than the panel.
        assert!(held(&[(Running, Running), (Paused, Paused)]));
        assert!(!held(&[
            (Running, Running),
            (Running, Paused),
            (Paused, Paused)
        ]));
        assert!(!held(&[(Paused, Paused)]), "it was found so");
        let mut claimed = Known::default();
        claimed.claim();
        claimed.find(Running, Paused);
        assert_eq!(
            claimed.calls(Running, None),
            &[Start],
            "it is to start with all"
        );
        claimed.find(Running, Running);
        claimed.find(Running, Paused);
        assert!(!claimed.held, "that was once");
        assert!(!held(&[
            (Paused, Running),
            (Running, Running),
            (Running, Paused)
        ]));
        assert!(
            !held(&[(Paused, Running), (Running, Configured)]),
            "it began anew"
        );
    }
}
