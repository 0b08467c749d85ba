//! The granted roles match the used ones exactly. Run it last, over the audit log of all other
//! tests.

use std::collections::BTreeSet;

use di_api::names;
use di_e2e::{Audit, client};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use kube::Api;

const USER: &str = "system:serviceaccount:di-system:di-orchestrator";

fn granted(rules: Option<Vec<PolicyRule>>) -> impl Iterator<Item = (String, String, String)> {
    rules.into_iter().flatten().flat_map(|rule| {
        let mut all = Vec::new();
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                for verb in &rule.verbs {
                    all.push((verb.clone(), group.clone(), resource.clone()));
                }
            }
        }
        all
    })
}

#[tokio::test]
async fn granted_rules_match_used_rules() {
    let client = client().await;
    let calls = Audit::of_cluster().calls_of(USER);
    let refused: Vec<_> = calls.iter().filter(|call| call.forbidden).collect();
    assert!(
        refused.is_empty(),
        "asked for without a permission for it: {refused:#?}"
    );

    let used: BTreeSet<_> = calls
        .into_iter()
        .map(|call| (call.verb, call.group, call.resource))
        .collect();
    let mut all = BTreeSet::new();
    for name in [
        "di-orchestrator",
        "di-orchestrator-webhooks",
        "di-orchestrator-kueue",
        "di-orchestrator-gang",
    ] {
        let role = Api::<ClusterRole>::all(client.clone())
            .get(name)
            .await
            .unwrap();
        all.extend(granted(role.rules));
    }
    for name in ["di-orchestrator-certificate", "di-orchestrator-lease"] {
        let role = Api::<Role>::namespaced(client.clone(), di_e2e::SYSTEM)
            .get(name)
            .await
            .unwrap();
        all.extend(granted(role.rules));
    }
    // An admission plugin of the API server checks this permission, which the audit log does not
    // show. With that plugin enabled, pod creates need it.
    let asked_inside = ["update", names::GROUP, "dijobs/finalizers"].map(str::to_owned);
    all.remove(&asked_inside.into());
    // Only a create or delete that conflicts with another request is followed by a get.
    for (group, resource) in [
        (names::kueue::GROUP, "workloads"),
        ("scheduling.x-k8s.io", "podgroups"),
    ] {
        let seldom = ["get", group, resource].map(str::to_owned);
        all.remove(&seldom.into());
    }
    // The role is the same for all gang schedulers.
    all.retain(|(_, group, resource)| resource != "podgroups" || group == "scheduling.x-k8s.io");
    let unused: Vec<_> = all.difference(&used).collect();
    assert!(unused.is_empty(), "granted and never used: {unused:#?}");
}
