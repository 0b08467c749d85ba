use serde::{Deserialize, Serialize};

use crate::{Error, Result, panel::Configs, scale::Counts};

/// What a coordinator was told while it ran, kept for whoever goes on in its place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Orders {
    /// What its command line says: another job of the same name may say something else, and then that counts.
    flags: (Counts, Configs),
    pub(super) counts: Counts,
    pub(super) configs: Configs,
}

impl Orders {
    pub(super) const fn new(flags: (Counts, Configs), counts: Counts, configs: Configs) -> Self {
        Self {
            flags,
            counts,
            configs,
        }
    }

    /// Those of a file, if they were given to one that was started as this one.
    pub(super) fn read(file: &[u8], flags: &(Counts, Configs)) -> Option<Self> {
        match serde_json::from_slice::<Self>(file) {
            Ok(orders) => (orders.flags == *flags).then_some(orders),
            Err(error) => {
                tracing::warn!("going by the flags, as the orders cannot be read: {error}");
                None
            }
        }
    }

    /// Whether they say no more than the command line.
    pub(super) fn are_the_flags(&self) -> bool {
        self.flags.0 == self.counts && self.flags.1 == self.configs
    }

    pub(super) fn file(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(|error| Error::BadFile {
            what: "orders",
            reason: error.to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ppo::Settings;

    #[test]
    fn orders_are_for_one_that_was_started_alike() {
        let counts = |collectors| Counts {
            collectors,
            learners: 1,
        };
        let configs = Configs {
            learner: Some(Settings::default()),
            ..Configs::default()
        };
        let flags = (counts(2), Configs::default());
        let orders = Orders::new(flags.clone(), counts(3), configs.clone());
        let file = orders.file().unwrap();
        assert!(!orders.are_the_flags());
        assert_eq!(Orders::read(&file, &flags), Some(orders));
        for other in [(counts(4), Configs::default()), (counts(2), configs)] {
            assert_eq!(Orders::read(&file, &other), None);
        }
        assert_eq!(Orders::read(&file[1..], &flags), None);
    }
}
