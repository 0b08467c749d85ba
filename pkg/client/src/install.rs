//! Installs, upgrades, inspects and uninstalls the orchestrator.

pub(crate) mod apply;
pub(crate) mod helm;
pub(crate) mod install_objects;
pub(crate) mod installed;
pub(crate) mod leftovers;
pub(crate) mod rollout;
pub(crate) mod versions;
pub(crate) mod webhook_probe;
