use clap::ValueEnum;
use di_api::Role;

/// The name of a role on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RoleName {
    Coordinator,
    Collector,
    Learner,
    Aggregator,
    DdpLearner,
}

impl From<RoleName> for Role {
    fn from(name: RoleName) -> Self {
        match name {
            RoleName::Coordinator => Self::Coordinator,
            RoleName::Collector => Self::Collector,
            RoleName::Learner => Self::Learner,
            RoleName::Aggregator => Self::Aggregator,
            RoleName::DdpLearner => Self::DdpLearner,
        }
    }
}
