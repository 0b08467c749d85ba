//! Flags and arguments that several commands share.

pub mod dry_run;
pub mod globals;
pub mod manifests;
pub mod names;
pub mod parsers;
pub mod resources;
pub mod role;
pub mod selection;
pub mod wait;
