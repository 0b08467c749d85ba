//! The commands of the plugin, a file each. They do what kubectl cannot do in one command. See
//! docs/decisions/0026.

pub mod completion;
pub mod create;
pub mod dashboard;
pub mod describe;
pub mod doctor;
pub mod events;
pub mod exec;
pub mod failures;
pub mod generate;
pub mod get;
pub mod install;
pub mod lifecycle;
pub mod logs;
pub mod port_forward;
pub mod queue;
pub mod replicas;
pub mod restart;
mod setup;
pub mod suspend;
pub mod top;
pub mod uninstall;
pub mod upgrade;
pub mod validate;
pub mod version;
pub mod wait;
