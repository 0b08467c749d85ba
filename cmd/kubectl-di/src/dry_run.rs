use clap::{Args, ValueEnum};
use di_client::DryRun;

/// The flag of every command that changes something.
#[derive(Clone, Copy, Debug, Args)]
pub struct DryRunFlag {
    /// client only shows what would be sent; server does all but keep it
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
    /// Of commands that change nothing.
    pub fn off() -> Self {
        Self { dry_run: Arg::None }
    }

    pub fn get(self) -> DryRun {
        match self.dry_run {
            Arg::None => DryRun::None,
            Arg::Client => DryRun::Client,
            Arg::Server => DryRun::Server,
        }
    }

    /// Whether the cluster is changed.
    pub fn is_real(self) -> bool {
        self.dry_run == Arg::None
    }

    /// What stands behind every line that tells of a change, as in kubectl.
    pub fn suffix(self) -> &'static str {
        match self.dry_run {
            Arg::None => "",
            Arg::Client => " (dry run)",
            Arg::Server => " (server dry run)",
        }
    }
}
