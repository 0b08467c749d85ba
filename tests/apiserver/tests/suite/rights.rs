//! A right that an administrator takes from the reconciler, and gives back.

use di_api::{DIJobStatus, names};
use di_apiserver_tests::{Job, Kubelet, Manager, Space, dry, eventually, exit, template};
use k8s_openapi::api::{
    core::v1::Pod,
    rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule},
};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;

/// What the manager may do, as a role of its own for one user: nobody else's rights change with it.
async fn grant(space: &Space, user: &str) -> Vec<PolicyRule> {
    let api: Api<ClusterRole> = Api::all(space.client.clone());
    let rules = api.get("di-orchestrator").await.unwrap().rules.unwrap();
    let params = PostParams::default();
    let role = json!({"metadata": {"name": user}, "rules": rules});
    let role = serde_json::from_value(role).unwrap();
    api.create(&params, &role).await.unwrap();
    let group = "rbac.authorization.k8s.io";
    let binding = serde_json::from_value(json!({
        "metadata": {"name": user},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": user},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }));
    let bindings: Api<ClusterRoleBinding> = Api::all(space.client.clone());
    bindings.create(&params, &binding.unwrap()).await.unwrap();
    rules
}

/// Gives a user these rights, and waits until it may create pods by them, or may not.
async fn change(space: &Space, user: &str, rules: &[PolicyRule], may: bool) {
    let api: Api<ClusterRole> = Api::all(space.client.clone());
    let patch = Patch::Merge(json!({ "rules": rules }));
    let params = PatchParams::default();
    api.patch(user, &params, &patch).await.unwrap();
    until_in_force(space, user, may).await;
}

async fn until_in_force(space: &Space, user: &str, may: bool) {
    let pods: Api<Pod> = Api::namespaced(space.server.client_of(user), &space.namespace);
    let mut pod: Pod = serde_json::from_value(template()).unwrap();
    pod.metadata.name = Some("tried".to_owned());
    eventually("the right is in force", async || {
        let tried = pods.create(&dry(), &pod).await;
        if tried.is_ok() == may {
            Ok(())
        } else {
            Err(format!("{tried:?}"))
        }
    })
    .await;
}

fn without_creating_pods(rules: &[PolicyRule]) -> Vec<PolicyRule> {
    let mut rules = rules.to_vec();
    for rule in &mut rules {
        let resources = rule.resources.get_or_insert_default();
        if resources.iter().any(|resource| resource == "pods") {
            rule.verbs.retain(|verb| verb != "create");
        }
    }
    rules
}

#[tokio::test]
async fn a_right_that_is_withdrawn_is_told_of_and_what_waited_for_it_follows_when_it_is_back() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let user = format!("{}-manager", space.namespace);
    let rules = grant(&space, &user).await;
    until_in_force(&space, &user, true).await;
    let client = space
        .server
        .narrow_client_of(&user, "manager", &space.namespace);
    let manager = Manager::start(client);
    space.create(&Job::new("before", 2)).await;
    let settled = space.until_settled("before").await;

    change(&space, &user, &without_creating_pods(&rules), false).await;
    exit(&space.pods(), &settled.plan[0].name, 1).await;
    space.create(&Job::new("new", 1)).await;
    let forbidden = |s: &DIJobStatus| {
        let told = s.conditions.iter().find(|c| c.type_ == "ReplicasReady");
        s.reason.as_deref() == Some("Forbidden")
            && told.is_some_and(|told| told.reason == "Forbidden" && told.message.contains(&user))
    };
    for job in ["before", "new"] {
        space.until(job, "it is told of", &forbidden).await;
        space.until_event(job, "Forbidden").await;
    }
    let coordinator = names::coordinator("new");
    assert!(space.pods().get_opt(&coordinator).await.unwrap().is_none());

    change(&space, &user, &rules, true).await;
    let healed =
        |s: &DIJobStatus| s.reason.is_none() && s.collectors_ready.as_deref() == Some("2/2");
    space.until("before", "it is whole again", healed).await;
    assert_eq!(space.until_settled("new").await.reason, None);
    manager.stop().await;
}
