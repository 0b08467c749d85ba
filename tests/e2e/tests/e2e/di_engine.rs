//! DI-engine's own client with the endpoint: its state, and that its sync thread stays alive. See
//! `tests/di-engine`.

mod ditask;
mod learner_groups;

use std::collections::BTreeSet;

use di_api::Role;
use di_e2e::{
    ClientState, Coordinator, Namespace, Workload, create_account, eventually, exec_command, job,
    kubectl_di, logs_so_far, main_container, owned_pods, pod_spec, pod_template, status,
};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};

fn pod_of(url: &str) -> &str {
    url.split('.').next().unwrap()
}

fn urls(answer: &Value, part: &str) -> BTreeSet<String> {
    assert_eq!(answer["success"], true, "{answer}");
    serde_json::from_value(answer["data"][part].clone()).unwrap()
}

/// Starts a job whose coordinator requests this number of replicas and is connected to all of them.
async fn start_connected(ns: &Namespace, collectors: usize, learners: usize) -> Coordinator {
    let request = json!({"collectors": {"replicas": collectors}, "learners": {"gpus": "0", "replicas": learners}});
    let coordinator = Workload::new("real", &request, collectors, learners)
        .submit(ns)
        .await;
    let all = |seen: &ClientState| {
        seen.started && (seen.collectors.len(), seen.learners.len()) == (collectors, learners)
    };
    coordinator.wait_until("connected to all", all).await;
    coordinator
}

async fn wait_for_disconnect(ns: &Namespace, url: &str) {
    // DI-engine drops a connection before it sends the disconnect.
    let log = || logs_so_far(ns, pod_of(url));
    eventually("the disconnect", log, |log| log.contains("disconnected")).await;
}

#[tokio::test]
async fn client_gets_requested_replicas_and_exits_cleanly() {
    Namespace::with("start", |ns| async move {
        let coordinator = start_connected(&ns, 2, 1).await;
        let seen = coordinator.state().await;
        assert_eq!(
            seen.collectors,
            coordinator.planned_urls(Role::Collector, 22270).await
        );
        assert_eq!(
            seen.learners,
            coordinator.planned_urls(Role::Learner, 22271).await
        );
        coordinator.close_cleanly().await;
    })
    .await;
}

#[tokio::test]
async fn client_sees_replicas_scaled_by_itself_and_by_user() {
    Namespace::with("scale", |ns| async move {
        let coordinator = start_connected(&ns, 1, 1).await;
        let first = coordinator.state().await.collectors;

        let added = kubectl_di(&ns, &["replicas", "add", "real", "--collectors", "1"]).await;
        assert_eq!(added.code, Some(0), "{added:?}");
        let seen = coordinator.wait_until_soon("a declared one", |seen| seen.collectors.len() == 2).await;
        let declared = &seen.collectors - &first;
        let part = json!({"data": {"collectors": {"replicas": 1}, "learners": {"gpus": "0", "replicas": 1}}});
        let added = coordinator.call("post_replicas", &part).await;
        let (collector, learner) = (urls(&added, "collectors"), urls(&added, "learners"));
        assert_eq!((collector.len(), learner.len()), (1, 1), "{added}");
        let both = |seen: &ClientState| seen.collectors.is_superset(&collector) && seen.learners.is_superset(&learner);
        coordinator.wait_until_soon("requested ones", both).await;

        let removed = coordinator.call("delete_replicas", &json!({"n_collectors": 2, "n_learners": 1})).await;
        let gone = urls(&removed, "collectors");
        assert_eq!(gone, &first | &collector, "requested ones go first");
        let left = |seen: &ClientState| seen.collectors == declared && seen.learners.len() == 1;
        coordinator.wait_until_soon("the declared one only", left).await;
        for url in gone.iter().chain(&urls(&removed, "learners")) {
            wait_for_disconnect(&ns, url).await;
        }

        let removed = kubectl_di(&ns, &["replicas", "delete", "real", "--collectors", "1"]).await;
        assert_eq!(removed.code, Some(0), "{removed:?}");
        coordinator.wait_until_soon("none", |seen| seen.collectors.is_empty()).await;
        for url in &declared {
            wait_for_disconnect(&ns, url).await;
        }
        coordinator.close_cleanly().await;
    })
    .await;
}

#[tokio::test]
async fn reported_replicas_are_replaced() {
    Namespace::with("failed", |ns| async move {
        let coordinator = start_connected(&ns, 2, 1).await;
        let before = coordinator.state().await;
        let [by_name, by_url] = before.collectors.iter().collect::<Vec<_>>()[..] else {
            panic!("{before:?}");
        };

        // Its sync thread reports pod names.
        coordinator
            .give_up(&json!({"collectors": [by_name], "learners": before.learners}))
            .await;
        let fresh = |seen: &ClientState| {
            let old =
                seen.collectors.contains(by_name) || !seen.learners.is_disjoint(&before.learners);
            !old && (seen.collectors.len(), seen.learners.len()) == (2, 1)
        };
        let between = coordinator
            .wait_until_soon("others for those it gave up", fresh)
            .await;
        for url in before.learners.iter().chain([by_name]) {
            wait_for_disconnect(&ns, url).await;
        }
        // Older clients report URLs.
        let answer = coordinator
            .call(
                "post_replicas_failed",
                &json!({"collectors": [by_url, by_url, "real-collector-other"]}),
            )
            .await;
        let replacement = urls(&answer, "collectors");
        assert_eq!(replacement.len(), 1, "{answer}");
        let listed = coordinator.call("get_replicas", &json!({})).await;
        assert!(!urls(&listed, "collectors").contains(by_url), "{listed}");
        let after = coordinator
            .wait_until_soon("the replacement", |seen| {
                seen.collectors.is_superset(&replacement) && seen.collectors.len() == 2
            })
            .await;
        assert_eq!(
            &after.collectors - &replacement,
            &between.collectors - &BTreeSet::from([by_url.clone()])
        );
        wait_for_disconnect(&ns, by_url).await;
        coordinator.close_cleanly().await;
    })
    .await;
}

#[tokio::test]
async fn deleted_replicas_are_replaced() {
    Namespace::with("deleted", |ns| async move {
        let coordinator = start_connected(&ns, 2, 1).await;
        let before = coordinator.state().await.collectors;
        let lost = before.first().unwrap();
        ns.api::<Pod>()
            .delete(pod_of(lost), &DeleteParams::default())
            .await
            .unwrap();
        let fresh =
            |seen: &ClientState| seen.collectors.len() == 2 && !seen.collectors.contains(lost);
        coordinator.wait_until_soon("another one", fresh).await;
        wait_for_disconnect(&ns, lost).await;
        coordinator.close_cleanly().await;
    })
    .await;
}

#[tokio::test]
async fn crashed_replica_is_replaced() {
    Namespace::with("dies", |ns| async move {
        let coordinator = start_connected(&ns, 2, 1).await;
        let before = coordinator.state().await.collectors;
        let lost = before.first().unwrap();
        // The connection may break before the response: the container is ending.
        exec_command(&ns, pod_of(lost), &["sh", "-c", "kill -USR1 1"]).await;
        let fresh = |seen: &Option<ClientState>| {
            seen.as_ref()
                .is_some_and(|seen| seen.collectors.len() == 2 && !seen.collectors.contains(lost))
        };
        eventually("another one", || coordinator.observe(), fresh).await;
        // DI-engine 0.5.3 then disconnects from the dead replica, and its sync thread does not
        // survive the missing response. The rest does.
        coordinator.close().await;
    })
    .await;
}

#[tokio::test]
async fn replicas_that_cannot_start_are_not_listed() {
    Namespace::with("never", |ns| async move {
        // No node has a thousand CPUs.
        let request = json!({"collectors": {"replicas": 1, "cpus": 1000}});
        let mut workload = Workload::new("real", &request, 2, 1);
        let spec = &mut workload.0.spec;
        let gate = |container: &mut Value| {
            let waits = "import os, sys, time
while not os.path.exists('/tmp/go'): time.sleep(0.1)
os.execvp(sys.argv[1], sys.argv[1:])";
            let command = container["command"].as_array_mut().unwrap();
            command.splice(0..0, ["python3", "-c", waits].map(Value::from));
        };
        gate(main_container(&mut spec.coordinator.template));
        spec.collector.as_mut().unwrap().replicas = 2;
        let learner = spec.learner.as_mut().unwrap();
        learner.replicas = 1;
        main_container(&mut learner.template)["image"] = json!("no.such.registry/image:1");
        let coordinator = workload.submit(&ns).await;
        let without_image = |pods: &Vec<Pod>| {
            pods.iter()
                .any(|pod| format!("{pod:?}").contains("ImagePull"))
        };
        eventually(
            "known to have no image",
            || owned_pods(&ns, "real"),
            without_image,
        )
        .await;
        exec_command(&ns, &coordinator.pod_name(), &["sh", "-c", ": >/tmp/go"]).await;

        let seen = coordinator
            .wait_until("connected to the others", |seen| {
                seen.started && seen.collectors.len() == 2
            })
            .await;
        assert!(seen.learners.is_empty(), "{seen:#?}");
        assert_eq!(
            coordinator.planned_urls(Role::Collector, 22270).await.len(),
            3
        );
        let listed = coordinator.call("get_replicas", &json!({})).await;
        assert_eq!(
            (urls(&listed, "collectors"), urls(&listed, "learners").len()),
            (seen.collectors, 0)
        );
        assert!(
            !seen.log.iter().any(|line| line.contains("Fail")),
            "{:#?}",
            seen.log
        );
        coordinator.close_cleanly().await;
    })
    .await;
}

/// Runs DI-engine's command line for replicas with permissions to exec into pods, and returns its
/// output.
async fn command_line(ns: &Namespace, args: &[&str]) -> String {
    let program = [
        "python3",
        "/programs/command_line.py",
        &ns.name,
        "real-coordinator",
    ];
    let (ok, printed) = exec_command(ns, "command-line", &[&program, args].concat()).await;
    assert!(ok, "{args:?}: {printed}");
    printed.trim().to_owned()
}

async fn create_exec_pod(ns: &Namespace) {
    let rules = json!([
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get", "create"]},
    ]);
    create_account(ns, "command-line", &rules).await;
    let mut pod = Workload::template(&["python3", "-c", "import signal; signal.pause()"]);
    pod["metadata"] = json!({"name": "command-line"});
    pod["spec"]["serviceAccountName"] = json!("command-line");
    pod["spec"]["volumes"] = Workload::volumes();
    let pod: Pod = serde_json::from_value(pod).unwrap();
    // API servers of 1.20 accept the pod only once the account has its token.
    let pods = ns.api();
    let new = PostParams::default();
    let create = || pods.create(&new, &pod);
    eventually("a pod of the account", create, Result::is_ok)
        .await
        .unwrap();
}

#[tokio::test]
async fn command_line_adds_removes_and_restarts_replicas() {
    Namespace::with("command-line", |ns| async move {
        let coordinator = start_connected(&ns, 1, 1).await;
        create_exec_pod(&ns).await;
        let first = coordinator.state().await;
        let said = command_line(&ns, &["add", "collector", "1", "1", "64Mi"]).await;
        assert_eq!(said, "collector add successfully");
        let seen = coordinator
            .wait_until_soon("one more", |seen| seen.collectors.len() == 2)
            .await;
        let newest = (&seen.collectors - &first.collectors).pop_first().unwrap();
        let pod: Pod = ns.api().get(pod_of(&newest)).await.unwrap();
        let requests = pod.spec.unwrap().containers[0]
            .resources
            .clone()
            .unwrap()
            .requests
            .unwrap();
        assert_eq!(
            (requests["cpu"].0.as_str(), requests["memory"].0.as_str()),
            ("1", "64Mi")
        );

        let learner = first.learners.first().unwrap();
        assert_eq!(
            command_line(&ns, &["restart", "learner", pod_of(learner)]).await,
            "learner restart successfully"
        );
        coordinator
            .wait_until_soon("another learner", |seen| {
                seen.learners.len() == 1 && !seen.learners.contains(learner)
            })
            .await;
        assert_eq!(
            command_line(&ns, &["delete", "collector", "1"]).await,
            "collector delete successfully"
        );
        coordinator
            .wait_until_soon("one less", |seen| seen.collectors.len() == 1)
            .await;

        // It also parses rejections, and takes every apostrophe for a quotation mark.
        let refused = command_line(&ns, &["add", "collector", "1000000"]).await;
        assert!(
            refused.starts_with("Failed to add collector, return code: 1, message: "),
            "{refused}"
        );
        coordinator.close_cleanly().await;
    })
    .await;
}

/// Requests one more collector, optionally with the token in a file and with spoofed source
/// headers, and prints the status of the response.
const ADDS: &str = r#"
import json, sys, urllib.error, urllib.request
namespace, job, token, address = sys.argv[1:]
body = {"namespace": namespace, "coordinator": job + "-coordinator", "collectors": {"replicas": 1}}
headers = {"Authorization": "Bearer " + open(token).read()} if token else {}
if address:
    headers.update({"X-Forwarded-For": address, "X-Real-IP": address, "Forwarded": "for=" + address})
url = "http://di-server.di-system:8080/v1alpha1/replicas"
try:
    answer = urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers, method="POST"))
except urllib.error.HTTPError as error:
    answer = error
print(answer.status, json.load(answer)["message"])
"#;
/// Paths of a token for the endpoint and of one for the API server.
const TOKENS: [&str; 2] = ["/tokens/endpoint", "/tokens/other"];

/// The spec of an idle pod with tokens of this account.
fn pod_spec_with_tokens(account: &str) -> Value {
    let token = |path: &str, audience: Option<&str>| json!({"serviceAccountToken": {"path": path, "audience": audience, "expirationSeconds": 600}});
    json!({
        "serviceAccountName": account,
        "terminationGracePeriodSeconds": 2,
        "containers": [{
            "name": "di-container",
            "image": "di-engine-client:dev",
            "command": ["python3", "-c", "import time; time.sleep(3600)"],
            "volumeMounts": [{"name": "tokens", "mountPath": "/tokens"}],
            "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
        }],
        "volumes": [{"name": "tokens", "projected": {"sources": [token("endpoint", Some("di-server")), token("other", None)]}}],
    })
}

#[tokio::test]
async fn pod_token_grants_the_permissions_of_its_account() {
    Namespace::with("tokens", |ns| async move {
        let rule = json!({
            "apiGroups": ["diengine.opendilab.org"], "resources": ["dijobs"], "resourceNames": ["granted"],
            "verbs": ["get", "update"],
        });
        create_account(&ns, "trainer", &json!([rule])).await;
        for name in ["own", "granted", "other"] {
            let mut job = job(name, &["hold"]);
            job.spec.collector = serde_json::from_value(json!({"template": pod_template(&["hold"])})).unwrap();
            if name == "own" {
                *pod_spec(&mut job.spec.coordinator.template) = pod_spec_with_tokens("trainer");
            }
            ns.submit(&job).await;
        }
        let stranger: Pod =
            serde_json::from_value(json!({
                // With enforced network policies, only pods with this label reach the endpoint.
                "metadata": {"name": "stranger", "labels": {"diengine.opendilab.org/replicas-client": "true"}},
                "spec": pod_spec_with_tokens("trainer"),
            })).unwrap();
        ns.api().create(&PostParams::default(), &stranger).await.unwrap();

        let (own, stranger) = ("own-coordinator", "stranger");
        let pods = ns.api::<Pod>();
        let address = || async { pods.get(own).await.ok()?.status?.pod_ip };
        let address = eventually("the pod IP", address, Option::is_some).await.unwrap();
        let [endpoint, other] = TOKENS;
        let (here, elsewhere) = (&*ns.name, "kube-system");
        // In v1alpha1, transient rejections also have status 200. See docs/decisions/0007.
        let added = "200 the replicas are planned";
        for (pod, namespace, job, token, says_from, status) in [
            // The pod IP identifies it, and grants its own job only.
            (own, here, "own", "", "", added),
            (own, here, "granted", "", "", "403"),
            (own, here, "granted", endpoint, "", added),
            (own, here, "other", endpoint, "", "403"),
            (own, elsewhere, "own", "", "", "403"),
            (own, elsewhere, "granted", endpoint, "", "403"),
            // This pod belongs to no job, so that only the token counts.
            (stranger, here, "granted", "", "", "401"),
            (stranger, here, "own", "", &*address, "401"),
            (stranger, here, "granted", other, "", "401"),
            (stranger, here, "granted", endpoint, "", added),
            (stranger, here, "other", endpoint, "", "403"),
            (stranger, elsewhere, "granted", endpoint, "", "403"),
        ] {
            let command = ["python3", "-c", ADDS, namespace, job, token, says_from];
            let ask = || exec_command(&ns, pod, &command);
            // The endpoint caches rejected tokens for two seconds, and the API server learns
            // permissions with a delay.
            let answered = |(_, answer): &(bool, String)| answer.starts_with(status);
            eventually(&format!("{pod} asks of {namespace}/{job} with token {token:?}: {status}"), ask, answered).await;
        }
        for (job, added) in [("own", 1), ("granted", 2), ("other", 0)] {
            assert_eq!(status(&ns, job).await.plan.len(), added, "{job}");
        }
    })
    .await;
}

/// A coordinator that requests two collectors and fails. After its restart it requests them again,
/// prints both responses, and waits.
const ASKS_TWICE: &str = r#"
import json, os, time, urllib.request
body = {"namespace": os.environ["KUBERNETES_POD_NAMESPACE"], "coordinator": os.environ["KUBERNETES_POD_NAME"], "collectors": {"replicas": 2}}
url = "http://" + os.environ["KUBERNETES_SERVER_URL"] + "/v1alpha1/replicas"
answer = {"success": False}
# Until its address is known.
while not answer["success"]:
    try:
        answer = json.load(urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), method="POST")))
    except OSError:
        pass
    time.sleep(1)
if not os.path.exists("/left/answer"):
    json.dump(answer, open("/left/answer", "w"))
    raise SystemExit(1)
print(json.dumps([json.load(open("/left/answer")), answer]), flush=True)
time.sleep(3600)
"#;

#[tokio::test]
async fn coordinator_restarted_by_kubelet_gets_its_replicas() {
    Namespace::with("again", |ns| async move {
        let mut job = job("again", &["hold"]);
        *pod_spec(&mut job.spec.coordinator.template) = json!({
            "restartPolicy": "OnFailure",
            "terminationGracePeriodSeconds": 2,
            "containers": [{
                "name": "di-container",
                "image": "di-engine-client:dev",
                "command": ["python3", "-c", ASKS_TWICE],
                "volumeMounts": [{"name": "left", "mountPath": "/left"}],
                "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
            }],
            "volumes": [{"name": "left", "emptyDir": {}}],
        });
        job.spec.collector =
            serde_json::from_value(json!({"template": pod_template(&["hold"])})).unwrap();
        ns.submit(&job).await;
        let log = eventually(
            "two answers",
            || logs_so_far(&ns, "again-coordinator"),
            |log| log.ends_with('\n'),
        )
        .await;
        let answers: [Value; 2] = serde_json::from_str(&log).unwrap();
        let [first, second] = answers.map(|answer| urls(&answer, "collectors"));
        assert_eq!((first.len(), &first), (2, &second));
        assert_eq!(status(&ns, "again").await.plan.len(), 2);
    })
    .await;
}
