use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    Result,
    learner::settings::Settings,
    protocol::{config::deserialize_nested, wire::Role},
    sampler::sampling::Sampling,
};

/// The configurations of the replicas by role. A role without one keeps the flags of its command
/// line.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Configs {
    /// Sampling of the collectors.
    #[serde(deserialize_with = "deserialize_nested")]
    pub collector: Option<Sampling>,
    /// Training of the learners.
    #[serde(deserialize_with = "deserialize_nested")]
    pub learner: Option<Settings>,
}

impl Configs {
    /// Checks the ranges of all fields.
    pub fn check(&self) -> Result<()> {
        self.collector.as_ref().map_or(Ok(()), Sampling::check)?;
        self.learner.as_ref().map_or(Ok(()), Settings::check)
    }

    /// The JSON for replicas of a role.
    pub(super) fn for_role(&self, role: Role) -> Option<Value> {
        match role {
            Role::Collector => self.collector.as_ref().map(|sampling| json!(sampling)),
            Role::Learner => self.learner.as_ref().map(|settings| json!(settings)),
        }
    }

    /// Replaces the roles that `newer` contains.
    pub(super) fn update_from(&mut self, newer: Self) {
        let Self { collector, learner } = newer;
        self.collector = collector.or(self.collector.take());
        self.learner = learner.or(self.learner.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_json(json: Value) -> Configs {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn update_replaces_only_given_roles() {
        let mut configs = parse_json(json!({"learner": {"num_epochs": 2}}));
        configs.update_from(parse_json(json!({"collector": {"num_envs_per_worker": 4}})));
        configs.check().unwrap();
        let learner = configs.for_role(Role::Learner).unwrap();
        assert_eq!(
            (&learner["num_epochs"], &learner["batch_size"]),
            (&json!(2), &json!(64))
        );
        let sampling: Sampling =
            serde_json::from_value(configs.for_role(Role::Collector).unwrap()).unwrap();
        assert_eq!(Some(sampling), configs.collector);
        configs.update_from(parse_json(json!({"learner": {}})));
        assert_eq!(configs.learner, Some(Settings::default()));
        assert_eq!(Configs::default().for_role(Role::Collector), None);
    }

    #[test]
    fn configs_no_replica_accepts_are_rejected() {
        for json in [
            json!({"collector": {"num_envs_per_worker": 3}}),
            json!({"learner": {"num_epochs": 0}}),
        ] {
            assert!(parse_json(json.clone()).check().is_err(), "{json}");
        }
        for json in [json!({"learners": {}}), json!({"learner": {"epochs": 1}})] {
            assert!(serde_json::from_value::<Configs>(json).is_err());
        }
    }
}
