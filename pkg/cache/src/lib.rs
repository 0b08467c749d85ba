//! Watch caches of jobs, pods and services that reflect one's own writes.
