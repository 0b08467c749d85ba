//! The replica endpoint on a real cluster, called with tokens.

use di_api::{DIJob, DIJobStatus, Origin};
use di_e2e::{
    Endpoint, Namespace, Reply, SYSTEM, create_account, eventually, exec, idle_job, is_running,
    job, logs_so_far, main_container, owned_pods, owned_services, send_http, status,
};
use k8s_openapi::api::{
    apps::v1::Deployment,
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::{Pod, ServiceAccount},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, ObjectMeta, PostParams},
};
use serde_json::{Value, json};

/// Creates a service account with these verbs on jobs, and returns its token for the endpoint.
async fn create_token(ns: &Namespace, name: &str, verbs: &[&str]) -> String {
    let rule =
        json!({"apiGroups": ["diengine.opendilab.org"], "resources": ["dijobs"], "verbs": verbs});
    create_account(ns, name, &json!([rule])).await;
    let request = TokenRequest {
        spec: Some(TokenRequestSpec {
            audiences: Some(vec!["di-server".into()]),
            expiration_seconds: Some(600),
            ..TokenRequestSpec::default()
        }),
        ..TokenRequest::default()
    };
    let accounts: Api<ServiceAccount> = ns.api();
    let answer = accounts
        .create_token_request(name, &PostParams::default(), &request)
        .await
        .unwrap();
    answer.status.unwrap().token.unwrap()
}

fn urls(reply: &Reply, part: &str) -> Vec<String> {
    assert_eq!(
        (reply.status, &reply.body["success"]),
        (200, &json!(true)),
        "{reply:?}"
    );
    serde_json::from_value(reply.body["data"][part].clone()).unwrap()
}

#[tokio::test]
async fn replicas_are_added_listed_failed_and_removed() {
    Namespace::with("endpoint", |ns| async move {
        ns.submit(&idle_job("elastic", 1, 0)).await;
        let run = |pods: &Vec<Pod>| pods.len() == 2 && pods.iter().all(is_running);
        eventually("running", || owned_pods(&ns, "elastic"), run).await;
        let endpoint = Endpoint::new(ns.client.clone(), Some(create_token(&ns, "engineer", &["get", "update"]).await));
        let who = json!({"namespace": ns.name, "coordinator": "elastic-coordinator"});
        let nothing = json!({});
        let with = |part: Value| {
            let mut body = who.clone();
            body.as_object_mut().unwrap().extend(part.as_object().unwrap().clone());
            body
        };
        let list = format!("/v1alpha1/replicas?namespace={}&coordinator=elastic-coordinator", ns.name);

        // The API server learns permissions with a delay.
        eventually("let in", || endpoint.call("GET", &list, &nothing), |reply| reply.status == 200).await;
        let added = endpoint
            .call("POST", "/v1alpha1/replicas", &with(json!({"collectors": {"replicas": 2, "cpus": "20m"}, "learners": {"gpus": "0", "replicas": 1}})))
            .await;
        assert_eq!((urls(&added, "collectors").len(), urls(&added, "learners").len()), (2, 1));
        let listed = eventually("listed", || endpoint.call("GET", &list, &nothing), |r| urls(r, "collectors").len() == 3).await;
        for url in urls(&added, "collectors") {
            assert!(urls(&listed, "collectors").contains(&url), "{url}");
        }
        let pods = eventually("all there", || owned_pods(&ns, "elastic"), |pods| pods.len() == 5).await;
        let asked = urls(&added, "collectors")[0].split('.').next().unwrap().to_owned();
        let requests = |pod: &Pod| pod.spec.as_ref().unwrap().containers[0].resources.clone().unwrap().requests.unwrap();
        let with_cpu = pods.iter().find(|pod| pod.name_any() == asked).unwrap();
        assert_eq!(requests(with_cpu)["cpu"].0, "20m");

        let failed = endpoint.call("POST", "/v1alpha1/replicas/failed", &with(json!({"collectors": [asked], "learners": []}))).await;
        let fresh = urls(&failed, "collectors");
        assert_eq!(fresh.len(), 1);
        let listed = eventually("swapped", || endpoint.call("GET", &list, &nothing), |r| urls(r, "collectors").contains(&fresh[0])).await;
        assert!(!urls(&listed, "collectors").iter().any(|url| url.starts_with(&asked)));
        eventually("old one gone", || owned_pods(&ns, "elastic"), |pods| !pods.iter().any(|pod| pod.name_any() == asked)).await;

        // Two requested replicas, and then the declared one.
        let removed = endpoint.call("DELETE", "/v1alpha1/replicas", &with(json!({"collectors": {"replicas": 3}}))).await;
        assert_eq!(urls(&removed, "collectors").len(), 3);
        eventually("gone", || owned_pods(&ns, "elastic"), |pods| pods.len() == 2).await;
        eventually("services too", || owned_services(&ns, "elastic"), |services| services.len() == 2).await;
        let job = ns.api::<DIJob>().get("elastic").await.unwrap();
        assert_eq!(job.spec.collector.unwrap().replicas, 0, "the declared count is lowered with it");
        let requested = |status: &DIJobStatus| status.plan.iter().all(|entry| entry.origin == Origin::Requested);
        eventually("planned no more", || status(&ns, "elastic"), requested).await;

        // The AggregatorConfig is missing, which is a transient error.
        let waits = endpoint.call("POST", "/v1alpha1/replicas", &with(json!({"learners": {"replicas": 1, "gpus": 2}}))).await;
        assert_eq!((waits.status, &waits.body["success"]), (200, &json!(false)), "{waits:?}");
        assert!(waits.body["message"].as_str().unwrap().contains("AggregatorConfig"), "{waits:?}");

        let anonymous = endpoint.call("GET", &format!("/v1alpha1/replicas?namespace={}&coordinator=unknown-coordinator", ns.name), &json!({})).await;
        assert_eq!((anonymous.status, &anonymous.body["success"]), (404, &json!(false)), "{anonymous:?}");
    })
    .await;
}

#[tokio::test]
async fn callers_without_permissions_are_rejected() {
    Namespace::with("refusing", |ns| async move {
        ns.submit(&idle_job("guarded", 1, 0)).await;
        // While a pod has no IP yet, the endpoint does not reject unknown source IPs.
        let run = |pods: &Vec<Pod>| pods.len() == 2 && pods.iter().all(is_running);
        eventually("running", || owned_pods(&ns, "guarded"), run).await;
        let body = json!({"namespace": ns.name, "coordinator": "guarded-coordinator", "collectors": {"replicas": 1}});
        let anonymous = Endpoint::new(ns.client.clone(), None);
        // The endpoint learns pod IPs with a delay.
        let stranger = |reply: &Reply| reply.status == 401;
        eventually("not let in", || anonymous.call("POST", "/v1alpha1/replicas", &body), stranger).await;
        let reader = Endpoint::new(ns.client.clone(), Some(create_token(&ns, "reader", &["get"]).await));
        assert_eq!(reader.call("POST", "/v1alpha1/replicas", &body).await.status, 403);
        let nothing = json!({});
        let list = format!("/v1alpha1/replicas?namespace={}&coordinator=guarded-coordinator", ns.name);
        eventually("read", || reader.call("GET", &list, &nothing), |reply| reply.status == 200).await;
        assert_eq!(ns.api::<DIJob>().list(&ListParams::default()).await.unwrap().items.len(), 1);
    })
    .await;
}

/// Starts the installed endpoint in a separate pod without a Service, with one more flag.
async fn create_pod_with_flag(pods: &Api<Pod>, name: &str, flag: &str) {
    let deployments: Api<Deployment> = Api::namespaced(pods.clone().into_client(), SYSTEM);
    let installed = deployments.get("di-webhook").await.unwrap();
    let mut spec = installed.spec.template.spec.unwrap();
    spec.containers.retain(|one| one.name == "replicas");
    let args = spec.containers[0].args.as_mut().unwrap();
    args.push(flag.to_owned());
    let pod = Pod {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        spec: Some(spec),
        status: None,
    };
    pods.create(&PostParams::default(), &pod).await.unwrap();
}

#[tokio::test]
async fn anonymous_access_needs_allow_anonymous_flag() {
    Namespace::with("anonymous", |ns| async move {
        ns.submit(&idle_job("open", 0, 0)).await;
        let pods: Api<Pod> = Api::namespaced(ns.client.clone(), SYSTEM);
        create_pod_with_flag(&pods, &ns.name, "--allow-anonymous").await;
        let body = json!({"namespace": ns.name, "coordinator": "open-coordinator", "collectors": {"replicas": 1}});
        let path = "/v1alpha1/replicas";
        let ask = || send_http(&pods, &ns.name, 8080, "POST", path, None, &body);
        let added = |reply: &Option<Reply>| reply.as_ref().is_some_and(|reply| reply.body["success"] == true);
        let reply = eventually("let in", ask, added).await.unwrap();
        assert_eq!(urls(&reply, "collectors").len(), 1);
        pods.delete(&ns.name, &DeleteParams::default()).await.unwrap();

        // While a pod has no IP yet, the endpoint does not reject unknown source IPs.
        let installed = Endpoint::new(ns.client.clone(), None);
        let stranger = |reply: &Reply| reply.status == 401;
        eventually("not let in", || installed.call("POST", path, &body), stranger).await;
        assert_eq!(status(&ns, "open").await.plan.len(), 1);
    })
    .await;
}

/// Returns the response of the endpoint to a GET from inside a pod.
async fn list_from_pod(ns: &Namespace, pod: &str, namespace: &str, coordinator: &str) -> String {
    let url = format!(
        "http://di-server.di-system:8080/v1alpha1/replicas?namespace={namespace}&coordinator={coordinator}"
    );
    exec(ns, pod, &["probe", &url]).await.1
}

#[tokio::test]
async fn pods_are_identified_by_ip_and_change_only_their_job() {
    Namespace::with("addresses", |ns| async move {
        ns.submit(&idle_job("own", 1, 0)).await;
        ns.submit(&idle_job("other", 1, 0)).await;
        // Each endpoint pod learns IPs and replicas with its own delay.
        for (pod, namespace, answer) in [
            ("own-coordinator", &*ns.name, "own-collector-"),
            // A pod may read all jobs of its namespace.
            ("other-coordinator", &ns.name, "own-collector-"),
            ("own-coordinator", "kube-system", "403"),
        ] {
            let ask = || list_from_pod(&ns, pod, namespace, "own-coordinator");
            let description = format!("{pod} asks in {namespace}: {answer}");
            eventually(&description, ask, |said| said.contains(answer)).await;
        }

        // It sends requests for another job, since its environment variable names that one.
        let mut impostor = job("impostor", &["coordinator", "--storage", "/tmp"]);
        let main = main_container(&mut impostor.spec.coordinator.template);
        main["env"] = json!([{"name": "KUBERNETES_POD_NAME", "value": "own-coordinator"}]);
        main["volumeMounts"] = json!([{"name": "tmp", "mountPath": "/tmp"}]);
        impostor.spec.volumes =
            serde_json::from_value(json!([{"name": "tmp", "emptyDir": {}}])).unwrap();
        ns.submit(&impostor).await;
        eventually(
            "the refusal in its log",
            || logs_so_far(&ns, "impostor-coordinator"),
            |log| log.contains("may only change its own job"),
        )
        .await;
        assert!(
            status(&ns, "own")
                .await
                .plan
                .iter()
                .all(|entry| entry.origin == Origin::Declared)
        );
    })
    .await;
}
