//! What the benchmarks share: servers, clients, loads, sizes and results.

pub mod calls;
pub mod changes;
pub mod child;
pub mod cluster;
pub mod fleet;
pub mod http;
pub mod kubelet;
pub mod load;
pub mod machine;
pub mod original;
pub mod scale;
pub mod serving;
pub mod stats;
pub mod statuses;
