//! Has the API server validate the pods of new templates. See docs/decisions/0030.

mod field_map;
mod pods;
mod response;
mod unknown_fields;

use std::{
    hash::{BuildHasher, RandomState},
    sync::Arc,
    time::Duration,
};

use axum::http::{Request, header};
use di_api::validation::Fault;
use di_plan::BuildSettings;
use futures::future::join_all;
use kube::Client;
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout_at},
};

pub use self::response::PolicyDenials;
use self::{
    field_map::FieldMap,
    pods::build_pods,
    response::{PodCheck, PodResponse, build_report, interpret_response, is_definite},
    unknown_fields::{find_ignored_fields, reports_unknown_fields},
};
use crate::{
    error::{Error, Result},
    review::{DryRunReport, ValidObject},
    ttl_cache::TtlCache,
};

/// Maximum number of concurrent requests. Further requests wait, so that many new jobs do not
/// overload the API server.
const MAX_CONCURRENT_REQUESTS: usize = 32;
/// Time for which definite responses are cached: a job is often submitted twice within some seconds,
/// for example by a dry run and then by a create.
const CACHE_TTL: Duration = Duration::from_secs(5);

/// Settings of the dry run.
#[derive(Clone, Debug, Default)]
pub struct DryRunSettings {
    /// Settings of the reconciler for pods.
    pub build: BuildSettings,
    /// The effect of denials by policies.
    pub denials: PolicyDenials,
}

/// Creates the pods of new templates in a dry run, with the permissions of the orchestrator.
#[derive(Clone)]
pub struct DryRun {
    client: Client,
    settings: Arc<DryRunSettings>,
    permits: Arc<Semaphore>,
    responses: Arc<TtlCache<CacheKey, PodResponse>>,
    hasher: RandomState,
}

/// Namespace of a pod and hash of the pod.
type CacheKey = (String, u64);

/// The dry run of one pod.
pub(crate) struct PodRequest {
    key: CacheKey,
    body: Vec<u8>,
    fields: FieldMap,
}

impl DryRun {
    /// A dry run that uses this client, which needs permission to create pods.
    pub fn new(client: Client, settings: DryRunSettings) -> Self {
        Self {
            client,
            settings: Arc::new(settings),
            permits: Arc::new(Semaphore::new(MAX_CONCURRENT_REQUESTS)),
            responses: Arc::new(TtlCache::new(CACHE_TTL)),
            hasher: RandomState::new(),
        }
    }

    /// Builds one pod of each role that the object has a template of.
    pub(crate) fn build_requests(
        &self,
        object: ValidObject,
        namespace: &str,
    ) -> Result<Vec<PodRequest>> {
        let pods = build_pods(object, namespace, &self.settings.build);
        let encode = |pod: &_| serde_json::to_vec(pod).map_err(Error::Encode);
        let requests = pods.into_iter().map(|(mut pod, fields)| {
            // The UID of the owner differs each time that a job is submitted.
            let mut owners = pod.metadata.owner_references.take();
            let hash = self.hasher.hash_one(encode(&pod)?);
            // An API server that has just got the CRD denies this field for half a minute.
            for owner in owners.iter_mut().flatten() {
                owner.block_owner_deletion = None;
            }
            pod.metadata.owner_references = owners;
            Ok(PodRequest {
                key: (namespace.to_owned(), hash),
                body: encode(&pod)?,
                fields,
            })
        });
        requests.collect()
    }

    /// Sends the requests in parallel. What the API server has not responded to until `deadline` becomes
    /// a warning.
    pub(crate) async fn run(&self, requests: Vec<PodRequest>, deadline: Instant) -> DryRunReport {
        let checks = join_all(requests.into_iter().map(async |request| {
            let fields = request.fields.clone();
            let check = match timeout_at(deadline, self.send(request)).await {
                Ok(Ok(response)) => interpret_response(&response, &fields),
                Ok(Err(error)) => PodCheck::Unknown(error.to_string()),
                Err(_) => PodCheck::Unknown("the API server did not respond in time".to_owned()),
            };
            (fields.template, check)
        }));
        build_report(checks.await, self.settings.denials)
    }

    /// Adds the fields that this program does not know to the report.
    pub(crate) async fn add_unknown_fields(
        &self,
        report: DryRunReport,
        unknown: Vec<Fault>,
        deadline: Instant,
    ) -> DryRunReport {
        if unknown.is_empty() {
            return report;
        }
        let version = timeout_at(deadline, self.client.apiserver_version()).await;
        let version = version.ok().and_then(Result::ok);
        let strict = version.and_then(|version| reports_unknown_fields(&version.minor));
        report.add_unknown_fields(unknown, strict)
    }

    /// The response of the API server, which may be cached.
    async fn send(&self, PodRequest { key, body, .. }: PodRequest) -> kube::Result<PodResponse> {
        if let Some(response) = self.responses.get_valid(&key) {
            return Ok(response);
        }
        // The semaphore is never closed, so this cannot fail.
        let _permit = self.permits.acquire().await;
        let sent_at = Instant::now();
        // API servers before 1.25 ignore `fieldValidation`.
        let path = format!(
            "/api/v1/namespaces/{}/pods?dryRun=All&fieldValidation=Strict",
            key.0
        );
        let request = Request::post(path).header(header::CONTENT_TYPE, "application/json");
        let request = request.body(body.clone()).map_err(kube::Error::HttpError)?;
        let response = match self.client.request_text(request).await {
            Ok(pod) => {
                let ignored = find_ignored_fields(&body, &pod).map_err(kube::Error::SerdeError)?;
                Ok(Arc::new(ignored))
            }
            Err(kube::Error::Api(status)) => Err(Arc::new(*status)),
            Err(error) => return Err(error),
        };
        if is_definite(&response) {
            let causes = response.as_ref().err().and_then(|s| s.details.as_ref());
            let causes = causes.into_iter().flat_map(|details| &details.causes);
            let sizes = causes.map(|cause| cause.field.len() + cause.message.len());
            let ignored = response.iter().flat_map(|ignored| ignored.iter());
            let size = key.0.len() + sizes.chain(ignored.map(String::len)).sum::<usize>();
            self.responses
                .insert_at(key, response.clone(), size, sent_at);
        }
        Ok(response)
    }
}

#[cfg(test)]
mod tests;
