//! The admission webhooks, called by a real API server.

mod authorization;
mod cert_manager;
mod certificates;
mod dry_run;
mod job_updates;
mod server_rules;
mod validation;
mod validation_table;
