use di_fixtures::{ApiServerMock, Job, MockRequest, Reply};
use serde_json::{Value, json};

use super::*;

const LIMIT: Duration = Duration::from_secs(5);

fn job(name: &str, uid: &str) -> ValidObject {
    let job = Job::test().named(name).uid(uid).collectors(1).learners(1);
    ValidObject::DIJob(serde_json::from_value(job.json()).unwrap())
}

fn new_dry_run(
    reply: impl FnMut(&MockRequest) -> Reply + Send + 'static,
) -> (ApiServerMock, DryRun) {
    let (mock, client) = ApiServerMock::new(reply);
    (mock, DryRun::new(client, DryRunSettings::default()))
}

async fn run(dry_run: &DryRun, object: ValidObject) -> DryRunReport {
    let requests = dry_run.build_requests(object, "rl").unwrap();
    dry_run.run(requests, Instant::now() + LIMIT).await
}

#[tokio::test]
async fn declared_role_is_asked_once_within_cache_ttl() {
    let (mock, dry_run) = new_dry_run(MockRequest::created);
    for (name, uid, expected) in [("j", "1", 3), ("j", "2", 3), ("k", "2", 6)] {
        let report = run(&dry_run, job(name, uid)).await;
        let accepted = ["coordinator", "collector", "learner"];
        let accepted = accepted.map(|role| (format!("spec.{role}.template"), Vec::new()));
        let expected_report = DryRunReport {
            accepted: accepted.to_vec(),
            ..DryRunReport::default()
        };
        assert_eq!(report, expected_report);
        let requests = mock.requests();
        assert_eq!(requests.len(), expected);
        for request in requests {
            assert_eq!(request.path, "/api/v1/namespaces/rl/pods");
            assert_eq!(
                request.body["metadata"]["ownerReferences"][0]["kind"],
                "DIJob"
            );
        }
    }
}

#[tokio::test]
async fn only_definite_answers_are_cached() {
    let invalid = json!({
        "kind": "Status", "status": "Failure", "reason": "Invalid", "code": 422, "message": "invalid",
        "details": {"causes": [{"reason": "FieldValueInvalid", "message": "m", "field": "spec.volumes[0]"}]},
    });
    for (reply, expected) in [
        (Reply::Object(422, invalid), 3),
        (Reply::error(403, "no"), 6),
        (Reply::error(503, "no"), 6),
    ] {
        let response = reply.clone();
        let (mock, dry_run) = new_dry_run(move |_| response.clone());
        let reports = [
            run(&dry_run, job("j", "1")).await,
            run(&dry_run, job("j", "1")).await,
        ];
        assert_ne!(reports[0], DryRunReport::default());
        assert_eq!(reports[0], reports[1]);
        assert_eq!(mock.requests().len(), expected, "{reply:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn unanswered_requests_become_warnings_at_deadline() {
    for reply in [Reply::Hang, Reply::Reset] {
        let (_, dry_run) = new_dry_run(move |_| reply.clone());
        let started_at = Instant::now();
        let reports =
            join_all((0..100).map(async |i| run(&dry_run, job(&format!("j{i}"), "1")).await));
        for report in reports.await {
            assert_eq!(report.warnings.len(), 3);
            assert!(report.faults.is_empty() && report.denials.is_empty());
        }
        assert!(started_at.elapsed() <= LIMIT + Duration::from_millis(1));
    }
}

fn collector_fields(spec: &Value) -> FieldMap {
    let template = json!({"spec": {"containers": [{"name": "di-container", "image": "i"}]}});
    let mut spec = spec.clone();
    spec["coordinator"] = json!({"template": template});
    let job = json!({"metadata": {"name": "j"}, "spec": spec});
    let job = ValidObject::DIJob(serde_json::from_value(job).unwrap());
    let pods = build_pods(job, "rl", &BuildSettings::default());
    let [_, (pod, fields)] = <[_; 2]>::try_from(pods).unwrap();
    let main = &pod.decode().unwrap().spec.unwrap().containers[1];
    let generated = main.env.as_ref().unwrap().len() - 2;
    assert_eq!(generated, 7, "adapt the indices of the test");
    fields
}

#[test]
fn pod_field_is_mapped_to_field_that_user_wrote() {
    let variables = json!([{"name": "A"}, {"name": "B"}]);
    let fields = collector_fields(&json!({
        "priorityClassName": "high",
        "volumes": [{"name": "shared"}, {"name": "data"}],
        "collector": {"template": {"spec": {
            "volumes": [{"name": "own"}, {"name": "shared"}],
            "initContainers": [{"name": "setup", "image": "i", "env": variables}],
            "containers": [
                {"name": "log", "image": "i"},
                {"name": "di-container", "image": "i", "env": variables, "ports": [{"containerPort": 1}]},
            ],
        }}},
    }));
    for (pod_field, expected) in [
        ("spec.containers[1].image", "T.spec.containers[1].image"),
        ("spec.containers", "T.spec.containers"),
        ("spec.containers[2].image", "T.spec.containers"),
        ("spec.containers[1].env[6].name", "T.spec.containers[1].env"),
        (
            "spec.containers[1].env[8].valueFrom.fieldRef",
            "T.spec.containers[1].env[1].valueFrom.fieldRef",
        ),
        (
            "spec.initContainers[0].env[7].name",
            "T.spec.initContainers[0].env[0].name",
        ),
        (
            "spec.containers[1].envFrom[0].prefix",
            "T.spec.containers[1].envFrom[0].prefix",
        ),
        (
            "spec.containers[1].ports[0].containerPort",
            "T.spec.containers[1].ports[0].containerPort",
        ),
        (
            "spec.containers[1].ports[1].name",
            "T.spec.containers[1].ports",
        ),
        (
            "spec.containers[1].resources.limits[nvidia.com/gpu]",
            "T.spec.containers[1].resources.limits[nvidia.com/gpu]",
        ),
        ("spec.volumes[1].name", "T.spec.volumes[1].name"),
        (
            "spec.volumes[2].hostPath.path",
            "spec.volumes[1].hostPath.path",
        ),
        ("spec.volumes[3].name", "T.spec.volumes"),
        ("spec.volumes", "T.spec.volumes"),
        ("spec.priorityClassName", "spec.priorityClassName"),
        ("spec.restartPolicy", "T.spec.restartPolicy"),
        ("metadata.labels", "T.metadata.labels"),
        ("metadata.annotations[a/b]", "T.metadata.annotations[a/b]"),
        ("metadata.name", "T"),
        ("metadata.ownerReferences[0].uid", "T"),
        ("", "T"),
    ] {
        let expected = expected.replace('T', "spec.collector.template");
        assert_eq!(fields.object_field(pod_field), expected, "{pod_field}");
    }
}

#[test]
fn template_keeps_its_own_priority_class() {
    let fields = collector_fields(&json!({
        "priorityClassName": "high",
        "collector": {"template": {"spec": {
            "priorityClassName": "own",
            "containers": [
                {"name": "log", "image": "i"},
                {"name": "di-container", "image": "i", "env": [{"name": "A"}, {"name": "B"}]},
            ],
        }}},
    }));
    assert_eq!(
        fields.object_field("spec.priorityClassName"),
        "spec.collector.template.spec.priorityClassName"
    );
}

#[test]
fn aggregator_config_has_one_pod() {
    let template = json!({"spec": {"containers": [{"name": "di-container", "image": "i"}]}});
    let config = json!({
        "metadata": {"name": "aggregator-config"},
        "spec": {"aggregator": {"template": template}},
    });
    let config = ValidObject::AggregatorConfig(serde_json::from_value(config).unwrap());
    let pods = build_pods(config, "rl", &BuildSettings::default());
    let [(pod, fields)] = <[_; 1]>::try_from(pods).unwrap();
    assert_eq!(pod.metadata.namespace.as_deref(), Some("rl"));
    assert_eq!(
        fields.object_field("spec.containers[0].image"),
        "spec.aggregator.template.spec.containers[0].image"
    );
}
