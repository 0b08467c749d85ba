//! The plan of a job: which replicas it should have, by name, and the pods and services made from it.
//!
//! Everything here is a pure function of what it is given; nothing does IO.

mod build;
mod listing;
mod names;
mod ops;
mod view;

pub use build::{BuildSettings, pod, port, service};
pub use listing::{Listing, listing};
pub use names::{RandomSuffixes, Suffixes};
pub use ops::{
    Request, adopt, declare, drop_gone, find, release, release_declared, release_surplus, remove,
    replace, request, successor,
};
pub use view::{End, PodPhase, PodView, ServiceView, Stage};
