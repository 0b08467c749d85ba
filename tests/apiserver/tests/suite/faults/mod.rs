//! Jobs under injected faults: each one must end like the same job without faults.

mod clock_skew;
pub(crate) mod job_run;
mod long_lifecycle;
mod manager_process;
mod outages;
mod past_deadline;
mod paused_leader;
mod phase_monitor;
mod requests_and_watches;
mod revoked_permissions;
mod scenario;
