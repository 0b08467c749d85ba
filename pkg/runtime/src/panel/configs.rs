use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{Result, config::within, ppo::Settings, sampling::Sampling, wire::Role};

/// What a panel configures its replicas with, by role. Those of a role that is left out stay as their command line says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Configs {
    /// How collectors sample.
    #[serde(deserialize_with = "within")]
    pub collector: Option<Sampling>,
    /// How learners learn.
    #[serde(deserialize_with = "within")]
    pub learner: Option<Settings>,
}

impl Configs {
    /// Whether each can be taken on.
    pub fn check(&self) -> Result<()> {
        self.collector.as_ref().map_or(Ok(()), Sampling::check)?;
        self.learner.as_ref().map_or(Ok(()), Settings::check)
    }

    /// What replicas of a role are sent.
    pub(super) fn of(&self, role: Role) -> Option<Value> {
        match role {
            Role::Collector => self.collector.as_ref().map(|sampling| json!(sampling)),
            Role::Learner => self.learner.as_ref().map(|settings| json!(settings)),
        }
    }

    /// Takes over what newer ones say.
    pub(super) fn update(&mut self, newer: Self) {
        let Self { collector, learner } = newer;
        self.collector = collector.or(self.collector.take());
        self.learner = learner.or(self.learner.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: Value) -> Configs {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn what_is_left_out_stays_and_what_is_sent_is_whole() {
        let mut configs = read(json!({"learner": {"num_epochs": 2}}));
        configs.update(read(json!({"collector": {"num_envs_per_worker": 4}})));
        configs.check().unwrap();
        let learner = configs.of(Role::Learner).unwrap();
        assert_eq!(
            (&learner["num_epochs"], &learner["batch_size"]),
            (&json!(2), &json!(64))
        );
        let sampling: Sampling =
            serde_json::from_value(configs.of(Role::Collector).unwrap()).unwrap();
        assert_eq!(Some(sampling), configs.collector);
        configs.update(read(json!({"learner": {}})));
        assert_eq!(configs.learner, Some(Settings::default()));
        assert_eq!(Configs::default().of(Role::Collector), None);
    }

    #[test]
    fn what_no_replica_could_take_on_is_refused() {
        for json in [
            json!({"collector": {"num_envs_per_worker": 3}}),
            json!({"learner": {"num_epochs": 0}}),
        ] {
            assert!(read(json.clone()).check().is_err(), "{json}");
        }
        for json in [json!({"learners": {}}), json!({"learner": {"epochs": 1}})] {
            assert!(serde_json::from_value::<Configs>(json).is_err());
        }
    }
}
