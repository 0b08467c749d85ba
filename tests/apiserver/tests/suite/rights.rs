//! A right that an administrator takes from the reconciler, and gives back.

use di_api::{DIJobStatus, names};
use di_apiserver_tests::{
    Came, Job, Kubelet, Manager, Proxy, Space, Watches, dry, eventually, exit, template,
};
use k8s_openapi::api::{
    core::v1::Pod,
    rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule},
};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::{life::check_pace, phases::Phases};

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

/// Gives a user these rights.
async fn change(space: &Space, user: &str, rules: &[PolicyRule]) {
    let api: Api<ClusterRole> = Api::all(space.client.clone());
    let patch = Patch::Merge(json!({ "rules": rules }));
    let params = PatchParams::default();
    api.patch(user, &params, &patch).await.unwrap();
}

/// Waits until a user may create pods, or may not.
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

/// The same without what may be done to pods by these verbs.
fn without(verbs: &[&str], rules: &[PolicyRule]) -> Vec<PolicyRule> {
    let mut rules = rules.to_vec();
    for rule in &mut rules {
        let resources = rule.resources.get_or_insert_default();
        if resources.iter().any(|resource| resource == "pods") {
            rule.verbs.retain(|verb| !verbs.contains(&verb.as_str()));
        }
    }
    rules
}

/// Rights that can be changed, and a manager that has them.
struct Granted {
    space: Space,
    user: String,
    rules: Vec<PolicyRule>,
    proxy: Proxy,
    manager: Manager,
    phases: Phases,
}

impl Granted {
    async fn start() -> Self {
        let space = Space::new().await;
        let user = format!("{}-manager", space.namespace);
        let rules = grant(&space, &user).await;
        until_in_force(&space, &user, true).await;
        let server = space.server;
        let proxy = Proxy::start(server.narrow_client_of(&user, "manager", &space.namespace));
        let manager = Manager::start(proxy.client());
        let phases = Phases::of(&space);
        Self {
            space,
            user,
            rules,
            proxy,
            manager,
            phases,
        }
    }

    async fn stop(self) {
        self.manager.stop().await;
        self.phases.check().await;
        check_pace("without a right", &self.proxy.came());
    }
}

#[tokio::test]
async fn a_right_that_is_withdrawn_is_told_of_and_what_waited_for_it_follows_when_it_is_back() {
    let granted = Granted::start().await;
    let (space, user, rules) = (&granted.space, &granted.user, &granted.rules);
    let _kubelet = Kubelet::running(space);
    space.create(&Job::new("before", 2)).await;
    let settled = space.until_settled("before").await;

    change(space, user, &without(&["create"], rules)).await;
    until_in_force(space, user, false).await;
    exit(&space.pods(), &settled.plan[0].name, 1).await;
    space.create(&Job::new("new", 1)).await;
    let forbidden = |s: &DIJobStatus| {
        let told = s.conditions.iter().find(|c| c.type_ == "ReplicasReady");
        s.reason.as_deref() == Some("Forbidden")
            && told.is_some_and(|told| told.reason == "Forbidden" && told.message.contains(user))
    };
    for job in ["before", "new"] {
        space.until(job, "it is told of", &forbidden).await;
        space.until_event(job, "Forbidden").await;
    }
    let coordinator = names::coordinator("new");
    assert!(space.pods().get_opt(&coordinator).await.unwrap().is_none());

    change(space, user, rules).await;
    let healed =
        |s: &DIJobStatus| s.reason.is_none() && s.collectors_ready.as_deref() == Some("2/2");
    space.until("before", "it is whole again", healed).await;
    assert_eq!(space.until_settled("new").await.reason, None);
    granted.stop().await;
}

#[tokio::test]
async fn a_manager_that_may_not_look_at_pods_for_a_while_goes_on_once_it_may() {
    let granted = Granted::start().await;
    let (space, user, rules) = (&granted.space, &granted.user, &granted.rules);
    let _kubelet = Kubelet::running(space);
    space.create(&Job::new("before", 2)).await;
    let settled = space.until_settled("before").await;

    change(space, user, &without(&["list", "watch"], rules)).await;
    let pods: Api<Pod> = Api::namespaced(space.server.client_of(user), &space.namespace);
    eventually("pods are not listed any more", async || {
        let listed = pods.list(&ListParams::default()).await;
        listed.map_or(Ok(()), |_| Err(String::new()))
    })
    .await;
    // A server lets the watches that it has go on.
    let asks = |came: &Came| came.path().ends_with("/pods") && (came.is_list() || came.is_watch());
    let asked = || granted.proxy.came().into_iter().filter(asks).count();
    granted.proxy.watches(Watches::Expired);
    let before = asked();
    eventually("it asks for them all over", async || {
        let asked = asked();
        (asked > before).then_some(()).ok_or(asked.to_string())
    })
    .await;
    granted.proxy.watches(Watches::Flow);
    exit(&space.pods(), &settled.plan[0].name, 1).await;
    space.create(&Job::new("new", 1)).await;
    // It tries again, and again in vain.
    let before = asked();
    eventually("it tries again", async || {
        let asked = asked();
        (asked > before + 2).then_some(()).ok_or(asked.to_string())
    })
    .await;

    change(space, user, rules).await;
    let is_whole = |s: &DIJobStatus| {
        let lost = s.plan.iter().find(|entry| !entry.is_wanted());
        lost.is_some() && s.collectors_ready.as_deref() == Some("2/2")
    };
    space.until("before", "it is whole again", is_whole).await;
    space.until_settled("new").await;
    granted.stop().await;
}
