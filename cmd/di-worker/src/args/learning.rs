use clap::builder::RangedU64ValueParser;
use di_runtime::ppo::Settings;

/// How is learned from frames. The names are Sample Factory's; with `-` instead of `_` they are known, too.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Learning")]
pub struct LearningArgs {
    /// Frames of each gradient step
    #[arg(
        long = "batch_size",
        alias = "batch-size",
        value_name = "FRAMES",
        value_parser = at_least_one(),
        default_value_t = Settings::default().batch_size
    )]
    batch_size: usize,
    /// Gradient steps of each pass: the frames of a task are learned from in datasets of so many batches, one after the
    /// other [default: all in one]
    #[arg(
        long = "num_batches_per_epoch",
        alias = "num-batches-per-epoch",
        value_name = "N",
        value_parser = at_least_one()
    )]
    batches: Option<usize>,
    /// Passes over each dataset
    #[arg(
        long = "num_epochs",
        alias = "num-epochs",
        value_name = "N",
        value_parser = at_least_one().range(..=1000),
        default_value_t = Settings::default().num_epochs
    )]
    epochs: usize,
    /// Versions of the model by which frames may be behind; older ones are counted and dropped
    #[arg(
        long = "max-policy-lag",
        value_name = "VERSIONS",
        default_value_t = Settings::default().max_policy_lag
    )]
    max_policy_lag: u64,
}

impl LearningArgs {
    /// What they say.
    pub fn to_settings(&self) -> Settings {
        Settings {
            batch_size: self.batch_size,
            num_batches_per_epoch: self.batches,
            num_epochs: self.epochs,
            max_policy_lag: self.max_policy_lag,
            ..Settings::default()
        }
    }
}

fn at_least_one() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Alone {
        #[command(flatten)]
        learning: LearningArgs,
    }

    #[test]
    fn learning_flags_accept_underscore_and_hyphen() {
        let read = |line: &str| {
            let words = ["learning"].into_iter().chain(line.split_whitespace());
            Alone::parse_from(words).learning.to_settings()
        };
        assert_eq!(read(""), Settings::default());
        let settings = Settings {
            batch_size: 256,
            num_batches_per_epoch: Some(4),
            num_epochs: 2,
            ..Settings::default()
        };
        let line = "--batch_size 256 --num_batches_per_epoch=4 --num_epochs=2";
        assert_eq!(read(line), settings);
        assert_eq!(read(&line.replace('_', "-")), settings);
        for line in [
            "--batch_size=0",
            "--num_batches_per_epoch=0",
            "--num_epochs=1001",
        ] {
            assert!(Alone::try_parse_from(["learning", line]).is_err(), "{line}");
        }
    }
}
