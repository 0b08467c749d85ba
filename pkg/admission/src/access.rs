mod lately;

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::{Api, Client, api::PostParams};
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout},
};

use crate::{
    Error, Result,
    api_call::call,
    review::{Answer, Claim, Question},
};
use lately::Lately;

/// Questions asked at a time; further ones wait, so that a flood of jobs is none of questions.
const AT_A_TIME: usize = 32;
/// The API server waits 10 s for our answer, and must get it to be able to say why it refuses.
const PATIENCE: Duration = Duration::from_secs(5);
const WHAT: &str = "SubjectAccessReview";

/// Asks the API server whether the authors of templates may create pods.
#[derive(Clone)]
pub struct Access {
    client: Client,
    asking: Arc<Semaphore>,
    granted: Arc<Lately<Question>>,
}

impl Access {
    /// By this client, which needs the right to create `SubjectAccessReview`s. That somebody may is believed for `granted_for`; that
    /// somebody may not is asked again each time.
    pub fn new(client: Client, granted_for: Duration) -> Self {
        Self {
            client,
            asking: Arc::new(Semaphore::new(AT_A_TIME)),
            granted: Arc::new(Lately::new(granted_for)),
        }
    }

    /// The answer to a claim. Refuses when nobody can say.
    ///
    /// # Errors
    /// When it cannot be encoded.
    pub async fn decide(&self, claim: Claim) -> Result<Answer> {
        if self.granted.holds(claim.question()) {
            return claim.granted();
        }
        let allowed = timeout(PATIENCE, self.ask(claim.question()));
        let allowed = allowed.await.unwrap_or_else(|_| {
            Err(Error::Timeout {
                action: "create",
                object: WHAT.to_owned(),
            })
        });
        match allowed {
            Ok(true) => claim.granted(),
            Ok(false) => claim.refused(),
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "Failed to ask for a user's rights, so the request is refused"
                );
                claim.undecided()
            }
        }
    }

    async fn ask(&self, question: &Question) -> Result<bool> {
        // Never closed, so that it cannot fail.
        let _permit = self.asking.acquire().await;
        let api: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let (params, review) = (PostParams::default(), question.review());
        let asked = Instant::now();
        let answer = call("create", WHAT, api.create(&params, &review)).await?;
        let status = answer.status.unwrap_or_default();
        let allowed = status.allowed && !status.denied.unwrap_or_default();
        if allowed {
            self.granted.note(question, question.size(), asked);
        }
        Ok(allowed)
    }
}
