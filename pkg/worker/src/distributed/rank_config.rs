use std::{ops::Range, time::Duration};

use crate::{
    Error, Result,
    protocol::env::{number_variable, required_variable},
};

/// The ranks of a pod, set by the orchestrator in environment variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankConfig {
    /// The learner group: the address of its aggregator.
    pub unit: String,
    /// Number of ranks in the learner group.
    pub world: u32,
    /// First rank of this pod.
    pub first: u32,
    /// Number of ranks in this pod.
    pub local: u32,
    /// Host of rank 0.
    pub master: String,
    /// Rendezvous port of rank 0.
    pub port: u16,
}

impl RankConfig {
    /// Reads the process environment; none for a learner of one process.
    pub fn from_env() -> Result<Option<Self>> {
        Self::from_lookup(|name| std::env::var(name).ok())
    }

    /// Reads the variables that `lookup` returns.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Option<Self>> {
        let get = |name: &str| lookup(name).filter(|value| !value.is_empty());
        let world = number_variable("WORLD_SIZE", "a number of ranks", 0, get)?;
        if world == 0 {
            return Ok(None);
        }
        let place = Self {
            unit: get("KUBERNETES_AGGREGATOR_URL").unwrap_or_default(),
            world,
            first: number_variable("START_RANK", "a rank", 0, get)?,
            local: number_variable("LOCAL_WORLD_SIZE", "a number of ranks", 1, get)?,
            master: required_variable("MASTER_ADDR", get)?,
            port: number_variable("MASTER_PORT", "a port number", 10314, get)?,
        };
        let end = place.first.checked_add(place.local);
        if place.local == 0 || end.is_none_or(|end| end > world) {
            return Err(Error::InvalidVariable {
                name: "LOCAL_WORLD_SIZE",
                expected: "a number of ranks below WORLD_SIZE, from START_RANK on",
            });
        }
        Ok(Some(place))
    }

    /// The ranks of this pod.
    pub const fn local_ranks(&self) -> Range<u32> {
        self.first..self.first + self.local
    }
}

/// Timeouts between ranks.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The rendezvous: pods may have to be scheduled and their images pulled.
    pub meet: Duration,
    /// The acknowledgement of a task.
    pub hear: Duration,
    /// All other messages.
    pub step: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            meet: Duration::from_secs(300),
            hear: Duration::from_secs(10),
            step: Duration::from_secs(60),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_vars(variables: &[(&str, &str)]) -> Result<Option<RankConfig>> {
        RankConfig::from_lookup(|name| {
            let (_, value) = variables.iter().find(|(key, _)| *key == name)?;
            Some((*value).to_owned())
        })
    }

    #[test]
    fn rank_variables_select_ddp_or_single_process() {
        assert_eq!(read_vars(&[("LEARNER_PORT", "22271")]).unwrap(), None);
        let place = read_vars(&[
            (
                "KUBERNETES_AGGREGATOR_URL",
                "pole-aggregator-x7k2p.rl:22272",
            ),
            ("WORLD_SIZE", "6"),
            ("LOCAL_WORLD_SIZE", "2"),
            ("START_RANK", "4"),
            ("MASTER_ADDR", "pole-ddp-learner-b4m9q"),
            ("MASTER_PORT", "10314"),
        ]);
        let place = place.unwrap().unwrap();
        assert_eq!(
            (place.local_ranks(), place.world, place.port),
            (4..6, 6, 10314)
        );
        assert_eq!(place.master, "pole-ddp-learner-b4m9q");
        assert_eq!(place.unit, "pole-aggregator-x7k2p.rl:22272");
    }

    #[test]
    fn ranks_outside_world_are_rejected() {
        for (first, local) in [("2", "1"), ("1", "2"), ("0", "0"), ("4294967295", "1")] {
            let error = read_vars(&[
                ("WORLD_SIZE", "2"),
                ("START_RANK", first),
                ("LOCAL_WORLD_SIZE", local),
                ("MASTER_ADDR", "localhost"),
            ]);
            assert_eq!(error.unwrap_err().exit_code(), 2, "{first} {local}");
        }
        assert!(read_vars(&[("WORLD_SIZE", "2")]).is_err(), "no MASTER_ADDR");
        assert!(read_vars(&[("WORLD_SIZE", "two")]).is_err());
    }
}
