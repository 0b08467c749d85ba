use di_api::Role;
use di_cache::Key;

use crate::{
    authorize::identity::Identity,
    state::SharedState,
    wire::{AddRequest, ReplicaRequest},
};

/// One authorized request to add replicas.
pub(super) struct Addition<'a> {
    pub(super) state: &'a SharedState,
    pub(super) key: &'a Key,
    pub(super) identity: &'a Identity,
    pub(super) request: &'a AddRequest,
    /// The roles with at least one new replica.
    pub(super) roles: Vec<(Role, &'a ReplicaRequest)>,
    pub(super) request_key: &'a str,
}

impl<'a> Addition<'a> {
    pub(super) fn new(
        state: &'a SharedState,
        identity: &'a Identity,
        request: &'a AddRequest,
        request_key: &'a str,
    ) -> Self {
        Self {
            state,
            key: request.requester.job_key(),
            identity,
            request,
            roles: request.roles(),
            request_key,
        }
    }
}
