//! Tests of the requests to the API server: their metrics, events and errors.

mod request_metrics;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use di_api::{DIJob, Origin, PlanEntry, Role};
use di_fixtures::{ApiServerMock, Job, MockRequest, Reply, template};
use di_plan::{
    GangScheduler, KueueVersion, PodView, ServiceView, WorkloadDraft, WorkloadView, build_pod,
    build_service, new_group, patch_pods_ready,
};
use http::Method;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::{
    Client, Resource,
    runtime::events::{Event, EventType},
};
use prometheus_client::{encoding::text::encode, registry::Registry};
use serde_json::json;

use super::*;
use crate::{
    Metrics, Settings, Step,
    backoff::INITIAL_DELAY,
    error_report::{Failure, record_results},
    event_queue::{EventQueue, QueueItem, QueuedEvent},
    observe::{observe, read_flavors},
    status_writer::{replay_unacknowledged, write_status_and_emit},
    stored_job::fail_invalid_spec,
};

/// Applies actions, and emits their events and records their results, as a reconcile does.
async fn apply(
    context: &Context,
    job: &DIJob,
    key: &Key,
    actions: &[Action],
) -> Result<bool, Failure> {
    let step = Step {
        actions: actions.to_vec(),
        ..Step::default()
    };
    let persisted = Persisted::for_test(job.clone().into(), step);
    let applied = apply_actions(context, key, &persisted).await;
    context.queue_events(job, &applied.events());
    record_results(context, key, job, applied)
}

/// A client of a server that rejects every write and has no object. So each request is sent.
fn rejecting_client() -> Client {
    ApiServerMock::client(|request| match request.method {
        // A Workload is created with the priority of its class.
        Method::GET if request.path.contains("priorityclasses") => {
            Reply::Object(200, json!({"metadata": {"name": "high"}, "value": 1}))
        }
        Method::GET => Reply::error(404, ""),
        Method::POST => Reply::status(409, "AlreadyExists", ""),
        _ => Reply::error(409, ""),
    })
}

/// A server that rejects creates of pods by the prefix of their names. Code 0 closes the
/// connection.
fn create_rejecting_server(prefix: &'static str, code: u16) -> (ApiServerMock, Client) {
    ApiServerMock::new(move |request| {
        let is_pod = request.path.ends_with("/pods");
        match code {
            _ if !is_pod || !request.object_name().starts_with(prefix) => request.created(),
            0 => Reply::Reset,
            _ => Reply::error(code, "denied"),
        }
    })
}

/// A server that rejects deletes of a resource by the prefix of the names. Code 0 never responds.
fn delete_rejecting_server(
    resource: &'static str,
    prefix: &'static str,
    code: u16,
) -> (ApiServerMock, Client) {
    let rejected_path = format!("/{resource}/{prefix}");
    ApiServerMock::new(move |request| match code {
        _ if request.method != Method::DELETE || !request.path.contains(&rejected_path) => {
            Reply::Object(200, json!({"metadata": {"uid": "u"}}))
        }
        0 => Reply::Hang,
        _ => Reply::error(code, "denied"),
    })
}

/// A client of a server where this pod and this service exist already.
fn conflicting_client(pod: &Pod, service: &Service) -> Client {
    let (pod, service) = (json!(pod), json!(service));
    ApiServerMock::client(move |request| match request.method {
        Method::GET if request.path.contains("/pods/") => Reply::Object(200, pod.clone()),
        Method::GET => Reply::Object(200, service.clone()),
        Method::DELETE => Reply::Object(200, json!({"kind": "Status", "status": "Success"})),
        _ => Reply::status(409, "AlreadyExists", ""),
    })
}

/// A context with the job in its cache.
fn context_with(client: Client) -> Context {
    let context = Context::test(client);
    context.jobs.record_write(job().0);
    context
}

/// A context with the job in its cache, and its metrics.
fn context_with_metrics(client: Client) -> (Context, Registry) {
    let (mut context, mut registry) = (context_with(client), Registry::default());
    context.metrics = Metrics::new(&mut registry);
    (context, registry)
}

fn job() -> (DIJob, Key) {
    let job = Job::test().metadata(json!({"resourceVersion": "1"}));
    let role = json!({"template": template()});
    let job = job.spec(json!({"collector": role, "learner": role}));
    (job.build(), ("rl".to_owned(), "j".to_owned()))
}

#[tokio::test]
async fn created_pods_share_one_event() {
    let (event_queue, shards) = EventQueue::new();
    let mut context = context_with(ApiServerMock::client(MockRequest::created));
    context.event_queue = event_queue;
    let create = |name: &str, role| {
        let entry = PlanEntry::new(name.to_owned(), role, Origin::Declared, 0);
        [
            Action::CreateService(entry.clone()),
            Action::CreatePod(entry),
        ]
    };
    let collectors = ["d", "c", "b", "a"].map(|name| create(name, Role::Collector));
    let others = [create("l", Role::Learner), create("z", Role::Coordinator)];
    let all: Vec<_> = collectors.into_iter().chain(others).flatten().collect();
    let (job, key) = job();
    apply(&context, &job, &key, &all).await.unwrap();
    let events: Vec<_> = shards
        .into_iter()
        .flat_map(|mut shard| std::iter::from_fn(move || shard.try_recv().ok()))
        .filter_map(|item| match item {
            QueueItem::Event(queued) => Some((queued.event.reason, queued.event.note.unwrap())),
            QueueItem::Flush(_) => None,
        })
        .collect();
    let message = "created z, a, b, c, d and 1 more".to_owned();
    assert_eq!(events, [("SuccessfulCreate".to_owned(), message)]);
}

#[tokio::test]
async fn rejected_create_skips_similar_creates() {
    let create =
        |name: String, role| Action::CreatePod(PlanEntry::new(name, role, Origin::Declared, 0));
    let coordinator = create("the-coordinator".to_owned(), Role::Coordinator);
    let many = |name: &str, role| {
        let names = (0..100).map(|i| format!("{name}-{i}"));
        let names: Vec<_> = names.map(|name| create(name, role)).collect();
        names
    };
    let all = [
        vec![coordinator],
        many("collector", Role::Collector),
        many("learner", Role::Learner),
    ]
    .concat();
    for (rejected, code, collectors, learners) in [
        ("the-coordinator", 403, 0..=0, 0..=0),
        ("the-coordinator", 500, 0..=0, 0..=0),
        // A conflict on the quota, and a lost response.
        ("the-coordinator", 409, 0..=0, 0..=0),
        ("the-coordinator", 0, 0..=0, 0..=0),
        ("collector", 403, 1..=PARALLEL_REQUESTS, 100..=100),
        ("collector", 500, 1..=PARALLEL_REQUESTS, 100..=100),
        ("collector-3", 500, 4..=PARALLEL_REQUESTS + 4, 100..=100),
    ] {
        let (mock, client) = create_rejecting_server(rejected, code);
        let context = context_with(client);
        let (job, key) = job();
        apply(&context, &job, &key, &all).await.unwrap_err();
        let requests = mock.requests();
        let requests: Vec<_> = requests.iter().map(MockRequest::object_name).collect();
        let count = |name| {
            requests
                .iter()
                .filter(|sent| sent.starts_with(name))
                .count()
        };
        assert_eq!(count("the-coordinator"), 1);
        assert!(
            collectors.contains(&count("collector")),
            "{rejected} {code}: {requests:?}"
        );
        assert!(
            learners.contains(&count("learner")),
            "{rejected} {code}: {requests:?}"
        );
        let deferred = context.job_state(&key).deferred_creates.len();
        let expected = match code {
            409 => 0,
            _ => all.len() - requests.len() + count(rejected),
        };
        assert_eq!(deferred, expected, "{rejected} {code}");
    }
}

#[tokio::test]
async fn failed_deletes_skip_similar_deletes() {
    let uid = || "u".to_owned();
    let names = || (0..100).map(|i| format!("collector-{i}"));
    let pods = names().map(|name| Action::DeletePod { name, uid: uid() });
    let services = names().map(|name| Action::DeleteService { name, uid: uid() });
    let stop = Action::StopPod {
        name: "the-coordinator".to_owned(),
        uid: uid(),
    };
    let all: Vec<_> = pods.chain(services).chain([stop]).collect();
    let few = || 1..=PARALLEL_REQUESTS;
    for (resource, prefix, code, pods, services) in [
        ("pods", "collector", 0, 1..=PARALLEL_REQUESTS, 100..=100),
        ("services", "collector", 0, 100..=100, 1..=PARALLEL_REQUESTS),
        ("pods", "collector", 500, few(), 100..=100),
        ("services", "collector", 500, 100..=100, few()),
        (
            "pods",
            "collector-3",
            500,
            4..=PARALLEL_REQUESTS + 4,
            100..=100,
        ),
        // These errors affect single objects: a concurrent write, or a protected object.
        ("pods", "collector", 409, 100..=100, 100..=100),
        ("pods", "collector", 403, 100..=100, 100..=100),
    ] {
        let (mock, client) = delete_rejecting_server(resource, prefix, code);
        let mut context = context_with(client);
        context.settings.call_timeout = Duration::from_secs(1);
        let (job, key) = job();
        // The error causes a retry of the job.
        apply(&context, &job, &key, &all).await.unwrap_err();
        let writes = mock.requests().into_iter();
        let writes = writes.filter(|request| request.method != Method::GET);
        let paths: Vec<_> = writes.map(|request| request.path).collect();
        let count = |path| paths.iter().filter(|sent| sent.contains(path)).count();
        let case = format!("{resource} {prefix} {code}: {paths:?}");
        assert!(pods.contains(&count("/pods/collector")), "{case}");
        assert!(services.contains(&count("/services/collector")), "{case}");
        assert_eq!(count("/pods/the-coordinator"), 1, "{case}");
        assert!(
            context.job_state(&key).deferred_creates.is_empty(),
            "{case}"
        );
    }
}

#[tokio::test]
async fn existing_object_without_label_is_deleted() {
    let (job, key) = job();
    let entry = PlanEntry::new("p".to_owned(), Role::Collector, Origin::Declared, 0);
    let new_pod = build_pod(&job, &entry, None, &Settings::default().build);
    let mut existing_pod = new_pod.unwrap().decode().unwrap();
    existing_pod.metadata.uid = Some("pod".to_owned());
    let mut existing_service = build_service(&job, &entry);
    existing_service.metadata.uid = Some("service".to_owned());
    let context = context_with(conflicting_client(&existing_pod, &existing_service));
    let creates = [
        Action::CreatePod(entry.clone()),
        Action::CreateService(entry),
    ];
    assert!(
        !apply(&context, &job, &key, &creates).await.unwrap(),
        "existing objects are added to the cache"
    );
    // The label that the watches select by was removed.
    let view = PodView::new(&existing_pod).unwrap();
    context.pods.on_delete(&view.uid);
    let view = ServiceView::new(&existing_service).unwrap();
    context.services.on_delete(&view.uid);
    for create in creates {
        let failed = apply(&context, &job, &key, &[create]).await.unwrap_err();
        let error = &failed.error;
        assert!(
            matches!(error, Error::OwnObjectNotWatched { .. }),
            "{error}"
        );
        assert_eq!(error.reason(), Reason::PreviousJobTerminating);
    }
}

#[tokio::test]
async fn own_group_without_labels_is_taken() {
    let (job, key) = job();
    let scheduler = GangScheduler::Volcano;
    let mut group = new_group(&job, &scheduler, 2).unwrap();
    group.metadata.labels = None;
    let group = json!(group);
    let mut context = context_with(ApiServerMock::client(move |request| match request.method {
        Method::GET => Reply::Object(200, group.clone()),
        _ => Reply::status(409, "AlreadyExists", ""),
    }));
    context.settings.build.gang = Some(scheduler);
    context.groups.serve(());
    let create = Action::CreateGroup { min_member: 2 };
    assert!(!apply(&context, &job, &key, &[create]).await.unwrap());
    let groups = context.groups.objects.list_by_job(&key);
    let sizes: Vec<_> = groups.iter().map(|group| group.min_member).collect();
    assert_eq!(sizes, [2]);
}

#[tokio::test]
async fn progress_resets_backoff_despite_error() {
    let pods = [Role::Coordinator, Role::Collector].map(|role| {
        let name = role.label().to_owned();
        Action::CreatePod(PlanEntry::new(name, role, Origin::Declared, 0))
    });
    for (rejected, made_progress) in [("collector", true), ("co", false)] {
        let context = context_with(create_rejecting_server(rejected, 500).1);
        let (job, key) = job();
        let fail = || context.backoff.record_failure(&key, &crate::Error::JobGone);
        for _ in 0..5 {
            fail();
        }
        apply(&context, &job, &key, &pods).await.unwrap_err();
        assert_eq!(fail() <= INITIAL_DELAY, made_progress, "{rejected}");
    }
}

#[tokio::test]
async fn pod_is_stopped_once() {
    let client = ApiServerMock::client(|_| Reply::Object(200, json!({})));
    let context = context_with(client);
    let (job, key) = job();
    let pod = di_fixtures::Pod::test("p", "collector").build();
    context.pods.record_created(PodView::new(&pod).unwrap());
    let stop = Action::StopPod {
        name: "p".to_owned(),
        uid: "p-uid".to_owned(),
    };
    apply(&context, &job, &key, &[stop]).await.unwrap();
    let is_stopped = |pods: &[PodView]| pods.iter().all(|pod| pod.deadline_requested);
    assert!(
        is_stopped(&context.pods.list_by_job(&key)),
        "before the watch reports it"
    );
}

#[tokio::test]
async fn failing_object_does_not_block_similar_ones() {
    let (mock, client) = create_rejecting_server("collector-13", 500);
    let context = context_with(client);
    let (job, key) = job();
    let mut missing: Vec<_> = (0..50)
        .map(|i| {
            let name = format!("collector-{i}");
            PlanEntry::new(name, Role::Collector, Origin::Declared, i)
        })
        .collect();
    for attempt in 1.. {
        let creates: Vec<_> = missing.iter().cloned().map(Action::CreatePod).collect();
        let failed = apply(&context, &job, &key, &creates).await.unwrap_err();
        context.backoff.record_failure(&key, &failed.error);
        let requests = mock.requests();
        let names: Vec<_> = requests.iter().map(MockRequest::object_name).collect();
        missing.retain(|entry| entry.index == 13 || !names.contains(&entry.name.as_str()));
        if missing.len() == 1 {
            break;
        }
        assert!(attempt < 50, "{missing:?}");
    }
}

/// Its requests would block the permits of all other jobs until the timeout.
#[tokio::test(start_paused = true)]
async fn unresponsive_job_sends_one_request_at_a_time() {
    let pods: Vec<_> = (0..20)
        .map(|i| {
            let name = format!("collector-{i}");
            Action::CreatePod(PlanEntry::new(name, Role::Collector, Origin::Declared, i))
        })
        .collect();
    let (mock, client) = ApiServerMock::new(|_| Reply::Hang);
    let context = context_with(client);
    let (job, key) = job();
    for expected in [PARALLEL_REQUESTS, 1, 1] {
        let earlier = mock.requests().len();
        let failed = apply(&context, &job, &key, &pods).await.unwrap_err();
        context.backoff.record_failure(&key, &failed.error);
        assert_eq!(mock.requests().len() - earlier, expected);
    }
}
