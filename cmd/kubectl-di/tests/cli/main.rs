//! The plugin as a user runs it, against a real etcd and kube-apiserver. What takes a kubelet is tested in `tests/e2e`.

#![allow(clippy::unwrap_used)] // in a test, whatever fails is a failure

mod completion;
mod doctor;
mod globals;
mod install;
mod manifests;
mod packaging;
mod plugin;
mod version;
