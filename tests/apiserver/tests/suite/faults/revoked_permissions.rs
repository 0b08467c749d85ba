//! RBAC permissions that an administrator revokes from the manager and grants again.

use di_api::{DIJobStatus, Phase, names};
use di_apiserver_tests::{
    Job, Kubelet, Manager, Proxy, RecordedRequest, Space, WatchMode, eventually, exit,
    wait_for_objects,
};
use futures::future::join_all;
use k8s_openapi::api::{
    authorization::v1::SubjectAccessReview,
    rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule},
};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    faults::job_run::check_watch_rate, faults::phase_monitor::PhaseMonitor,
    two_managers::pod_create_counts,
};

/// Creates a ClusterRole with the manager's rules for one user, so that no other test is affected.
async fn grant_manager_role(space: &Space, user: &str) -> Vec<PolicyRule> {
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

/// Replaces the rules of a user's role.
async fn set_rules(space: &Space, user: &str, rules: &[PolicyRule]) {
    let api: Api<ClusterRole> = Api::all(space.client.clone());
    let patch = Patch::Merge(json!({ "rules": rules }));
    let params = PatchParams::default();
    api.patch(user, &params, &patch).await.unwrap();
}

/// Verbs on a resource.
#[derive(Debug)]
struct Permission {
    group: &'static str,
    resource: &'static str,
    verbs: &'static [&'static str],
}

impl Permission {
    const fn new(
        group: &'static str,
        resource: &'static str,
        verbs: &'static [&'static str],
    ) -> Self {
        Self {
            group,
            resource,
            verbs,
        }
    }

    /// Resource and subresource.
    fn kind_and_subresource(&self) -> (&str, &str) {
        let parts = self.resource.split_once('/');
        parts.unwrap_or((self.resource, ""))
    }

    /// Whether a request needs this permission.
    fn is_used_by(&self, request: &RecordedRequest) -> bool {
        let asks = match self.verbs[0] {
            "create" => request.method == "POST",
            "delete" => request.method == "DELETE",
            "patch" => request.method == "PATCH",
            _ => request.is_list() || request.is_watch(),
        };
        let (kind, sub) = self.kind_and_subresource();
        asks && request.path().contains(&format!("/{kind}")) && request.path().ends_with(sub)
    }

    /// Waits until this number of requests has used the permission.
    async fn wait_until_used(&self, proxy: &Proxy, times: usize) {
        let wanted = || {
            let requests = proxy.requests().into_iter();
            requests.filter(|request| self.is_used_by(request)).count()
        };
        let before = wanted();
        eventually(&format!("{self:?} is wanted"), async || {
            let wanted = wanted() - before;
            (wanted >= times).then_some(()).ok_or(wanted.to_string())
        })
        .await;
    }

    /// Waits until the client behind this proxy has tried and failed to use the permission.
    async fn wait_until_rejected(&self, proxy: &Proxy) {
        if self.verbs.contains(&"watch") {
            // The API server keeps open watches despite revoked permissions, so expire them.
            proxy.set_watches_of(self.resource, WatchMode::Expired);
            self.wait_until_used(proxy, 1).await;
            proxy.set_watches(WatchMode::Flow);
        }
        self.wait_until_used(proxy, 2).await;
    }
}

const CREATE_PODS: Permission = Permission::new("", "pods", &["create"]);

/// Waits until a user has the permission, or has lost it.
async fn wait_until_in_force(space: &Space, user: &str, permission: &Permission, has: bool) {
    let (kind, sub) = permission.kind_and_subresource();
    let review: SubjectAccessReview = serde_json::from_value(json!({"spec": {
        "user": user,
        "resourceAttributes": {
            "namespace": space.namespace, "verb": permission.verbs[0],
            "group": permission.group, "resource": kind, "subresource": sub,
        },
    }}))
    .unwrap();
    let api: Api<SubjectAccessReview> = Api::all(space.client.clone());
    eventually("the permission is in force", async || {
        let asked = api.create(&PostParams::default(), &review).await;
        let status = asked.unwrap().status.unwrap();
        if status.allowed == has {
            Ok(())
        } else {
            Err(format!("{status:?}"))
        }
    })
    .await;
}

/// Returns the rules without a permission.
fn rules_without(permission: &Permission, rules: &[PolicyRule]) -> Vec<PolicyRule> {
    let each = rules.iter().flat_map(|rule| {
        let resources = rule.resources.iter().flatten();
        resources.map(|one| PolicyRule {
            resources: Some(vec![one.clone()]),
            ..rule.clone()
        })
    });
    let rest = each.map(|mut rule| {
        if rule
            .resources
            .iter()
            .flatten()
            .any(|one| one == permission.resource)
        {
            rule.verbs
                .retain(|verb| !permission.verbs.contains(&verb.as_str()));
        }
        rule
    });
    // A rule without verbs is invalid.
    rest.filter(|rule| !rule.verbs.is_empty()).collect()
}

/// A manager whose permissions the test can change.
struct ManagerWithPermissions {
    space: Space,
    user: String,
    rules: Vec<PolicyRule>,
    proxy: Proxy,
    manager: Manager,
    phases: PhaseMonitor,
}

impl ManagerWithPermissions {
    async fn start() -> Self {
        let space = Space::new().await;
        let user = format!("{}-manager", space.namespace);
        let rules = grant_manager_role(&space, &user).await;
        wait_until_in_force(&space, &user, &CREATE_PODS, true).await;
        let server = space.server;
        let proxy = Proxy::start(server.namespaced_client_of(&user, "manager", &space.namespace));
        let manager = Manager::start(proxy.client());
        let phases = PhaseMonitor::start(&space);
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
        check_watch_rate("without a permission", &self.proxy.requests());
    }
}

#[tokio::test]
async fn revoked_pod_create_permission_is_reported_until_restored() {
    let granted = ManagerWithPermissions::start().await;
    let (space, user, rules) = (&granted.space, &granted.user, &granted.rules);
    let _kubelet = Kubelet::running(space);
    space.create(&Job::new("before", 2)).await;
    let settled = space.until_settled("before").await;

    set_rules(space, user, &rules_without(&CREATE_PODS, rules)).await;
    wait_until_in_force(space, user, &CREATE_PODS, false).await;
    exit(&space.pods(), &settled.plan[0].name, 1).await;
    space.create(&Job::new("new", 1)).await;
    let forbidden = |s: &DIJobStatus| {
        let reported = s.conditions.iter().find(|c| c.type_ == "ReplicasReady");
        s.reason.as_deref() == Some("Forbidden")
            && reported.is_some_and(|reported| {
                reported.reason == "Forbidden" && reported.message.contains(user)
            })
    };
    for job in ["before", "new"] {
        space.until(job, "Forbidden is reported", &forbidden).await;
        space.until_event(job, "Forbidden").await;
    }
    let coordinator = names::coordinator_name("new");
    assert!(space.pods().get_opt(&coordinator).await.unwrap().is_none());

    set_rules(space, user, rules).await;
    let healed =
        |s: &DIJobStatus| s.reason.is_none() && s.collectors_ready.as_deref() == Some("2/2");
    space
        .until("before", "all collectors are ready again", healed)
        .await;
    assert_eq!(space.until_settled("new").await.reason, None);
    granted.stop().await;
}

#[tokio::test]
async fn manager_continues_after_pod_read_permission_is_restored() {
    let granted = ManagerWithPermissions::start().await;
    let (space, user, rules) = (&granted.space, &granted.user, &granted.rules);
    let _kubelet = Kubelet::running(space);
    space.create(&Job::new("before", 2)).await;
    let settled = space.until_settled("before").await;

    let looks = Permission::new("", "pods", &["list", "watch"]);
    set_rules(space, user, &rules_without(&looks, rules)).await;
    wait_until_in_force(space, user, &looks, false).await;
    looks.wait_until_rejected(&granted.proxy).await;
    exit(&space.pods(), &settled.plan[0].name, 1).await;
    space.create(&Job::new("new", 1)).await;
    // The manager keeps trying without success.
    looks.wait_until_used(&granted.proxy, 3).await;

    set_rules(space, user, rules).await;
    let is_whole = |s: &DIJobStatus| {
        let lost = s.plan.iter().find(|entry| !entry.is_wanted());
        lost.is_some() && s.collectors_ready.as_deref() == Some("2/2")
    };
    space
        .until("before", "all collectors are ready again", is_whole)
        .await;
    space.until_settled("new").await;
    granted.stop().await;
}

/// All permissions that the manager needs during the lifetime of a job.
const PERMISSIONS: [Permission; 12] = [
    CREATE_PODS,
    Permission::new("", "pods", &["delete"]),
    Permission::new("", "pods", &["patch"]),
    Permission::new("", "services", &["list", "watch"]),
    Permission::new("", "services", &["create"]),
    Permission::new("", "services", &["delete"]),
    Permission::new(names::GROUP, "dijobs", &["list", "watch"]),
    Permission::new(names::GROUP, "dijobs", &["delete"]),
    Permission::new(names::GROUP, "dijobs/status", &["patch"]),
    Permission::new(names::GROUP, "aggregatorconfigs", &["list", "watch"]),
    Permission::new("", "nodes", &["list", "watch"]),
    Permission::new("events.k8s.io", "events", &["create", "patch"]),
];

/// Replaces a collector, exceeds the deadline, and lets the TTL delete the job.
async fn complete_job(space: &Space, settled: &DIJobStatus) {
    let set = async |spec: Value| {
        let change = Patch::Merge(json!({ "spec": spec }));
        let params = PatchParams::default();
        space.jobs().patch("job", &params, &change).await.unwrap();
    };
    let (failed, coordinator) = (settled.plan[0].name.clone(), names::coordinator_name("job"));
    exit(&space.pods(), &failed, 1).await;
    let is_replaced = |s: &DIJobStatus| {
        let lost = s.plan.iter().find(|entry| entry.name == failed);
        // Wait until no create is pending: an ended job retries none.
        lost.is_some_and(|lost| !lost.is_wanted())
            && s.collectors_ready.as_deref() == Some("2/2")
            && s.reason.is_none()
    };
    space
        .until("job", "a collector is replaced", is_replaced)
        .await;
    set(json!({"activeDeadlineSeconds": 1})).await;
    space.until_phase("job", Phase::Failed).await;
    eventually("the coordinator has a deadline", async || {
        let pod = space.pods().get(&coordinator).await.unwrap();
        let reported = pod.spec.unwrap().active_deadline_seconds.is_some();
        reported.then_some(()).ok_or_else(String::new)
    })
    .await;
    exit(&space.pods(), &coordinator, 137).await;
    wait_for_objects("services", &[], async || space.services_of("job").await).await;
    let left = [failed, coordinator];
    wait_for_objects("pods", &left, async || space.pods_of("job").await).await;
    set(json!({"ttlSecondsAfterFinished": 0})).await;
    eventually("the TTL has deleted the job", async || {
        let job = space.jobs().get_opt("job").await.unwrap();
        job.map_or(Ok(()), |job| Err(format!("{:?}", job.status)))
    })
    .await;
}

/// Runs a job without a permission until a request needs it, and then grants it again.
async fn complete_job_without(permission: &Permission) {
    let granted = ManagerWithPermissions::start().await;
    let (space, user, rules) = (granted.space.clone(), &granted.user, &granted.rules);
    let _kubelet = Kubelet::running(&space);
    space.create(&Job::new("job", 2)).await;
    let settled = space.until_settled("job").await;
    set_rules(&space, user, &rules_without(permission, rules)).await;
    wait_until_in_force(&space, user, permission, false).await;
    let given_back = async {
        permission.wait_until_rejected(&granted.proxy).await;
        set_rules(&space, user, rules).await;
    };
    tokio::join!(complete_job(&space, &settled), given_back);
    granted.stop().await;
    // The coordinator, two collectors and one replacement.
    let made = pod_create_counts(&space).await;
    let once = made.values().all(|times| *times == 1);
    assert!(made.len() == 4 && once, "{permission:?}: {made:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn job_completes_after_any_permission_is_restored() {
    join_all(PERMISSIONS.iter().map(complete_job_without)).await;
}
