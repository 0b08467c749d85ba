//! Tests against a real etcd and kube-apiserver: what the rest of the project's tests take for granted of Kubernetes is checked here.
//!
//! There is no kubelet, scheduler, controller manager or garbage collector; [`Kubelet`] does what a test needs of them. What was written,
//! by whom and in which order is read from the server's audit log.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc)] // a helper that fails is a test that fails

mod audit;
mod chance;
mod configuration;
mod cutter;
mod endpoint;
mod eventually;
mod install;
mod job;
mod kubelet;
mod leader;
mod manager;
mod narrow;
mod nodes;
mod pki;
mod proxy;
mod quota;
mod schemathesis;
mod server;
mod space;
mod terminal;
mod tokens;
mod webhooks;

pub use audit::Write;
pub use configuration::configure;
pub use cutter::Cutter;
pub use endpoint::{Answer, Caller, Endpoint};
pub use eventually::eventually;
pub use job::{Job, template};
pub use kubelet::{
    Kubelet, exit, fail_to_pull, find_no_room, give_address, lose_node, remove, run, tell_restarts,
};
pub use leader::StoppableLeader;
pub use manager::Manager;
pub use nodes::{GpuNode, common_nodes, make_nodes};
pub use proxy::{Came, Fate, Proxy, Watches};
pub use quota::{GPUS, forbid, forbid_pods, tell_quota};
pub use schemathesis::schemathesis;
pub use server::{Part, Server};
pub use space::{Space, dry, exists};
pub use terminal::Terminal;
pub use tokens::Account;
pub use webhooks::Webhooks;
