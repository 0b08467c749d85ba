use std::time::Duration;

use clap::{ArgAction, Args};
use di_client::Deadline;

use crate::flags::parsers::parse_timeout;

/// The flags of commands that can wait for their result.
#[derive(Clone, Copy, Debug, Args)]
pub struct WaitFlags {
    /// If true, wait until the change is complete before returning
    #[arg(long)]
    wait: bool,
    /// The length of time to wait before giving up, such as 30s or 5m. Zero means no limit
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = parse_timeout)]
    timeout: Duration,
}

impl WaitFlags {
    /// Whether --wait is set.
    pub fn is_wanted(self) -> bool {
        self.wait
    }

    /// The end of the timeout, counted from now.
    pub fn deadline(self) -> Deadline {
        Deadline::after(Some(self.timeout))
    }
}

/// The flag of commands that wait by default.
#[derive(Clone, Copy, Debug, Args)]
pub struct WaitByDefault {
    /// If true, wait until the operation is complete before returning
    #[arg(
        long,
        action = ArgAction::Set,
        default_value_t = true,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true
    )]
    wait: bool,
}

impl WaitByDefault {
    /// Whether --wait is true.
    pub fn is_wanted(self) -> bool {
        self.wait
    }
}
