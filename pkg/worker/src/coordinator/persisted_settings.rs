use serde::{Deserialize, Serialize};

use crate::{
    Error, Result,
    checkpoint::CheckpointStore,
    coordinator::{counts::Counts, panel::configs::Configs},
};

/// The settings that a coordinator received at run time, stored for the next coordinator instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct PersistedSettings {
    /// The settings of the command line. A job of the same name with other flags ignores the file.
    flags: (Counts, Configs),
    pub(super) counts: Counts,
    pub(super) configs: Configs,
}

impl PersistedSettings {
    pub(super) const fn new(flags: (Counts, Configs), counts: Counts, configs: Configs) -> Self {
        Self {
            flags,
            counts,
            configs,
        }
    }

    /// Parses a file; none if it was stored by a coordinator with other flags.
    pub(super) fn parse_matching(file: &[u8], flags: &(Counts, Configs)) -> Option<Self> {
        match serde_json::from_slice::<Self>(file) {
            Ok(orders) => (orders.flags == *flags).then_some(orders),
            Err(error) => {
                tracing::warn!(
                    "using the flags: cannot parse the stored settings (orders.json): {error}"
                );
                None
            }
        }
    }

    /// Stores the settings. Settings that equal the flags are stored only if others were stored
    /// before.
    pub(super) fn save_to(&self, store: &CheckpointStore) -> Result<()> {
        if self.equal_flags() && store.load_settings()?.is_none() {
            return Ok(());
        }
        let file = serde_json::to_vec(self).map_err(|error| Error::BadFile {
            kind: "settings",
            reason: error.to_string(),
        })?;
        store.save_settings(&file)
    }

    fn equal_flags(&self) -> bool {
        self.flags.0 == self.counts && self.flags.1 == self.configs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        checkpoint::store::CheckpointPolicy, environment::game::Game, learner::settings::Settings,
        storage::Storage,
    };

    fn counts_of(collectors: u32) -> Counts {
        Counts {
            collectors,
            learners: 1,
        }
    }

    fn open_store(folder: &tempfile::TempDir) -> CheckpointStore {
        let storage = Storage::open(folder.path()).unwrap();
        let root = storage.root().to_owned();
        CheckpointStore::open(
            storage,
            &root,
            (Game::CartPole, 0),
            CheckpointPolicy::default(),
        )
        .unwrap()
    }

    #[test]
    fn settings_apply_only_to_same_flags() {
        let configs = Configs {
            learner: Some(Settings::default()),
            ..Configs::default()
        };
        let flags = (counts_of(2), Configs::default());
        let orders = PersistedSettings::new(flags.clone(), counts_of(3), configs.clone());
        let folder = tempfile::tempdir().unwrap();
        let store = open_store(&folder);
        orders.save_to(&store).unwrap();
        let file = store.load_settings().unwrap().unwrap();
        assert_eq!(
            PersistedSettings::parse_matching(&file, &flags),
            Some(orders)
        );
        for other in [(counts_of(4), Configs::default()), (counts_of(2), configs)] {
            assert_eq!(PersistedSettings::parse_matching(&file, &other), None);
        }
        assert_eq!(PersistedSettings::parse_matching(&file[1..], &flags), None);
    }

    #[test]
    fn settings_equal_to_flags_replace_stored_ones() {
        let folder = tempfile::tempdir().unwrap();
        let store = open_store(&folder);
        let flags = (counts_of(2), Configs::default());
        let settings_for = |collectors| {
            PersistedSettings::new(flags.clone(), counts_of(collectors), Configs::default())
        };
        settings_for(2).save_to(&store).unwrap();
        assert_eq!(store.load_settings().unwrap(), None, "equal to the flags");
        for collectors in [4, 2] {
            settings_for(collectors).save_to(&store).unwrap();
            let file = store.load_settings().unwrap().unwrap();
            assert_eq!(
                PersistedSettings::parse_matching(&file, &flags),
                Some(settings_for(collectors))
            );
        }
    }
}
