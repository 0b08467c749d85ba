//! The replica endpoint against a real API server.

mod access;
mod add_remove;
mod concurrency;
mod coordinator_restarts;
mod lost_responses;
mod membership;
mod openapi;
mod own_writes;
mod python_client;
mod regressions;
mod scheduling;
