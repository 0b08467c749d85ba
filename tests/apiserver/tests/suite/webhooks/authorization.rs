//! Authorization of job authors: the API server calls the webhooks for users with different
//! permissions.
//! See docs/decisions/0010.

use di_apiserver_tests::{Space, Webhooks, template};
use k8s_openapi::api::{
    core::v1::Namespace,
    rbac::v1::{ClusterRoleBinding, Role, RoleBinding},
};
use kube::{
    Api, Client, Error,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use serde_json::{Value, json};

/// May write jobs and AggregatorConfigs, and create pods, in this namespace.
const ANN: &str = "ann";
/// May write jobs and AggregatorConfigs in this namespace, but create no pods.
const BOB: &str = "bob";
/// Cluster administrator.
const EVE: &str = "eve";

fn api(
    client: Client,
    namespace: &str,
    version: &str,
    kind: &str,
    plural: &str,
) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("diengine.opendilab.org", version, kind);
    Api::namespaced_with(
        client,
        namespace,
        &ApiResource::from_gvk_with_plural(&kind, plural),
    )
}

fn jobs(space: &Space, user: &str, version: &str) -> Api<DynamicObject> {
    let client = space.server.client_of(user);
    api(client, &space.namespace, version, "DIJob", "dijobs")
}

fn configs(space: &Space, user: &str, namespace: &str) -> Api<DynamicObject> {
    let client = space.server.client_of(user);
    api(
        client,
        namespace,
        "v1alpha2",
        "AggregatorConfig",
        "aggregatorconfigs",
    )
}

fn job(version: &str, name: &str, template: &Value) -> DynamicObject {
    serde_json::from_value(json!({
        "apiVersion": format!("diengine.opendilab.org/{version}"),
        "kind": "DIJob",
        "metadata": {"name": name},
        "spec": {
            "coordinator": {"template": template},
            "collector": {"template": template, "replicas": 1},
        },
    }))
    .unwrap()
}

fn config(image: &str) -> DynamicObject {
    let container = json!({"name": "di-container", "image": image});
    serde_json::from_value(json!({
        "apiVersion": "diengine.opendilab.org/v1alpha2",
        "kind": "AggregatorConfig",
        "metadata": {"name": "aggregator-config"},
        "spec": {"aggregator": {"template": {"spec": {"containers": [container]}}}},
    }))
    .unwrap()
}

fn binding(user: &str, kind: &str, role: &str) -> Value {
    json!({
        "metadata": {"name": format!("{user}-{role}")},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    })
}

async fn bind_role(space: &Space, namespace: &str, user: &str, role: &str) {
    let api: Api<RoleBinding> = Api::namespaced(space.client.clone(), namespace);
    let binding = serde_json::from_value(binding(user, "Role", role)).unwrap();
    api.create(&PostParams::default(), &binding).await.unwrap();
}

async fn create_roles(space: &Space, namespace: &str) {
    let api: Api<Role> = Api::namespaced(space.client.clone(), namespace);
    let all = ["get", "create", "update", "patch"];
    for (name, group, resources) in [
        (
            "jobs",
            "diengine.opendilab.org",
            json!(["dijobs", "dijobs/scale", "aggregatorconfigs"]),
        ),
        ("pods", "", json!(["pods"])),
    ] {
        let role = json!({
            "metadata": {"name": name},
            "rules": [{"apiGroups": [group], "resources": resources, "verbs": all}],
        });
        let role = serde_json::from_value(role).unwrap();
        api.create(&PostParams::default(), &role).await.unwrap();
    }
}

/// Creates the users and their permissions. User names contain the namespace, so that cluster-wide
/// permissions affect one test only.
async fn start_with_users() -> (Space, Webhooks, impl Fn(&str) -> String) {
    let space = Space::new().await;
    let namespace = space.namespace.clone();
    let user = move |name: &str| format!("{name}@{namespace}");
    create_roles(&space, &space.namespace).await;
    for (name, role) in [(ANN, "jobs"), (ANN, "pods"), (BOB, "jobs")] {
        bind_role(&space, &space.namespace, &user(name), role).await;
    }
    let api: Api<ClusterRoleBinding> = Api::all(space.client.clone());
    let everything = serde_json::from_value(binding(&user(EVE), "ClusterRole", "cluster-admin"));
    api.create(&PostParams::default(), &everything.unwrap())
        .await
        .unwrap();
    let webhooks = Webhooks::start(&space).await;
    (space, webhooks, user)
}

fn forbidden_message<T: std::fmt::Debug>(answer: Result<T, Error>) -> String {
    match answer {
        Err(Error::Api(status)) => {
            assert_eq!(
                (status.code, status.reason.as_str()),
                (403, "Forbidden"),
                "{status:?}"
            );
            status.message
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn template_without_pod_create_permission_is_rejected() {
    let (space, webhooks, user) = start_with_users().await;
    let with = |spec: Value| {
        let mut template = template();
        template["spec"]
            .as_object_mut()
            .unwrap()
            .extend(spec.as_object().unwrap().clone());
        template
    };
    let privileged =
        json!([{"name": "di-container", "image": "i", "securityContext": {"privileged": true}}]);
    let templates = [
        ("plain", template()),
        (
            "host-path",
            with(json!({"volumes": [{"name": "root", "hostPath": {"path": "/"}}]})),
        ),
        ("privileged", with(json!({"containers": privileged}))),
        (
            "another-account",
            with(json!({"serviceAccountName": "di-orchestrator"})),
        ),
        (
            "host-network",
            with(json!({"hostNetwork": true, "hostPID": true, "nodeName": "master"})),
        ),
    ];
    for version in ["v1alpha1", "v1alpha2"] {
        for (name, template) in &templates {
            let name = format!("{name}-{version}");
            let job = job(version, &name, template);
            for dry_run in [true, false] {
                let params = PostParams {
                    dry_run,
                    ..PostParams::default()
                };
                let jobs = jobs(&space, &user(BOB), version);
                let message = forbidden_message(jobs.create(&params, &job).await);
                for part in [
                    format!("dijobs.diengine.opendilab.org {name:?} is forbidden"),
                    format!("User {:?} cannot create resource \"pods\"", user(BOB)),
                    format!(
                        "ask for a Role in the namespace {:?} that allows creating pods",
                        space.namespace
                    ),
                ] {
                    assert!(message.contains(&part), "{part} not in {message}");
                }
            }
            assert!(space.jobs().get_opt(&name).await.unwrap().is_none());
            let jobs = jobs(&space, &user(ANN), version);
            jobs.create(
                &PostParams {
                    dry_run: true,
                    ..PostParams::default()
                },
                &job,
            )
            .await
            .unwrap();
            jobs.create(&PostParams::default(), &job).await.unwrap();
        }
    }
    // A deletion timestamp in a create request must not skip the check.
    let mut job = job("v1alpha2", "going", &template());
    job.metadata.deletion_timestamp = space
        .jobs()
        .get("plain-v1alpha2")
        .await
        .unwrap()
        .metadata
        .creation_timestamp;
    forbidden_message(
        jobs(&space, &user(BOB), "v1alpha2")
            .create(&PostParams::default(), &job)
            .await,
    );
    webhooks.stop().await;
}

#[tokio::test]
async fn template_change_needs_pod_create_permission() {
    let (space, webhooks, user) = start_with_users().await;
    for version in ["v1alpha1", "v1alpha2"] {
        let made = job(version, version, &template());
        jobs(&space, &user(ANN), version)
            .create(&PostParams::default(), &made)
            .await
            .unwrap();
        let params = PatchParams::default();
        let dry = params.clone().dry_run();
        let (ann, bob) = (
            jobs(&space, &user(ANN), version),
            jobs(&space, &user(BOB), version),
        );

        let mut root = template();
        root["spec"]["hostPID"] = true.into();
        for spec in [
            json!({"collector": {"template": root}}),
            json!({"learner": {"template": template()}}),
            json!({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}),
            json!({"priorityClassName": "system-node-critical"}),
        ] {
            let patch = Patch::Merge(json!({"spec": spec}));
            forbidden_message(bob.patch(version, &params, &patch).await);
            forbidden_message(bob.patch(version, &dry, &patch).await);
            ann.patch(version, &dry, &patch).await.unwrap();
        }
        for patch in [
            json!({"spec": {"collector": {"replicas": 3}}}),
            json!({"spec": {"collector": {"groups": [{"name": "big", "replicas": 1, "resources": {"cpus": "2"}}]}}}),
            json!({"spec": {"suspend": true}}),
            json!({"spec": {"ttlSecondsAfterFinished": 9, "backoffLimit": 2, "cleanPodPolicy": "All"}}),
            json!({"metadata": {"labels": {"team": "rl"}, "finalizers": ["tests.opendilab.org/hold"]}}),
            json!({"metadata": {"finalizers": []}}),
        ] {
            bob.patch(version, &params, &Patch::Merge(&patch))
                .await
                .unwrap();
        }
        let scale = Patch::Merge(json!({"spec": {"replicas": 5}}));
        bob.patch_scale(version, &params, &scale).await.unwrap();
        let whole = bob.get(version).await.unwrap();
        assert_eq!(whole.data["spec"]["collector"]["replicas"], 5);
        bob.replace(version, &PostParams::default(), &whole)
            .await
            .unwrap();
        assert_eq!(whole.data["spec"]["volumes"], Value::Null);
    }
    webhooks.stop().await;
}

#[tokio::test]
async fn revoked_permission_is_rejected_after_cache_expires() {
    let (space, webhooks, user) = start_with_users().await;
    let ann = jobs(&space, &user(ANN), "v1alpha2");
    let job = |name: &str| job("v1alpha2", name, &template());
    ann.create(&PostParams::default(), &job("first"))
        .await
        .unwrap();
    let api: Api<RoleBinding> = Api::namespaced(space.client.clone(), &space.namespace);
    api.delete(&format!("{}-pods", user(ANN)), &DeleteParams::default())
        .await
        .unwrap();
    // The API server learns of the change by a watch, and the webhooks cache the old result for a
    // second.
    let mut tries = 0;
    di_apiserver_tests::eventually("ann is refused", async || {
        tries += 1;
        let answer = ann
            .create(&PostParams::default(), &job(&format!("later-{tries}")))
            .await;
        answer.map_or(Ok(()), |_| Err("created".to_owned()))
    })
    .await;
    webhooks.stop().await;
}

#[tokio::test]
async fn system_aggregator_config_needs_cluster_admin() {
    let (space, webhooks, user) = start_with_users().await;
    let params = PostParams::default();
    for (name, allowed) in [(BOB, false), (ANN, true)] {
        let api = configs(&space, &user(name), &space.namespace);
        let answer = api.create(&params, &config("i")).await;
        if allowed {
            answer.unwrap();
        } else {
            forbidden_message(answer);
        }
    }

    let system = "di-system";
    let namespaces: Api<Namespace> = Api::all(space.client.clone());
    assert!(namespaces.get_opt(system).await.unwrap().is_some());
    webhooks.add_namespace(system).await;
    create_roles(&space, system).await;
    // The permissions of a namespace administrator are not sufficient here.
    for role in ["jobs", "pods"] {
        bind_role(&space, system, &user(ANN), role).await;
    }
    let (ann, eve) = (
        configs(&space, &user(ANN), system),
        configs(&space, &user(EVE), system),
    );
    di_apiserver_tests::eventually("ann is refused", async || {
        let dry = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        match ann.create(&dry, &config("i")).await {
            Err(Error::Api(status))
                if status.code == 403 && status.message.contains("at the cluster scope") =>
            {
                Ok(())
            }
            // Until the API server has seen the label and the permissions, it rejects her itself.
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    eve.create(&params, &config("i")).await.unwrap();
    let changed = Patch::Merge(config("other"));
    forbidden_message(
        ann.patch("aggregator-config", &PatchParams::default(), &changed)
            .await,
    );
    let labelled = Patch::Merge(json!({"metadata": {"labels": {"team": "rl"}}}));
    ann.patch("aggregator-config", &PatchParams::default(), &labelled)
        .await
        .unwrap();
    eve.patch("aggregator-config", &PatchParams::default(), &changed)
        .await
        .unwrap();
    eve.delete("aggregator-config", &DeleteParams::default())
        .await
        .unwrap();
    webhooks.stop().await;
}

#[tokio::test]
async fn manager_and_endpoint_writes_pass_the_webhooks() {
    let (space, webhooks, user) = start_with_users().await;
    let manager = space.manager("manager");
    let made = job("v1alpha2", "runs", &template());
    jobs(&space, &user(ANN), "v1alpha2")
        .create(&PostParams::default(), &made)
        .await
        .unwrap();
    di_apiserver_tests::eventually("the pods exist", async || {
        let pods = space.pods_of("runs").await;
        if pods.len() == 2 {
            Ok(())
        } else {
            Err(format!("{:?}", pods.keys()))
        }
    })
    .await;
    // The endpoint lowers declared counts; its service account has no permission to create jobs.
    let account = "system:serviceaccount:di-system:di-orchestrator";
    let patch = Patch::Merge(json!({"spec": {"collector": {"replicas": 0}}}));
    jobs(&space, account, "v1alpha1")
        .patch("runs", &PatchParams::default(), &patch)
        .await
        .unwrap();
    manager.stop().await;
    webhooks.stop().await;
}
