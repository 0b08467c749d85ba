//! The plugin as a user runs it, against a real etcd and kube-apiserver. What takes a kubelet is tested in `tests/e2e`.

#![allow(clippy::unwrap_used)] // in a test, whatever fails is a failure

mod create;
mod delete;
mod manifests;
mod plugin;
mod replicas;
mod restart;
mod suspend;
mod validate;
mod version;
mod wait;
