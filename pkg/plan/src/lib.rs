//! The plan of a job: which replicas it should have, by name, and the pods and services made from it.
//!
//! Everything here is a pure function of what it is given; nothing does IO.

mod aggregator;
mod allocation;
mod build;
mod job;
mod listing;
mod names;
mod ops;
mod ports;
mod share;
mod view;

pub use aggregator::AggregatorTemplate;
pub use allocation::{Allocation, Simple};
pub use build::{BuildSettings, pod, service};
pub use job::{Job, refusal};
pub use listing::{Listing, listing, next_change, processes};
pub use names::{RandomSuffixes, Suffixes};
pub use ops::{
    LONGEST_BACKOFF_SECONDS, Request, Room, adopt, aggregator_of, declare, drop_gone, expand, find,
    follow, forgo_logs, is_ready, is_whole, members, next_attempt, planned_as, planned_for,
    release, release_declared, release_done, remove, replace, request, shorten, successor, victims,
};
pub use ports::{named_port, port_of};
pub use view::{
    DdpView, END_NOW, End, NodeView, PodPhase, PodView, RestartPolicy, ServiceView, Stage,
};
