//! Runs the plugin against a real etcd and kube-apiserver. Tests with a kubelet are in `tests/e2e`.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

mod completion;
mod create;
mod dashboard;
mod describe;
mod doctor;
mod events;
mod exec;
mod failures;
mod get;
mod globals;
mod install;
mod lifecycle;
mod manifests;
mod packaging;
mod plugin;
mod port_forward;
mod python;
mod queueing;
mod replicas;
mod replicas_list;
mod restart;
mod selection;
mod suspend;
mod top;
mod validate;
mod version;
mod wait;
