use std::{fmt, str::FromStr};

use super::scheduler::GangScheduler;

const NONE: &str = "none";

/// The value of `--gang-scheduler` and of `GANG_SCHEDULER`: a scheduler, or `none`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GangSetting(pub Option<GangScheduler>);

impl FromStr for GangSetting {
    type Err = String;

    /// Parses a setting. An empty one, such as an environment variable without a value, is `none`.
    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() || text == NONE {
            return Ok(Self(None));
        }
        let scheduler = text.parse::<GangScheduler>();
        scheduler
            .map(|scheduler| Self(Some(scheduler)))
            .map_err(|error| format!("{error}, {NONE}"))
    }
}

impl fmt::Display for GangSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(scheduler) => write!(f, "{scheduler}"),
            None => f.write_str(NONE),
        }
    }
}
