use std::{
    fmt::{self, Display, Formatter},
    str::FromStr,
};

use di_client::GangScheduler;

const NONE: &str = "none";

/// Value of the flag `--gang-scheduler`: a scheduler, or `none`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GangSchedulerFlag(pub Option<GangScheduler>);

impl FromStr for GangSchedulerFlag {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == NONE {
            return Ok(Self(None));
        }
        let scheduler = text.parse::<GangScheduler>();
        scheduler
            .map(|scheduler| Self(Some(scheduler)))
            .map_err(|error| format!("{error}, {NONE}"))
    }
}

impl Display for GangSchedulerFlag {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(scheduler) => scheduler.fmt(f),
            None => f.write_str(NONE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gang_scheduler_flag_is_displayed_as_written() {
        for text in [
            "none",
            "volcano",
            "coscheduling:mine",
            "yunikorn",
            "kai",
            "kubernetes",
        ] {
            let flag: GangSchedulerFlag = text.parse().unwrap();
            assert_eq!(flag.to_string(), text);
            assert_eq!(flag.0.is_none(), text == "none");
        }
        let error = "slurm".parse::<GangSchedulerFlag>().unwrap_err();
        assert!(error.ends_with(", kubernetes, none"), "{error}");
    }
}
