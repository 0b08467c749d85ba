//! What all requests share.

use std::{net::SocketAddr, sync::Arc};

use axum::Json;
use di_client::{Cluster, VERSION};
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    error::{Error, Result},
    request::check_name,
};

/// Maximum number of open streams. Each one has watches or logs of its own.
const MAX_STREAMS: usize = 16;

/// The cluster, the settings and the secrets of a dashboard.
pub(crate) struct Shared {
    pub(crate) cluster: Cluster,
    pub(crate) address: SocketAddr,
    pub(crate) all_namespaces: bool,
    pub(crate) read_only: bool,
    /// The secret in the address of the page, and in the header of every change.
    pub(crate) token: String,
    /// The value of the cookie.
    pub(crate) session: String,
    streams: Arc<Semaphore>,
}

impl Shared {
    /// `address` is where the dashboard listens.
    pub(crate) fn new(
        cluster: Cluster,
        address: SocketAddr,
        all_namespaces: bool,
        read_only: bool,
    ) -> Self {
        Self {
            cluster,
            address,
            all_namespaces,
            read_only,
            token: new_secret(),
            session: new_secret(),
            streams: Arc::new(Semaphore::new(MAX_STREAMS)),
        }
    }

    /// The cluster with the namespace of a query, and whether it is all namespaces.
    pub(crate) fn select_namespace(&self, namespace: Option<&str>) -> Result<(Cluster, bool)> {
        match namespace {
            None => Ok((self.cluster.clone(), self.all_namespaces)),
            Some("*") => Ok((self.cluster.clone(), true)),
            Some(name) => {
                check_name(name)?;
                Ok((self.cluster.with_namespace(name), false))
            }
        }
    }

    /// The settings that the page shows.
    pub(crate) fn describe_session(&self) -> Json<Value> {
        Json(json!({
            "version": VERSION,
            "server": self.cluster.server(),
            "namespace": self.cluster.namespace().name,
            "allNamespaces": self.all_namespaces,
            "readOnly": self.read_only,
        }))
    }

    /// Counts a stream until the permit is dropped.
    pub(crate) fn open_stream(&self) -> Result<OwnedSemaphorePermit> {
        let permit = self.streams.clone().try_acquire_owned();
        permit.map_err(|_| Error::TooManyStreams)
    }
}

/// Generates a secret of 128 bits.
fn new_secret() -> String {
    format!("{:032x}", rand::random::<u128>())
}
