//! Tests against a real etcd and kube-apiserver. They verify the Kubernetes behavior that other
//! tests assume.
//!
//! No kubelet, scheduler, controller manager or garbage collector runs; [`Kubelet`] replaces
//! them. Tests read the order and the authors of writes from the API server's audit log.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc)] // a helper that fails is a test that fails

mod aggregator_config;
mod audit;
mod dry_run;
mod endpoint;
mod eventually;
mod gang;
mod install;
mod kubelet;
mod kueue;
mod leader;
mod lossy_proxy;
mod manager;
mod namespace_scope;
mod nodes;
mod pki;
mod proxy;
mod quota;
mod random_faults;
mod schemathesis;
mod server;
mod space;
mod terminal;
mod tokens;
mod webhooks;

pub use aggregator_config::create_aggregator_config;
pub use audit::Write;
pub use di_fixtures::{Job, template};
pub use dry_run::dry_run;
pub use endpoint::{Answer, Caller, Endpoint};
pub use eventually::eventually;
pub use gang::{
    Gangs, gang_job, gang_settings, grant_gang_permissions, install_gangs, slot_resource,
};
pub use kubelet::{
    Kubelet, exit, fail_to_pull, give_address, remove, report_node_lost, report_restarts,
    report_unschedulable, run,
};
pub use kueue::{
    Kueue, condition_reason, grant_kueue_permissions, in_queue, install_kueue, queued_job,
    queued_job_with_priority, uninstall_kueue,
};
pub use leader::PausableLeader;
pub use lossy_proxy::LossyProxy;
pub use manager::{DISCOVERY_INTERVAL, Manager, with_short_discovery};
pub use nodes::{GpuNode, common_nodes, make_nodes};
pub use proxy::{Proxy, ProxyAction, RecordedRequest, WatchMode};
pub use quota::{GPUS, forbid_pods, forbid_resource, set_pod_quota};
pub use schemathesis::run_schemathesis;
pub use server::{Part, Server};
pub use space::{SPACE_LABEL, Space, wait_for_objects};
pub use terminal::Terminal;
pub use tokens::Account;
pub use webhooks::Webhooks;
