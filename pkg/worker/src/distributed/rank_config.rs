use std::{ops::Range, time::Duration};

use crate::{
    Error, Result,
    protocol::env::{number_variable, required_variable},
};

/// The ranks of a pod, set by the orchestrator in environment variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankConfig {
    /// The learner group: the address of its aggregator.
    pub group_name: String,
    /// Number of ranks in the learner group.
    pub world_size: u32,
    /// First rank of this pod.
    pub start_rank: u32,
    /// Number of ranks in this pod.
    pub local_world_size: u32,
    /// Host of rank 0.
    pub master_addr: String,
    /// Rendezvous port of rank 0.
    pub master_port: u16,
}

impl RankConfig {
    /// Reads the process environment; none for a learner of one process.
    pub fn from_env() -> Result<Option<Self>> {
        Self::from_lookup(|name| std::env::var(name).ok())
    }

    /// Reads the variables that `lookup` returns.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Option<Self>> {
        let get = |name: &str| lookup(name).filter(|value| !value.is_empty());
        let world_size = number_variable("WORLD_SIZE", "a number of ranks", 0, get)?;
        if world_size == 0 {
            return Ok(None);
        }
        let config = Self {
            group_name: get("KUBERNETES_AGGREGATOR_URL").unwrap_or_default(),
            world_size,
            start_rank: number_variable("START_RANK", "a rank", 0, get)?,
            local_world_size: number_variable("LOCAL_WORLD_SIZE", "a number of ranks", 1, get)?,
            master_addr: required_variable("MASTER_ADDR", get)?,
            master_port: number_variable("MASTER_PORT", "a port number", 10314, get)?,
        };
        let end = config.start_rank.checked_add(config.local_world_size);
        if config.local_world_size == 0 || end.is_none_or(|end| end > world_size) {
            return Err(Error::InvalidVariable {
                name: "LOCAL_WORLD_SIZE",
                expected: "a number of ranks below WORLD_SIZE, from START_RANK on",
            });
        }
        Ok(Some(config))
    }

    /// The ranks of this pod.
    pub const fn local_ranks(&self) -> Range<u32> {
        self.start_rank..self.start_rank + self.local_world_size
    }
}

/// Timeouts between ranks.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// The rendezvous: pods may have to be scheduled and their images pulled.
    pub rendezvous: Duration,
    /// The acknowledgement of a task.
    pub ack: Duration,
    /// All other messages.
    pub message: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            rendezvous: Duration::from_secs(300),
            ack: Duration::from_secs(10),
            message: Duration::from_secs(60),
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
        let config = read_vars(&[
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
        let config = config.unwrap().unwrap();
        assert_eq!(
            (config.local_ranks(), config.world_size, config.master_port),
            (4..6, 6, 10314)
        );
        assert_eq!(config.master_addr, "pole-ddp-learner-b4m9q");
        assert_eq!(config.group_name, "pole-aggregator-x7k2p.rl:22272");
    }

    #[test]
    fn ranks_outside_world_are_rejected() {
        for (start_rank, local_world_size) in
            [("2", "1"), ("1", "2"), ("0", "0"), ("4294967295", "1")]
        {
            let error = read_vars(&[
                ("WORLD_SIZE", "2"),
                ("START_RANK", start_rank),
                ("LOCAL_WORLD_SIZE", local_world_size),
                ("MASTER_ADDR", "localhost"),
            ]);
            assert_eq!(
                error.unwrap_err().exit_code(),
                2,
                "{start_rank} {local_world_size}"
            );
        }
        assert!(read_vars(&[("WORLD_SIZE", "2")]).is_err(), "no MASTER_ADDR");
        assert!(read_vars(&[("WORLD_SIZE", "two")]).is_err());
    }
}
