use di_api::names;
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec, UserInfo},
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{Api, api::PostParams};

use super::{
    access::Access,
    decision_cache::{AccessQuery, Decision},
};
use crate::{
    error::{Error, Result},
    state::{SharedState, call_api},
};

/// Audience of accepted tokens. A token of this audience cannot be used against the API server.
pub(super) const AUDIENCE: &str = "di-server";

/// Fails unless the owner of the token has the access.
pub(super) async fn check_token(
    state: &SharedState,
    token: &str,
    access: Access<'_>,
) -> Result<()> {
    let query = AccessQuery::new(token, access);
    let decision = if let Some(decision) = state.decisions.get(&query) {
        decision
    } else {
        let _permit = state.decisions.reviews.acquire().await;
        let decision = review_token(state, token, access).await?;
        state.decisions.put(query, decision);
        decision
    };
    match decision {
        Decision::Allowed => Ok(()),
        Decision::InvalidToken => Err(Error::Unauthenticated(format!(
            "the bearer token is not valid for this endpoint; create one for the audience {AUDIENCE} (kubectl create token --audience {AUDIENCE})"
        ))),
        Decision::Forbidden => Err(Error::Forbidden(format!(
            "the owner of the bearer token may not {} dijobs.{} {}",
            access.verb(),
            names::GROUP,
            access
                .namespace()
                .map_or("in all namespaces".to_owned(), |ns| format!(
                    "in namespace {ns}"
                ))
        ))),
    }
}

async fn review_token(state: &SharedState, token: &str, access: Access<'_>) -> Result<Decision> {
    let Some(user) = token_owner(state, token).await? else {
        return Ok(Decision::InvalidToken);
    };
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            extra: user.extra,
            groups: user.groups,
            uid: user.uid,
            user: user.username,
            resource_attributes: Some(ResourceAttributes {
                group: Some(names::GROUP.to_owned()),
                resource: Some("dijobs".to_owned()),
                verb: Some(access.verb().to_owned()),
                namespace: access.namespace().map(str::to_owned),
                name: access.job().map(str::to_owned),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let api: Api<SubjectAccessReview> = Api::all(state.client.clone());
    let answer = call_api("review the access of the token's owner", async {
        api.create(&PostParams::default(), &review).await
    })
    .await?;
    Ok(if answer.status.is_some_and(|status| status.allowed) {
        Decision::Allowed
    } else {
        Decision::Forbidden
    })
}

/// Returns the owner of the token if it is valid for [`AUDIENCE`].
async fn token_owner(state: &SharedState, token: &str) -> Result<Option<UserInfo>> {
    let review = TokenReview {
        spec: TokenReviewSpec {
            audiences: Some(vec![AUDIENCE.to_owned()]),
            token: token.to_owned(),
        },
        ..TokenReview::default()
    };
    let api: Api<TokenReview> = Api::all(state.client.clone());
    let answer = call_api("review the token", async {
        api.create(&PostParams::default(), &review).await
    })
    .await?;
    let Some(status) = answer.status else {
        return Ok(None);
    };
    let has_audience = status.audiences.iter().flatten().any(|a| a == AUDIENCE);
    Ok(status
        .user
        .filter(|_| status.authenticated == Some(true) && has_audience))
}
