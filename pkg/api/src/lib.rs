//! The API of DI Orchestrator: `DIJob` and `AggregatorConfig`, their names, defaults and
//! validation.
//!
//! This crate holds types and pure functions only; it does no IO.

mod aggregator_config;
mod conditions;
mod crd;
mod defaulting;
mod dijob;
mod failure_record;
mod failure_rules;
pub mod names;
mod patch;
mod phase;
mod plan_entry;
mod pod_template;
pub mod quantity;
mod queueing;
mod reason;
mod resources;
mod role;
mod scheduling;
mod status;
mod unit;
pub mod validation;

pub use aggregator_config::{AggregatorConfig, AggregatorConfigSpec, AggregatorSpec};
pub use conditions::{ConditionType, find_condition, is_condition_true, set_condition};
pub use crd::crds;
pub use defaulting::default_patch;
pub use dijob::{
    CleanPodPolicy, CollectorSpec, CoordinatorSpec, DIJob, DIJobSpec, DeclaredReplicas,
    LearnerSpec, ListWhen, ReplicaGroup,
};
pub use failure_record::FailureRecord;
pub use failure_rules::{
    ExitCodeOperator, ExitCodes, Failure, FailureAction, FailureRule, MemoryGrowth, RuleRole,
    find_rule,
};
pub use patch::{guarded_patch, guarded_patches};
pub use phase::Phase;
pub use pod_template::PodTemplate;
pub use queueing::{ElasticQueueing, Placement, QueueState, QueueingSpec, QueueingStatus};
pub use reason::Reason;
pub use resources::{GPU_RESOURCE, ReplicaResources, raise_memory};
pub use role::Role;
pub use scheduling::{GangSpec, SchedulingSpec, SchedulingStatus};
pub use status::{
    CoordinatorStatus, DIJobStatus, Ddp, EntryState, Origin, PlanEntry, ReplicaCounts, RequestKind,
    RequestRecord,
};
pub use unit::{UnitPlace, UnitRestart, UnitSpec, UnitStart};
