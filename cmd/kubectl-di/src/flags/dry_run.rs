use clap::{Args, ValueEnum};
use di_client::DryRun;

/// The --dry-run flag.
#[derive(Clone, Copy, Debug, Args)]
pub struct DryRunFlag {
    /// Must be "none", "server", or "client". If client strategy, only print the object that would
    /// be sent, without sending it. If server strategy, submit server-side request without
    /// persisting the resource
    #[arg(
        long,
        value_enum,
        default_value_t = Arg::None,
        default_missing_value = "client",
        num_args = 0..=1,
        require_equals = true
    )]
    dry_run: Arg,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Arg {
    None,
    Client,
    Server,
}

impl DryRunFlag {
    /// The value for commands without the flag.
    pub fn disabled() -> Self {
        Self { dry_run: Arg::None }
    }

    pub fn get(self) -> DryRun {
        match self.dry_run {
            Arg::None => DryRun::None,
            Arg::Client => DryRun::Client,
            Arg::Server => DryRun::Server,
        }
    }

    /// Whether the command changes the cluster.
    pub fn is_real(self) -> bool {
        self.dry_run == Arg::None
    }

    /// The suffix of every printed change, as in kubectl.
    pub fn message_suffix(self) -> &'static str {
        match self.dry_run {
            Arg::None => "",
            Arg::Client => " (dry run)",
            Arg::Server => " (server dry run)",
        }
    }
}
