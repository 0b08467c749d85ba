//! One binary, so that all its tests share one server.

#![allow(clippy::unwrap_used)] // in a test, whatever fails is a failure

mod access;
mod cert_manager;
mod certificates;
mod changes;
mod clocks;
mod course;
mod definitions;
mod endings;
mod endpoint;
mod endpoint_access;
mod endpoint_faults;
mod endpoint_lost_answers;
mod endpoint_own_writes;
mod endpoint_races;
mod endpoint_restarts;
mod endpoint_schema;
mod endpoint_verdicts;
mod eventful;
mod fault_list;
mod faults;
mod healing;
mod held;
mod kubectl;
mod late;
mod lease;
mod life;
mod lifecycle;
mod manifests;
mod metrics;
mod mistakes;
mod mistakes_refused;
mod outages;
mod phases;
mod quiet;
mod rights;
mod scale;
mod states;
mod storm;
mod strangers;
mod trouble;
mod two_managers;
mod units;
mod usurped;
mod victim;
