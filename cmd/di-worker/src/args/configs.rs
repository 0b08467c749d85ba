use di_worker_lib::{
    Result, coordinator::panel::Configs, learner::settings::Settings, sampler::sampling::Sampling,
};
use serde::de::DeserializeOwned;

/// Flags with configurations of the replicas.
#[derive(Clone, Debug, clap::Args)]
pub struct ConfigArgs {
    /// Configuration of all collectors, instead of their flags, for example '{"num_workers": 2,
    /// "num_envs_per_worker": 4}'.
    /// Omitted fields have their defaults
    #[arg(long, value_name = "JSON", value_parser = parse_sampling)]
    collector_config: Option<Sampling>,
    /// Configuration of all learners, instead of their flags, for example '{"batch_size": 128,
    /// "learning_rate": 0.001}'.
    /// Omitted fields have their defaults
    #[arg(long, value_name = "JSON", value_parser = parse_settings)]
    learner_config: Option<Settings>,
}

impl ConfigArgs {
    /// The configurations of the flags.
    pub fn into_configs(self) -> Configs {
        Configs {
            collector: self.collector_config,
            learner: self.learner_config,
        }
    }
}

fn parse_sampling(json: &str) -> Result<Sampling, String> {
    parse_checked(json, Sampling::check)
}

fn parse_settings(json: &str) -> Result<Settings, String> {
    parse_checked(json, Settings::check)
}

fn parse_checked<C: DeserializeOwned>(
    json: &str,
    check: fn(&C) -> Result<()>,
) -> Result<C, String> {
    let config = serde_json::from_str(json).map_err(|error| error.to_string())?;
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

    fn parse_flag(flag: &str) -> Result<Configs, clap::Error> {
        Alone::try_parse_from(["configs", flag]).map(|alone| alone.configs.into_configs())
    }

    #[test]
    fn left_out_fields_have_defaults() {
        let sampling = Sampling {
            num_workers: 2,
            ..Sampling::default()
        };
        let configs = parse_flag(r#"--collector-config={"num_workers": 2}"#).unwrap();
        assert_eq!((configs.collector, configs.learner), (Some(sampling), None));
        let settings = Settings {
            learning_rate: 1e-3,
            ..Settings::default()
        };
        let configs = parse_flag(r#"--learner-config={"learning_rate": 0.001}"#).unwrap();
        assert_eq!((configs.collector, configs.learner), (None, Some(settings)));
    }

    #[test]
    fn invalid_config_error_names_field() {
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
                &["num_epochs must be in 1..=1000, but is 0"],
            ),
            (
                "--learner-config={batch_size: 1}",
                &["--learner-config", "line 1"],
            ),
        ] {
            let error = parse_flag(flag).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            let message = error.to_string();
            for part in parts {
                assert!(message.contains(part), "{message}");
            }
        }
    }
}
