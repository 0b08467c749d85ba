use di_api::names;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::{Api, api::PostParams};

use super::Finding;
use crate::{Cluster, Result};

const CHECK: &str = "rights";

/// A right, and what cannot be done without it.
struct Right {
    verb: &'static str,
    group: &'static str,
    resource: &'static str,
    subresource: &'static str,
    without: &'static str,
}

const fn right(
    verb: &'static str,
    (group, resource, subresource): (&'static str, &'static str, &'static str),
    without: &'static str,
) -> Right {
    Right {
        verb,
        group,
        resource,
        subresource,
        without,
    }
}

const JOBS: (&str, &str, &str) = (names::GROUP, "dijobs", "");
const PODS: (&str, &str, &str) = ("", "pods", "");
const EVENTS: (&str, &str, &str) = ("", "events", "");
const EXEC: (&str, &str, &str) = ("", "pods", "exec");
const PORTS: (&str, &str, &str) = ("", "pods", "portforward");
const RIGHTS: [Right; 20] = [
    right("get", JOBS, "get"),
    right("list", JOBS, "get"),
    right("watch", JOBS, "get --watch"),
    right("create", JOBS, "create"),
    right("patch", JOBS, "replicas, suspend, resume"),
    right("delete", JOBS, "delete"),
    // The webhook asks for it: a job runs pods.
    right("create", PODS, "create"),
    right("get", PODS, "restart"),
    right("list", PODS, "replicas list"),
    right("watch", PODS, "replicas list --watch, logs --follow, top"),
    right("delete", PODS, "replicas restart"),
    right("get", ("", "pods", "log"), "logs"),
    // A WebSocket begins with a GET; newer servers ask for the right to create, too.
    right("get", EXEC, "exec"),
    right("create", EXEC, "exec"),
    right("get", PORTS, "port-forward"),
    right("create", PORTS, "port-forward"),
    right("get", ("", "pods", "proxy"), "status"),
    right("create", ("", "pods", "proxy"), "pause, start"),
    right("list", EVENTS, "events"),
    right("watch", EVENTS, "events --watch"),
];

/// What the user may do in the current namespace.
pub(super) async fn look(cluster: &Cluster) -> Result<Vec<Finding>> {
    let asked = RIGHTS.iter().map(|right| allowed(cluster, right));
    let answers = futures::future::try_join_all(asked).await?;
    let refused: Vec<&Right> = RIGHTS
        .iter()
        .zip(answers)
        .filter_map(|(right, allowed)| (!allowed).then_some(right))
        .collect();
    Ok(vec![judge(&refused, &cluster.namespace().name)])
}

async fn allowed(cluster: &Cluster, right: &Right) -> Result<bool> {
    let optional = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                namespace: Some(cluster.namespace().name.clone()),
                verb: Some(right.verb.to_owned()),
                group: optional(right.group),
                resource: Some(right.resource.to_owned()),
                subresource: optional(right.subresource),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let reviews: Api<SelfSubjectAccessReview> = Api::all(cluster.client.clone());
    let answer = reviews.create(&PostParams::default(), &review).await;
    let answer = answer.map_err(|error| cluster.error(error))?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

fn judge(refused: &[&Right], namespace: &str) -> Finding {
    if refused.is_empty() {
        let message = format!("all that this plugin does in namespace {namespace}");
        return Finding::ok(CHECK, message);
    }
    let mut verbs: Vec<&str> = Vec::new();
    for right in refused {
        if !verbs.contains(&right.without) {
            verbs.push(right.without);
        }
    }
    let rights: Vec<_> = refused
        .iter()
        .map(|right| {
            let sub = match right.subresource {
                "" => String::new(),
                sub => format!("/{sub}"),
            };
            format!("{} {}{sub}", right.verb, right.resource)
        })
        .collect();
    let message = format!(
        "you cannot use, in namespace {namespace}: {}",
        verbs.join(", ")
    );
    Finding::warning(CHECK, message).remedy(format!(
        "if you need them, ask an administrator for the right to {}",
        rights.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_with_what_it_is_for() {
        let refused: Vec<_> = RIGHTS
            .iter()
            .filter(|right| matches!(right.subresource, "log" | "exec"))
            .collect();
        let found = judge(&refused, "n");
        assert_eq!(found.message, "you cannot use, in namespace n: logs, exec");
        let remedy = found.remedy.unwrap();
        assert!(
            remedy.ends_with("to get pods/log, get pods/exec, create pods/exec"),
            "{remedy}"
        );
    }
}
