//! The plugin as a user runs it, against a real etcd and kube-apiserver. What takes a kubelet is tested in `tests/e2e`.

#![allow(clippy::unwrap_used)] // in a test, whatever fails is a failure

mod completion;
mod create;
mod delete;
mod describe;
mod doctor;
mod events;
mod exec;
mod get;
mod globals;
mod install;
mod lifecycle;
mod manifests;
mod packaging;
mod plugin;
mod port_forward;
mod replicas;
mod replicas_list;
mod restart;
mod selection;
mod suspend;
mod top;
mod validate;
mod version;
mod wait;
