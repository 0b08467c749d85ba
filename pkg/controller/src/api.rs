//! Requests to the API server: counted, limited in number, and with a timeout.

use std::future::Future;

use di_cache::call_with_timeout;

use crate::{context::Context, error::Result, metrics::WriteLabels};

impl Context {
    /// Sends one write: limited in number over all jobs, with a timeout, and only while this
    /// process leads.
    pub async fn write<T>(
        &self,
        verb: &'static str,
        resource: &'static str,
        operation: impl FnOnce() -> String,
        call: impl Future<Output = kube::Result<T>>,
    ) -> Result<T> {
        // The semaphore is never closed, so `acquire` never fails.
        let _permit = self.write_permits.acquire().await.ok();
        self.count_request(verb, resource);
        let token = self.settings.leader_token.clone();
        // Boxed: the future that publishes events is large, and would enlarge every reconcile.
        let call = Box::pin(async move {
            if let Some(token) = token {
                token.wait_until_valid().await;
            }
            call.await
        });
        Ok(call_with_timeout(self.settings.call_timeout, operation, call).await?)
    }

    /// Reads one object, with a timeout.
    pub async fn get<T>(
        &self,
        resource: &'static str,
        operation: impl FnOnce() -> String,
        call: impl Future<Output = kube::Result<T>>,
    ) -> Result<T> {
        self.count_request("get", resource);
        Ok(call_with_timeout(self.settings.call_timeout, operation, call).await?)
    }

    fn count_request(&self, verb: &'static str, resource: &'static str) {
        self.metrics
            .writes
            .get_or_create(&WriteLabels { verb, resource })
            .inc();
    }
}
