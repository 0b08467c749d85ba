//! Watch caches that show this process's own writes at once.
//!
//! A watch lags behind a write that its own process has just made. These caches therefore store
//! the result of each write immediately and keep it until the watch has caught up. No decision is
//! based on a state older than the last own write. See docs/decisions/0001.

mod by_uid;
mod call;
mod connection;
mod feed;
mod groups;
mod job_notifier;
mod job_stream;
mod job_view;
mod jobs;
mod key;
mod objects;
mod optional_api;
mod projection;
mod rate_limit;
mod read_only_cache;
mod recent;
mod versioned_map;
mod view;
mod watch_backoff;
mod watch_errors;
mod workloads;
mod write;

pub use call::{CallError, call_with_timeout};
pub use connection::build_client;
pub use feed::{
    WATCH_TIMEOUT_SECONDS, feed_aggregator_configs, feed_nodes, feed_pods, feed_services,
};
pub use groups::{GroupApi, GroupCache, feed_groups, group_resource};
pub use job_stream::{job_stream, stored_jobs};
pub use job_view::{Halt, JobView, RoleView};
pub use jobs::{JobCache, JobRef, WatchedJob};
pub use key::Key;
pub use objects::{ObjectCache, PodCache, ServiceCache};
pub use optional_api::{DISCOVERY_INTERVAL, OptionalApi, OptionalCache};
pub use read_only_cache::{AggregatorCache, NodeCache, ReadOnlyCache};
pub use versioned_map::VersionedMap;
pub use view::View;
pub use watch_errors::WatchErrors;
pub use workloads::{QueueApi, WorkloadCache, feed_workloads, kueue_resource};
pub use write::{legacy_resource, write_fields};
