use di_api::names;
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec, UserInfo},
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{Api, api::PostParams};

use super::{
    Action,
    decision_cache::{AccessQuery, Decision},
};
use crate::{
    error::{Error, Result},
    state::{SharedState, call_api},
};

/// Audience that a token must be made for, so that one sent here is good for nothing else.
pub(super) const AUDIENCE: &str = "di-server";

/// Whether the owner of the token may do this.
pub(super) async fn check_token(
    state: &SharedState,
    token: &str,
    action: Action<'_>,
) -> Result<()> {
    let question = AccessQuery::new(token, action);
    let decision = if let Some(decision) = state.decisions.get(&question) {
        decision
    } else {
        let _permit = state.decisions.reviews.acquire().await;
        let decision = review_token(state, token, action).await?;
        state.decisions.put(question, decision);
        decision
    };
    match decision {
        Decision::Allowed => Ok(()),
        Decision::InvalidToken => Err(Error::Unauthenticated(format!(
            "the bearer token is not valid here; it must be made for the audience {AUDIENCE} (kubectl create token --audience {AUDIENCE})"
        ))),
        Decision::Forbidden => Err(Error::Forbidden(format!(
            "the owner of the bearer token may not {} dijobs.{} {}",
            action.verb(),
            names::GROUP,
            action
                .namespace()
                .map_or("in all namespaces".to_owned(), |ns| format!(
                    "in namespace {ns}"
                ))
        ))),
    }
}

async fn review_token(state: &SharedState, token: &str, action: Action<'_>) -> Result<Decision> {
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
                verb: Some(action.verb().to_owned()),
                namespace: action.namespace().map(str::to_owned),
                name: action.job().map(str::to_owned),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let api: Api<SubjectAccessReview> = Api::all(state.client.clone());
    let answer = call_api("review what the requester may do", async {
        api.create(&PostParams::default(), &review).await
    })
    .await?;
    Ok(if answer.status.is_some_and(|status| status.allowed) {
        Decision::Allowed
    } else {
        Decision::Forbidden
    })
}

/// The owner of a token that is valid for our audience.
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
    let for_us = status.audiences.iter().flatten().any(|a| a == AUDIENCE);
    Ok(status
        .user
        .filter(|_| status.authenticated == Some(true) && for_us))
}
