mod ttl_cache;

use std::{sync::Arc, time::Duration};

use di_cache::call_with_timeout;
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::{Api, Client, api::PostParams};
use tokio::{sync::Semaphore, time::Instant};

use self::ttl_cache::TtlCache;
use crate::{
    error::Result,
    review::{AccessQuery, Authorization, ReviewResponse},
};

/// Maximum number of concurrent queries. Further queries wait, so that many new jobs do not
/// overload the API server.
const MAX_CONCURRENT_QUERIES: usize = 32;
/// Time limit of a query. The API server waits 10 s for the response of the webhook, and needs it
/// to report the reason of a denial.
const QUERY_TIMEOUT: Duration = Duration::from_secs(5);

/// Asks the API server whether the authors of templates may create pods. See docs/decisions/0010.
#[derive(Clone)]
pub struct Access {
    client: Client,
    query_permits: Arc<Semaphore>,
    allowed: Arc<TtlCache<AccessQuery>>,
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

    /// Asks the API server, and returns the response to the request. Denies the request if the API
    /// server does not respond.
    ///
    /// # Errors
    /// When the response cannot be encoded.
    pub async fn authorize(&self, authorization: Authorization) -> Result<ReviewResponse> {
        if self.allowed.contains_valid(authorization.access_query()) {
            return authorization.allow_response();
        }
        match self.query_api_server(authorization.access_query()).await {
            Ok(true) => authorization.allow_response(),
            Ok(false) => authorization.deny_response(),
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "Cannot check whether a user may create pods, denying the request"
                );
                authorization.error_response()
            }
        }
    }

    async fn query_api_server(&self, query: &AccessQuery) -> Result<bool> {
        let operation = || "create SubjectAccessReview".to_owned();
        let call = async {
            // The semaphore is never closed, so this cannot fail.
            let _permit = self.query_permits.acquire().await;
            let api: Api<SubjectAccessReview> = Api::all(self.client.clone());
            let queried_at = Instant::now();
            let (params, review) = (PostParams::default(), query.to_access_review());
            Ok((api.create(&params, &review).await?, queried_at))
        };
        let (response, queried_at) = call_with_timeout(QUERY_TIMEOUT, operation, call).await?;
        let status = response.status.unwrap_or_default();
        let is_allowed = status.allowed && !status.denied.unwrap_or_default();
        if is_allowed {
            self.allowed
                .insert_at(query, query.size_bytes(), queried_at);
        }
        Ok(is_allowed)
    }
}
