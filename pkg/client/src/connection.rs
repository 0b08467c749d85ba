//! The connection to a cluster: kubeconfig and flags, requests and watches.

pub(crate) mod cluster;
mod credential_plugin;
mod credentials;
pub(crate) mod deadline;
mod kubeconfig;
pub(crate) mod names;
pub(crate) mod options;
mod overrides;
mod proxy;
pub(crate) mod resource;
mod selection;
mod warning_header;
pub(crate) mod watch;

#[cfg(test)]
pub(crate) mod tests;
