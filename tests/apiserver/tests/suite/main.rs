//! One binary, so that all its tests share one server.

#![allow(clippy::unwrap_used)] // in a test, whatever fails is a failure

mod definitions;
mod endings;
mod endpoint;
mod endpoint_races;
mod kubectl;
mod lease;
mod lifecycle;
mod quiet;
mod strangers;
mod trouble;
mod two_managers;
mod units;
