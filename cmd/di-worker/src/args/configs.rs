use di_runtime::{Result, config, panel::Configs, ppo::Settings, sampling::Sampling};
use serde::de::DeserializeOwned;

/// What a coordinator configures its replicas with.
#[derive(Clone, Debug, clap::Args)]
pub struct ConfigArgs {
    /// What all collectors are configured with instead of by their flags, as '{"num_workers": 2, "num_envs_per_worker": 4}'; what is left
    /// out has its default
    #[arg(long, value_name = "JSON", value_parser = sampling)]
    collector_config: Option<Sampling>,
    /// What all learners are configured with instead of by their flags, as '{"batch_size": 128, "learning_rate": 0.001}'; what is left
    /// out has its default
    #[arg(long, value_name = "JSON", value_parser = settings)]
    learner_config: Option<Settings>,
}

impl ConfigArgs {
    /// What they say.
    pub fn configs(self) -> Configs {
        Configs {
            collector: self.collector_config,
            learner: self.learner_config,
        }
    }
}

fn sampling(json: &str) -> Result<Sampling, String> {
    read(json, Sampling::check)
}

fn settings(json: &str) -> Result<Settings, String> {
    read(json, Settings::check)
}

fn read<C: DeserializeOwned>(json: &str, check: fn(&C) -> Result<()>) -> Result<C, String> {
    let config = config::read(json.as_bytes()).map_err(|error| error.to_string())?;
    check(&config).map_err(|error| error.to_string())?;
    Ok(config)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Alone {
        #[command(flatten)]
        configs: ConfigArgs,
    }

    fn read(flag: &str) -> Result<Configs, clap::Error> {
        Alone::try_parse_from(["configs", flag]).map(|alone| alone.configs.configs())
    }

    #[test]
    fn what_is_left_out_has_its_default() {
        let sampling = Sampling {
            num_workers: 2,
            ..Sampling::default()
        };
        let configs = read(r#"--collector-config={"num_workers": 2}"#).unwrap();
        assert_eq!((configs.collector, configs.learner), (Some(sampling), None));
        let settings = Settings {
            learning_rate: 1e-3,
            ..Settings::default()
        };
        let configs = read(r#"--learner-config={"learning_rate": 0.001}"#).unwrap();
        assert_eq!((configs.collector, configs.learner), (None, Some(settings)));
    }

    #[test]
    fn what_cannot_be_taken_on_is_refused_with_the_field_and_the_remedy() {
        for (flag, parts) in [
            (
                r#"--collector-config={"num_envs_per_worker": 3}"#,
                &["--num_envs_per_worker 3", "or --worker_num_splits 1"][..],
            ),
            (
                r#"--collector-config={"workers": 3}"#,
                &["`workers`", "expected one of `num_workers`"],
            ),
            (
                r#"--learner-config={"num_epochs": 0}"#,
                &["num_epochs must be in 1..=1000, and is 0"],
            ),
            (
                "--learner-config={batch_size: 1}",
                &["--learner-config", "line 1"],
            ),
            ("--learner-config=[0.1]", &["expected a map"]),
        ] {
            let error = read(flag).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            let message = error.to_string();
            for part in parts {
                assert!(message.contains(part), "{message}");
            }
        }
    }
}
