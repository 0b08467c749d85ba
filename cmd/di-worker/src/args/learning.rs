use clap::builder::RangedU64ValueParser;
use di_worker_lib::learner::settings::Settings;

/// Training flags. The names are Sample Factory's; `-` instead of `_` also works.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Learning")]
pub struct LearningArgs {
    /// Frames per gradient step, at least 1
    #[arg(
        long = "batch_size",
        alias = "batch-size",
        value_name = "FRAMES",
        value_parser = at_least_one(),
        default_value_t = Settings::default().batch_size
    )]
    batch_size: usize,
    /// Gradient steps per pass, at least 1: the frames of a task are split into data sets of this
    /// many batches, trained on
    /// one after another [default: one data set]
    #[arg(
        long = "num_batches_per_epoch",
        alias = "num-batches-per-epoch",
        value_name = "N",
        value_parser = at_least_one()
    )]
    batches: Option<usize>,
    /// Passes over each data set, 1 to 1000
    #[arg(
        long = "num_epochs",
        alias = "num-epochs",
        value_name = "N",
        value_parser = at_least_one().range(..=1000),
        default_value_t = Settings::default().num_epochs
    )]
    epochs: usize,
}

impl LearningArgs {
    /// The settings of the flags.
    pub fn to_settings(&self) -> Settings {
        Settings {
            batch_size: self.batch_size,
            num_batches_per_epoch: self.batches,
            num_epochs: self.epochs,
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
