use std::{sync::Arc, time::Duration};

use di_cache::call_with_timeout;
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::{Api, Client, api::PostParams};
use tokio::{sync::Semaphore, time::Instant};

use crate::{
    error::Result,
    review::{AccessQuery, Authorization, ReviewResponse},
    ttl_cache::TtlCache,
};

/// Maximum number of concurrent queries. Further queries wait, so that many new jobs do not
/// overload the API server.
const MAX_CONCURRENT_QUERIES: usize = 32;

/// Asks the API server whether the authors of templates may create pods. See docs/decisions/0010.
#[derive(Clone)]
pub struct Access {
    client: Client,
    query_permits: Arc<Semaphore>,
    allowed: Arc<TtlCache<AccessQuery, ()>>,
}

impl Access {
    /// An authorizer that uses this client, which needs permission to create `SubjectAccessReview`s.
    ///
    /// Positive results are cached for `cache_ttl`; negative results are never cached.
    pub fn new(client: Client, cache_ttl: Duration) -> Self {
        Self {
            client,
            query_permits: Arc::new(Semaphore::new(MAX_CONCURRENT_QUERIES)),
            allowed: Arc::new(TtlCache::new(cache_ttl)),
        }
    }

    /// Asks the API server. Returns the response that denies the request, or `None` if its author
    /// may create pods. Denies the request if the API server does not respond within `timeout`.
    ///
    /// # Errors
    /// When the response cannot be encoded.
    pub async fn find_denial(
        &self,
        authorization: &Authorization,
        timeout: Duration,
    ) -> Result<Option<ReviewResponse>> {
        let query = authorization.access_query();
        if self.allowed.get_valid(query).is_some() {
            return Ok(None);
        }
        match self.query_api_server(query, timeout).await {
            Ok(true) => Ok(None),
            Ok(false) => authorization.deny_response().map(Some),
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "Cannot check whether a user may create pods, denying the request"
                );
                authorization.error_response().map(Some)
            }
        }
    }

    async fn query_api_server(&self, query: &AccessQuery, timeout: Duration) -> Result<bool> {
        let operation = || "create SubjectAccessReview".to_owned();
        let call = async {
            // The semaphore is never closed, so this cannot fail.
            let _permit = self.query_permits.acquire().await;
            let api: Api<SubjectAccessReview> = Api::all(self.client.clone());
            let queried_at = Instant::now();
            let (params, review) = (PostParams::default(), query.to_access_review());
            Ok((api.create(&params, &review).await?, queried_at))
        };
        let (response, queried_at) = call_with_timeout(timeout, operation, call).await?;
        let status = response.status.unwrap_or_default();
        let is_allowed = status.allowed && !status.denied.unwrap_or_default();
        if is_allowed {
            self.allowed
                .insert_at(query.clone(), (), query.size_bytes(), queried_at);
        }
        Ok(is_allowed)
    }
}
