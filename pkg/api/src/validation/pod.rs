//! The rules of the API server and the kubelet for pod templates.

mod annotations;
mod containers;
mod disks;
mod dns;
mod env;
pub(super) mod expansion;
mod handlers;
mod image;
pub(super) mod metadata;
mod mounts;
pub(super) mod ports;
pub(super) mod quantities;
mod scheduling;
mod security;
mod storage;
pub(super) mod template;
pub(super) mod template_context;
pub(super) mod version_skew;
pub(super) mod volumes;
mod windows;
