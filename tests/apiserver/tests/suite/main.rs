//! One binary, so that all its tests share one server.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

mod blocked_pods;
mod clean_up_policy;
mod concurrent_writers;
mod crds;
mod endpoint;
mod fault_list;
mod faults;
mod gang;
mod hanging_proxy;
mod idle_writes;
mod job_change_during_creation;
mod job_states;
mod kubectl;
mod leader_election;
mod learner_groups;
mod lifecycle;
mod manifests;
mod mass_failure;
mod metrics;
mod name_conflicts;
mod queueing;
mod recovery;
mod scale;
mod suspend;
mod two_managers;
mod undecodable_jobs;
mod units;
mod user_roles;
mod webhooks;
