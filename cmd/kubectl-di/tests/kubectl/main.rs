//! Compares the plugin with kubectl: both read the same kubeconfigs, environments and manifests.
//!
//! The corpus is in YAML files. A case with a `difference` must differ from kubectl 1.20, for the
//! reason given there.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

mod connections;
mod manifests;
mod programs;
mod server;
