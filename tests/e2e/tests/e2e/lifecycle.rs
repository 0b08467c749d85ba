//! The lifecycle of a job on a real cluster: phases, replicas, addresses and clean-up.

use std::collections::BTreeMap;

use di_api::{CleanPodPolicy, DIJob, Phase, names};
use di_e2e::{
    Namespace, Phases, eventually, exec, idle_job, is_running, job, kubectl_di, logs_so_far,
    main_container, owned_pods, owned_services, pod_spec, pod_template, status, wait_for_phase,
};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;

/// Waits until exactly this number of pods of a job runs.
pub(crate) async fn wait_for_running_pods(
    namespace: &Namespace,
    job: &str,
    pods: usize,
) -> Vec<Pod> {
    eventually(
        "all running",
        || owned_pods(namespace, job),
        |all| all.len() == pods && all.iter().all(is_running),
    )
    .await
}

fn by_role<'a>(pods: &'a [Pod], role: &str) -> Vec<&'a Pod> {
    pods.iter()
        .filter(|pod| pod.labels()["replica-type"] == role)
        .collect()
}

/// Ends the program of an [`idle_job`] pod with this exit code.
pub(crate) async fn end_pod(namespace: &Namespace, pod: &str, code: &str) {
    // The connection may break before the response: the process is ending.
    exec(namespace, pod, &["release", code]).await;
}

async fn remaining_objects(namespace: &Namespace, job: &str) -> (Vec<String>, Vec<String>) {
    let pods = owned_pods(namespace, job).await;
    (
        pods.iter().map(ResourceExt::name_any).collect(),
        owned_services(namespace, job).await,
    )
}

#[tokio::test]
async fn replicas_have_documented_names_env_and_addresses() {
    Namespace::with("names", |ns| async move {
        let mut wanted = idle_job("shape", 2, 1);
        wanted.spec.volumes =
            serde_json::from_value(json!([{"name": "shared", "emptyDir": {}}])).unwrap();
        let port = json!([{"name": "di-port", "containerPort": 23000}]);
        let learner = wanted.spec.learner.as_mut().unwrap();
        main_container(&mut learner.template)["ports"] = port;
        let uid = ns.submit(&wanted).await.uid();
        let pods = wait_for_running_pods(&ns, "shape", 4).await;

        let coordinator = by_role(&pods, "coordinator")[0].name_any();
        assert_eq!(coordinator, "shape-coordinator");
        let mut addresses = Vec::new();
        for (role, default_port, env) in [
            ("coordinator", 22273, "COORDINATOR_PORT"),
            ("collector", 22270, "COLLECTOR_PORT"),
            ("learner", 23000, "LEARNER_PORT"),
        ] {
            for pod in by_role(&pods, role) {
                let name = pod.name_any();
                let expected = [
                    ("group-name", "diengine.opendilab.org"),
                    ("dijob-name", "shape"),
                    ("controller-name", "di-operator"),
                    ("replica-type", role),
                    ("pod-name", name.as_str()),
                ];
                for (key, value) in expected {
                    assert_eq!(pod.labels()[key], value, "{name}");
                }
                let owner = &pod.owner_references()[0];
                assert_eq!(
                    (Some(&owner.uid), owner.controller),
                    (uid.as_ref(), Some(true))
                );
                let spec = pod.spec.as_ref().unwrap();
                assert_eq!(spec.restart_policy.as_deref(), Some("Never"));
                assert!(
                    spec.volumes
                        .iter()
                        .flatten()
                        .any(|volume| volume.name == "shared")
                );

                let (ok, printed) = exec(&ns, &name, &["env"]).await;
                assert!(ok, "{printed}");
                let seen: BTreeMap<_, _> = printed
                    .lines()
                    .filter_map(|line| line.split_once('='))
                    .collect();
                let coordinator_url = format!("shape-coordinator.{}:22273", ns.name);
                for (key, value) in [
                    ("KUBERNETES_POD_NAMESPACE", ns.name.as_str()),
                    ("KUBERNETES_POD_NAME", &name),
                    ("KUBERNETES_SERVER_URL", "di-server.di-system:8080"),
                    ("KUBERNETES_SERVER_API_VERSION", "/v1alpha1"),
                    ("KUBERNETES_COORDINATOR_URL", &coordinator_url),
                    (env, &default_port.to_string()),
                ] {
                    assert_eq!(seen.get(key), Some(&value), "{name}: {key}");
                }
                addresses.push(names::replica_url(&name, &ns.name, default_port));
            }
        }
        let mut indices = Vec::new();
        for pod in by_role(&pods, "collector") {
            let (_, printed) = exec(&ns, &pod.name_any(), &["env"]).await;
            indices.extend(
                printed
                    .lines()
                    .filter_map(|l| l.strip_prefix("DI_REPLICA_INDEX="))
                    .map(str::to_owned),
            );
        }
        indices.sort();
        assert_eq!(indices, ["0", "1"]);

        // Probe from inside the coordinator: every replica name resolves and responds.
        let urls: Vec<String> = addresses
            .iter()
            .map(|address| format!("http://{address}/healthz"))
            .collect();
        let probe: Vec<&str> = ["probe"]
            .into_iter()
            .chain(urls.iter().map(String::as_str))
            .collect();
        eventually(
            "all answer",
            || exec(&ns, &coordinator, &probe),
            |(ok, _)| *ok,
        )
        .await;
    })
    .await;
}

#[tokio::test]
async fn phases_follow_in_order_with_counts() {
    Namespace::with("phases", |ns| async move {
        let phases = Phases::watch(&ns, "ordered");
        ns.submit(&idle_job("ordered", 1, 1)).await;
        let seen = eventually(
            "ready",
            || status(&ns, "ordered"),
            |s| s.phase == Some(Phase::Running) && s.collectors_ready.as_deref() == Some("1/1"),
        )
        .await;
        assert_eq!((seen.collectors, seen.learners), (1, 1));
        assert_eq!(seen.replica_status["Collector"].active, 1);
        end_pod(&ns, "ordered-coordinator", "0").await;
        let ended = wait_for_phase(&ns, "ordered", Phase::Succeeded).await;
        assert!(ended.completion_time.is_some() && ended.start_time.is_some());
        let all = eventually(
            "all phases",
            || async { phases.seen() },
            |all| all.last() == Some(&Phase::Succeeded),
        )
        .await;
        // A slow watch may miss the first phase.
        let in_order = [Phase::Created, Phase::Running, Phase::Succeeded];
        assert!(all.len() > 1 && in_order.ends_with(&all), "{all:?}");
        let types: Vec<_> = ended
            .conditions
            .iter()
            .filter(|c| c.status == "True")
            .map(|c| c.type_.as_str())
            .collect();
        assert!(
            types.contains(&"Created") && types.contains(&"Succeeded"),
            "{types:?}"
        );
    })
    .await;
}

#[tokio::test]
async fn clean_up_policy_keeps_the_documented_pods() {
    Namespace::with("policies", |ns| async move {
        for (name, policy) in [
            ("none", CleanPodPolicy::None),
            ("running", CleanPodPolicy::Running),
            ("all", CleanPodPolicy::All),
        ] {
            let mut wanted = idle_job(name, 2, 0);
            wanted.spec.clean_pod_policy = policy;
            ns.submit(&wanted).await;
            let pods = wait_for_running_pods(&ns, name, 3).await;
            // One collector succeeds before the job ends.
            let done = by_role(&pods, "collector")[0].name_any();
            end_pod(&ns, &done, "0").await;
            let counts =
                |s: &di_api::DIJobStatus| s.replica_status.get("Collector").map(|c| c.succeeded);
            eventually("counted", || status(&ns, name), |s| counts(s) == Some(1)).await;
            let coordinator = names::coordinator_name(name);
            end_pod(&ns, &coordinator, "0").await;
            let mut expected: Vec<String> = match policy {
                CleanPodPolicy::None => pods.iter().map(ResourceExt::name_any).collect(),
                CleanPodPolicy::Running => vec![done, coordinator],
                CleanPodPolicy::All => vec![],
            };
            expected.sort();
            let gone = |(pods, services): &(Vec<String>, Vec<String>)| {
                let mut pods = pods.clone();
                pods.sort();
                pods == expected && services.is_empty()
            };
            eventually("cleaned up", || remaining_objects(&ns, name), gone).await;
            assert_eq!(status(&ns, name).await.phase, Some(Phase::Succeeded));
        }
    })
    .await;
}

#[tokio::test]
async fn failed_coordinator_fails_job_with_reason() {
    Namespace::with("failed", |ns| async move {
        ns.submit(&idle_job("fails", 1, 0)).await;
        wait_for_running_pods(&ns, "fails", 2).await;
        end_pod(&ns, "fails-coordinator", "3").await;
        let seen = wait_for_phase(&ns, "fails", Phase::Failed).await;
        let failed = seen
            .conditions
            .iter()
            .find(|c| c.type_ == "Failed")
            .unwrap();
        let expected = "the coordinator failed: Error (exit code 3)";
        assert!(failed.message.starts_with(expected), "{}", failed.message);
        let only = |(pods, services): &(Vec<String>, Vec<String>)| {
            pods == &["fails-coordinator"] && services.is_empty()
        };
        eventually("cleaned up", || remaining_objects(&ns, "fails"), only).await;
    })
    .await;
}

#[tokio::test]
async fn oom_killed_coordinator_with_sidecar_fails_job() {
    Namespace::with("memory", |ns| async move {
        let mut wanted = idle_job("greedy", 1, 0);
        let main = main_container(&mut wanted.spec.coordinator.template);
        let mut sidecar = main.clone();
        sidecar["name"] = json!("sidecar");
        main["args"] = json!(["hold", "--memory", "256"]);
        main["resources"] = json!({"limits": {"memory": "64Mi"}});
        let spec = pod_spec(&mut wanted.spec.coordinator.template);
        spec["containers"].as_array_mut().unwrap().push(sidecar);
        ns.submit(&wanted).await;
        let seen = wait_for_phase(&ns, "greedy", Phase::Failed).await;
        let failed = seen.conditions.iter().find(|c| c.type_ == "Failed");
        // The reason comes from containerd, possibly after the exit code.
        let why = &failed.unwrap().message;
        assert!(why.starts_with("the coordinator failed: "), "{why}");
        assert!(why.contains(" (exit code 137)"), "{why}");
        let only = |(pods, services): &(Vec<String>, Vec<String>)| {
            pods == &["greedy-coordinator"] && services.is_empty()
        };
        eventually("cleaned up", || remaining_objects(&ns, "greedy"), only).await;
        let coordinator = &owned_pods(&ns, "greedy").await[0];
        let containers = coordinator
            .status
            .as_ref()
            .unwrap()
            .container_statuses
            .iter()
            .flatten();
        let runs: Vec<_> = containers
            .filter(|container| container.state.as_ref().unwrap().running.is_some())
            .map(|container| container.name.as_str())
            .collect();
        assert_eq!(runs, ["sidecar"]);
    })
    .await;
}

#[tokio::test]
async fn failed_coordinator_restarts_up_to_backoff_limit() {
    Namespace::with("limit", |ns| async move {
        let mut wanted = idle_job("twice", 1, 0);
        wanted.spec.backoff_limit = 1;
        ns.submit(&wanted).await;
        let pods = wait_for_running_pods(&ns, "twice", 2).await;
        let first = by_role(&pods, "coordinator")[0].uid();
        end_pod(&ns, "twice-coordinator", "1").await;
        let another = |pods: &Vec<Pod>| {
            let all = by_role(pods, "coordinator");
            all.iter().any(|pod| pod.uid() != first && is_running(pod))
        };
        eventually("started again", || owned_pods(&ns, "twice"), another).await;
        let again = |s: &di_api::DIJobStatus| (s.phase, s.restarts) == (Some(Phase::Running), 1);
        eventually("counted", || status(&ns, "twice"), again).await;
        end_pod(&ns, "twice-coordinator", "1").await;
        let seen = wait_for_phase(&ns, "twice", Phase::Failed).await;
        assert_eq!(
            (seen.restarts, seen.reason.as_deref()),
            (1, Some("CoordinatorFailed"))
        );
    })
    .await;
}

#[tokio::test]
async fn crash_looping_collector_is_left_to_kubelet_and_reported() {
    Namespace::with("crashes", |ns| async move {
        let mut wanted = idle_job("loops", 1, 0);
        let collector = wanted.spec.collector.as_mut().unwrap();
        pod_spec(&mut collector.template)["restartPolicy"] = json!("Always");
        main_container(&mut collector.template)["args"] = json!(["no-such-command"]);
        ns.submit(&wanted).await;
        let is_reported = |s: &di_api::DIJobStatus| {
            (s.phase, s.reason.as_deref()) == (Some(Phase::Running), Some("CrashLoopBackOff"))
        };
        let seen = eventually("reported", || status(&ns, "loops"), is_reported).await;
        let pods = owned_pods(&ns, "loops").await;
        let [collector] = by_role(&pods, "collector")[..] else {
            panic!("another took its place: {pods:#?}");
        };
        let [planned] = &seen.plan[..] else {
            panic!("{seen:#?}");
        };
        assert_eq!(
            (Some(planned.name.as_str()), planned.uid.as_ref()),
            (
                collector.metadata.name.as_deref(),
                collector.metadata.uid.as_ref()
            )
        );
    })
    .await;
}

#[tokio::test]
async fn unstartable_collector_is_replaced_with_backoff() {
    Namespace::with("mistyped", |ns| async move {
        let mut wanted = idle_job("mistyped", 1, 0);
        let collector = wanted.spec.collector.as_mut().unwrap();
        pod_spec(&mut collector.template)["restartPolicy"] = json!("Never");
        main_container(&mut collector.template)["command"] = json!(["/no-such-program"]);
        ns.submit(&wanted).await;
        let waits = |s: &di_api::DIJobStatus| {
            let mut last = s.plan.iter().filter(|entry| entry.is_wanted());
            last.any(|entry| entry.attempt == 2 && entry.not_before.is_some())
        };
        eventually("waits for its next try", || status(&ns, "mistyped"), waits).await;
    })
    .await;
}

#[tokio::test]
async fn coordinator_past_deadline_ends_and_keeps_its_log() {
    Namespace::with("late", |ns| async move {
        ns.submit(&idle_job("late", 1, 0)).await;
        wait_for_running_pods(&ns, "late", 2).await;
        let log = || logs_so_far(&ns, "late-coordinator");
        eventually("the log starts", log, |log| log.contains("idle; waiting")).await;
        let late = Patch::Merge(json!({"spec": {"activeDeadlineSeconds": 1}}));
        let jobs = ns.api::<DIJob>();
        jobs.patch("late", &PatchParams::default(), &late)
            .await
            .unwrap();
        let seen = wait_for_phase(&ns, "late", Phase::Failed).await;
        assert_eq!(seen.reason.as_deref(), Some("DeadlineExceeded"));
        let ended = |pods: &Vec<Pod>| {
            let [only] = &pods[..] else { return false };
            let status = only.status.as_ref().unwrap();
            let said = (status.phase.as_deref(), status.reason.as_deref());
            only.name_any() == names::coordinator_name("late")
                && said == (Some("Failed"), Some("DeadlineExceeded"))
        };
        eventually("ended, alone", || owned_pods(&ns, "late"), ended).await;
        // Services are deleted after their pods.
        eventually("no service", || owned_services(&ns, "late"), Vec::is_empty).await;
        let log = kubectl_di(&ns, &["logs", "late"]).await;
        assert!(
            log.stdout.contains("idle; waiting for a release request"),
            "{log:?}"
        );
    })
    .await;
}

#[tokio::test]
async fn ended_job_is_deleted_after_ttl() {
    Namespace::with("ttl", |ns| async move {
        let mut wanted = job("brief", &["hold"]);
        wanted.spec.ttl_seconds_after_finished = Some(1);
        ns.submit(&wanted).await;
        wait_for_running_pods(&ns, "brief", 1).await;
        end_pod(&ns, "brief-coordinator", "0").await;
        let api = ns.api::<DIJob>();
        eventually(
            "deleted",
            || async { api.get_opt("brief").await.unwrap() },
            Option::is_none,
        )
        .await;
        eventually(
            "nothing left",
            || remaining_objects(&ns, "brief"),
            |(pods, services)| pods.is_empty() && services.is_empty(),
        )
        .await;
    })
    .await;
}

#[tokio::test]
async fn killed_collector_is_replaced_under_new_name() {
    Namespace::with("replaced", |ns| async move {
        ns.submit(&idle_job("again", 1, 0)).await;
        let pods = wait_for_running_pods(&ns, "again", 2).await;
        let first = by_role(&pods, "collector")[0].name_any();
        end_pod(&ns, &first, "1").await;
        let replaced = |s: &di_api::DIJobStatus| {
            s.plan
                .iter()
                .any(|e| e.is_wanted() && e.replaces.as_ref() == Some(&first))
        };
        let seen = eventually("replaced", || status(&ns, "again"), replaced).await;
        let second = seen.plan.iter().find(|e| e.is_wanted()).unwrap();
        assert_eq!(second.index, 0);
        eventually(
            "running",
            || async { ns.api::<Pod>().get(&second.name).await.ok() },
            |p| p.as_ref().is_some_and(is_running),
        )
        .await;
        assert_eq!(status(&ns, "again").await.phase, Some(Phase::Running));
    })
    .await;
}

#[tokio::test]
async fn foreign_objects_with_job_names_are_kept_and_reported() {
    Namespace::with("foreign", |ns| async move {
        let object = |spec: serde_json::Value| json!({"metadata": {"name": "taken-coordinator"}, "spec": spec});
        let foreign: Pod = serde_json::from_value(object(pod_template(&["hold"])["spec"].clone())).unwrap();
                // A new namespace accepts pods once its service account exists.
        let pods: Api<Pod> = ns.api();
        let new = PostParams::default();
        let create = || async { pods.create(&new, &foreign).await };
        let foreign = eventually("created", create, Result::is_ok).await.unwrap();
        let service = json!({"clusterIP": "None", "selector": {"a": "b"}, "ports": [{"port": 1}]});
        let service: k8s_openapi::api::core::v1::Service = serde_json::from_value(object(service)).unwrap();
        ns.api().create(&new, &service).await.unwrap();
        ns.submit(&job("taken", &["hold"])).await;
        eventually("reported", || status(&ns, "taken"), |s| s.reason.as_deref() == Some("NameConflict")).await;
        // Retries count up the series of the event.
        let events = ns.api::<k8s_openapi::api::events::v1::Event>();
        let selector = kube::api::ListParams::default().fields("reason=NameConflict");
        eventually(
            "counted",
            || async { events.list(&selector).await.map(|all| all.items).unwrap_or_default() },
            |all| all.iter().any(|event| event.series.as_ref().is_some_and(|series| series.count > 1)),
        )
        .await;
        let now = ns.api::<Pod>().get("taken-coordinator").await.unwrap();
        assert_eq!((now.uid(), now.labels().len()), (foreign.uid(), 0));
    })
    .await;
}
