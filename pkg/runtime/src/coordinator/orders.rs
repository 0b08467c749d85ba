use serde::{Deserialize, Serialize};

use crate::{Error, Result, checkpoint::Keeper, panel::Configs, scale::Counts};

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

    /// Keeps them for whoever goes on; where they say no more than the command line, only if others were kept before.
    pub(super) fn keep(&self, keeper: &Keeper) -> Result<()> {
        if self.are_the_flags() && keeper.orders()?.is_none() {
            return Ok(());
        }
        let file = serde_json::to_vec(self).map_err(|error| Error::BadFile {
            what: "orders",
            reason: error.to_string(),
        })?;
        keeper.keep_orders(&file)
    }

    fn are_the_flags(&self) -> bool {
        self.flags.0 == self.counts && self.flags.1 == self.configs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{checkpoint::Keep, game::Game, ppo::Settings, storage::Storage};

    fn counts(collectors: u32) -> Counts {
        Counts {
            collectors,
            learners: 1,
        }
    }

    fn keeper(folder: &tempfile::TempDir) -> Keeper {
        let storage = Storage::open(folder.path()).unwrap();
        let root = storage.root().to_owned();
        Keeper::open(storage, &root, (Game::CartPole, 0), Keep::default()).unwrap()
    }

    #[test]
    fn orders_are_for_one_that_was_started_alike() {
        let configs = Configs {
            learner: Some(Settings::default()),
            ..Configs::default()
        };
        let flags = (counts(2), Configs::default());
        let orders = Orders::new(flags.clone(), counts(3), configs.clone());
        let folder = tempfile::tempdir().unwrap();
        let keeper = keeper(&folder);
        orders.keep(&keeper).unwrap();
        let file = keeper.orders().unwrap().unwrap();
        assert_eq!(Orders::read(&file, &flags), Some(orders));
        for other in [(counts(4), Configs::default()), (counts(2), configs)] {
            assert_eq!(Orders::read(&file, &other), None);
        }
        assert_eq!(Orders::read(&file[1..], &flags), None);
    }

    #[test]
    fn who_is_told_what_its_flags_say_keeps_that_in_place_of_what_it_was_told_before() {
        let folder = tempfile::tempdir().unwrap();
        let keeper = keeper(&folder);
        let flags = (counts(2), Configs::default());
        let told = |collectors| Orders::new(flags.clone(), counts(collectors), Configs::default());
        told(2).keep(&keeper).unwrap();
        assert_eq!(keeper.orders().unwrap(), None, "the flags say that");
        for collectors in [4, 2] {
            told(collectors).keep(&keeper).unwrap();
            let file = keeper.orders().unwrap().unwrap();
            assert_eq!(Orders::read(&file, &flags), Some(told(collectors)));
        }
    }
}
