//! Watch caches that reflect one's own writes.
//!
//! A cache lags behind what its owner has just written. Here, what a write returned is put into the cache at once, and stays until the
//! watch has caught up, so that no decision is made on a state older than one's own last write.

mod by_uid;
mod connection;
mod feed;
mod group;
mod job_view;
mod jobs;
mod lately;
mod objects;
mod pace;
mod patience;
mod seen;
mod stored;
mod view;
mod watch_errors;
mod watched;
mod write;

pub use connection::client;
pub use feed::{
    WATCH_TIMEOUT_SECONDS, feed_aggregator_configs, feed_nodes, feed_pods, feed_services,
    job_stream,
};
pub use group::Objects;
pub use job_view::{Halt, JobView, PartView};
pub use jobs::{JobCache, JobRef, WatchedJob};
pub use objects::{Key, ObjectCache, PodCache, ServiceCache};
pub use stored::stored_jobs;
pub use view::View;
pub use watch_errors::WatchErrors;
pub use watched::{AggregatorCache, NodeCache, Watched};
pub use write::{open_resource, write_fields};
