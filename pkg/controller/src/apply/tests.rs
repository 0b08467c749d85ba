//! Tests of the requests to the API server: their metrics, events and errors.

use std::{collections::BTreeMap, time::Duration};

use di_api::{Origin, Role};
use di_cache::JobCache;
use http::{Method, Request, Response};
use kube::{
    Client, Resource,
    client::Body,
    runtime::{
        events::{Event, EventType},
        reflector::store,
    },
};
use prometheus_client::{encoding::text::encode, registry::Registry};
use tower::{BoxError, service_fn};

use super::{fail_fast::MAX_FAILURES, *};
use crate::{
    Metrics, Settings, Step,
    backoff::INITIAL_DELAY,
    event_queue::{EventQueue, QueueItem, QueuedEvent},
    spec_check::fail_invalid_spec,
    status_writer::{replay_unacknowledged, write_status_and_emit},
};

/// A client of a server that rejects every write and has no object. So each request is sent.
fn rejecting_client() -> Client {
    let reject = service_fn(|request: Request<Body>| async move {
        let (code, reason) = match *request.method() {
            Method::GET => (404, "NotFound"),
            Method::POST => (409, "AlreadyExists"),
            _ => (409, "Conflict"),
        };
        let status = json!({"status": "Failure", "reason": reason, "code": code, "message": ""});
        let body = Body::from(status.to_string().into_bytes());
        Response::builder().status(code).body(body)
    });
    Client::new(reject, "ns")
}

/// A client of a server that rejects creates of pods by the prefix of their names, and records the
/// names. Code 0 closes the connection.
fn create_rejecting_client(
    prefix: &'static str,
    code: u16,
    requests: Arc<Mutex<Vec<String>>>,
) -> Client {
    let create = service_fn(move |request: Request<Body>| {
        let requests = requests.clone();
        async move {
            let is_pod = request.uri().path().ends_with("/pods");
            let body = request.into_body().collect_bytes().await?;
            let mut object: serde_json::Value = serde_json::from_slice(&body)?;
            let name = object["metadata"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            let is_rejected = is_pod && name.starts_with(prefix);
            if is_pod {
                requests.lock().unwrap().push(name);
            }
            let reason = match code {
                0 if is_rejected => return Err("reset".into()),
                403 => "Forbidden",
                409 => "Conflict",
                _ => "InternalError",
            };
            let status =
                json!({"status": "Failure", "reason": reason, "code": code, "message": "denied"});
            object["metadata"]["uid"] = object["metadata"]["name"].clone();
            let (code, answer) = if is_rejected {
                (code, status)
            } else {
                (201, object)
            };
            let body = Body::from(answer.to_string().into_bytes());
            Ok::<_, BoxError>(Response::builder().status(code).body(body)?)
        }
    });
    Client::new(create, "ns")
}

/// A client of a server that rejects deletes of a resource by the prefix of the names, and records
/// the path of each write. Code 0 never responds.
fn delete_rejecting_client(
    resource: &'static str,
    prefix: &'static str,
    code: u16,
    requests: Arc<Mutex<Vec<String>>>,
) -> Client {
    let rejected_path = format!("/{resource}/{prefix}");
    let write = service_fn(move |request: Request<Body>| {
        let path = request.uri().path().to_owned();
        let is_rejected = *request.method() == Method::DELETE && path.contains(&rejected_path);
        if *request.method() != Method::GET {
            requests.lock().unwrap().push(path);
        }
        async move {
            let reason = match code {
                0 if is_rejected => std::future::pending().await,
                403 => "Forbidden",
                409 => "Conflict",
                _ => "InternalError",
            };
            let status =
                json!({"status": "Failure", "reason": reason, "code": code, "message": "denied"});
            let (code, answer) = if is_rejected {
                (code, status)
            } else {
                (200, json!({"metadata": {"uid": "u"}}))
            };
            let body = Body::from(answer.to_string().into_bytes());
            Response::builder().status(code).body(body)
        }
    });
    Client::new(write, "ns")
}

/// A client of a server where this pod and this service exist already.
fn conflicting_client(pod: &Pod, service: &Service) -> Client {
    let (pod, service) = (json!(pod).to_string(), json!(service).to_string());
    let conflict =
        json!({"status": "Failure", "reason": "AlreadyExists", "code": 409, "message": ""});
    let respond = service_fn(move |request: Request<Body>| {
        let is_pod = request.uri().path().contains("/pods/");
        let existing = if is_pod { &pod } else { &service };
        let (code, text) = if *request.method() == Method::GET {
            (200_u16, existing.clone())
        } else {
            (409, conflict.to_string())
        };
        let body = Body::from(text.into_bytes());
        std::future::ready(Response::builder().status(code).body(body))
    });
    Client::new(respond, "ns")
}

/// A client of a server that accepts each create.
fn accepting_client() -> Client {
    let create = service_fn(|request: Request<Body>| async move {
        let body = request.into_body().collect_bytes().await?;
        let mut object: serde_json::Value = serde_json::from_slice(&body)?;
        object["metadata"]["uid"] = object["metadata"]["name"].clone();
        let body = Body::from(object.to_string().into_bytes());
        Ok::<_, BoxError>(Response::builder().status(201).body(body)?)
    });
    Client::new(create, "ns")
}

/// A context with the job in its cache.
fn context_with(client: Client, registry: &mut Registry, event_queue: EventQueue) -> Context {
    let jobs = JobCache::new(store().0);
    jobs.record_write(job().0);
    Context::new(
        client,
        Settings::default(),
        Metrics::new(registry),
        jobs,
        Arc::default(),
        Arc::default(),
        event_queue,
    )
}

fn job() -> (DIJob, Key) {
    let template = json!({"template": {"spec": {"containers": [{"name": "di-container"}]}}});
    let job = json!({
        "apiVersion": "diengine.opendilab.org/v1alpha2", "kind": "DIJob",
        "metadata": {"name": "j", "namespace": "ns", "uid": "u", "resourceVersion": "1"},
        "spec": {"coordinator": template, "collector": template, "learner": template},
    });
    let key = ("ns".to_owned(), "j".to_owned());
    (serde_json::from_value(job).unwrap(), key)
}

/// One action of each kind.
fn actions() -> Vec<Action> {
    let entry = PlanEntry::new("p".to_owned(), Role::Coordinator, Origin::Declared, 0);
    let (name, uid) = (|| "p".to_owned(), || "u".to_owned());
    let all = vec![
        Action::CreatePod(entry.clone()),
        Action::CreateService(entry),
        Action::DeletePod {
            name: name(),
            uid: uid(),
        },
        Action::StopPod {
            name: name(),
            uid: uid(),
        },
        Action::DeleteService {
            name: name(),
            uid: uid(),
        },
        Action::DeleteJob,
    ];
    for action in &all {
        match action {
            // The compiler reports a new variant here, so that it is added above.
            Action::CreatePod(_)
            | Action::CreateService(_)
            | Action::DeletePod { .. }
            | Action::StopPod { .. }
            | Action::DeleteService { .. }
            | Action::DeleteJob => {}
        }
    }
    all
}

/// Current values of the request metrics.
fn request_counts(registry: &Registry) -> BTreeMap<String, u64> {
    let mut text = String::new();
    encode(&mut text, registry).unwrap();
    let writes = text
        .lines()
        .filter_map(|line| line.strip_prefix("di_controller_writes_total"));
    let parts = writes.map(|line| line.rsplit_once(' ').unwrap());
    parts
        .map(|(series, count)| (series.to_owned(), count.parse().unwrap()))
        .collect()
}

#[tokio::test]
async fn request_metrics_match_the_sent_requests() {
    let mut registry = Registry::default();
    let context = context_with(rejecting_client(), &mut registry, EventQueue::new().0);
    let before = request_counts(&registry);
    assert!(before.values().all(|count| *count == 0), "{before:?}");

    let (job, key) = job();
    apply_actions(&context, &job, &key, &actions())
        .await
        .unwrap_err();
    let written = write_status_and_emit(&context, &key, &job, Step::default()).await;
    assert!(written.unwrap_err().is_conflict());
    let event = Event {
        type_: EventType::Normal,
        reason: "Tried".to_owned(),
        note: None,
        action: "Try".to_owned(),
        secondary: None,
    };
    context
        .publish_event(&QueuedEvent {
            event,
            regarding: job.object_ref(&()),
            aggregated: true,
        })
        .await
        .unwrap_err();

    let after = request_counts(&registry);
    assert!(after.keys().eq(before.keys()), "{before:?} {after:?}");
    assert!(after.values().all(|count| *count > 0), "{after:?}");
}

#[tokio::test]
async fn reads_of_job_are_counted() {
    let mut registry = Registry::default();
    let context = context_with(rejecting_client(), &mut registry, EventQueue::new().0);
    let (_, key) = job();
    let job_reads =
        |registry: &Registry| request_counts(registry)[r#"{verb="get",resource="dijobs"}"#];
    assert!(!fail_invalid_spec(&context, &key).await.unwrap());
    let before = job_reads(&registry);
    context.update_state(&key, |state| state.unacknowledged = Some(Arc::default()));
    replay_unacknowledged(&context, &key).await.unwrap();
    assert_eq!((before, job_reads(&registry)), (1, 2));
}

#[tokio::test]
async fn created_pods_share_one_event() {
    let (event_queue, shards) = EventQueue::new();
    let context = context_with(accepting_client(), &mut Registry::default(), event_queue);
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
    apply_actions(&context, &job, &key, &all).await.unwrap();
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
        (
            "collector",
            500,
            MAX_FAILURES..=PARALLEL_REQUESTS + MAX_FAILURES,
            100..=100,
        ),
        // A failing server rejects a few of many requests.
        ("collector-3", 500, 100..=100, 100..=100),
    ] {
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let client = create_rejecting_client(rejected, code, requests.clone());
        let context = context_with(client, &mut Registry::default(), EventQueue::new().0);
        let (job, key) = job();
        apply_actions(&context, &job, &key, &all).await.unwrap_err();
        let requests = requests.lock().unwrap();
        let count = |name: &str| {
            requests
                .iter()
                .filter(|request| request.starts_with(name))
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
        let deferred = context.job_state(&key).deferred_creates.objects.len();
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
    let few = || MAX_FAILURES..=PARALLEL_REQUESTS + MAX_FAILURES;
    for (resource, prefix, code, pods, services) in [
        ("pods", "collector", 0, 1..=PARALLEL_REQUESTS, 100..=100),
        ("services", "collector", 0, 100..=100, 1..=PARALLEL_REQUESTS),
        ("pods", "collector", 500, few(), 100..=100),
        ("services", "collector", 500, 100..=100, few()),
        // These errors affect single objects: a concurrent write, or a protected object.
        ("pods", "collector-3", 500, 100..=100, 100..=100),
        ("pods", "collector", 409, 100..=100, 100..=100),
        ("pods", "collector", 403, 100..=100, 100..=100),
    ] {
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let client = delete_rejecting_client(resource, prefix, code, requests.clone());
        let mut context = context_with(client, &mut Registry::default(), EventQueue::new().0);
        context.settings.call_timeout = Duration::from_secs(1);
        let (job, key) = job();
        // The error causes a retry of the job.
        apply_actions(&context, &job, &key, &all).await.unwrap_err();
        let requests = requests.lock().unwrap();
        let count = |path: &str| {
            requests
                .iter()
                .filter(|request| request.contains(path))
                .count()
        };
        let case = format!("{resource} {prefix} {code}: {requests:?}");
        assert!(pods.contains(&count("/pods/collector")), "{case}");
        assert!(services.contains(&count("/services/collector")), "{case}");
        assert_eq!(count("/pods/the-coordinator"), 1, "{case}");
        assert!(
            context.job_state(&key).deferred_creates.objects.is_empty(),
            "{case}"
        );
    }
}

#[tokio::test]
async fn existing_object_without_label_is_not_watched() {
    let (job, key) = job();
    let entry = PlanEntry::new("p".to_owned(), Role::Collector, Origin::Declared, 0);
    let mut existing_pod = build_pod(&job, &entry, None, &Settings::default().build).unwrap();
    existing_pod.metadata.uid = Some("pod".to_owned());
    let mut existing_service = build_service(&job, &entry);
    existing_service.metadata.uid = Some("service".to_owned());
    let client = conflicting_client(&existing_pod, &existing_service);
    let context = context_with(client, &mut Registry::default(), EventQueue::new().0);
    let creates = [
        Action::CreatePod(entry.clone()),
        Action::CreateService(entry),
    ];
    assert!(
        !apply_actions(&context, &job, &key, &creates).await.unwrap(),
        "existing objects are added to the cache"
    );
    // The label that the watches select by was removed.
    let view = PodView::new(&existing_pod).unwrap();
    context.pods.on_delete(&view.uid);
    let view = ServiceView::new(&existing_service).unwrap();
    context.services.on_delete(&view.uid);
    for create in creates {
        let failed = apply_actions(&context, &job, &key, &[create])
            .await
            .unwrap_err();
        let error = &failed.error;
        assert!(
            matches!(error, Error::OwnObjectNotWatched { .. }),
            "{error}"
        );
        assert_eq!(error.reason(), Reason::PreviousJobTerminating);
    }
}

#[tokio::test]
async fn progress_resets_backoff_despite_error() {
    let pods = [Role::Coordinator, Role::Collector].map(|role| {
        let name = role.label().to_owned();
        Action::CreatePod(PlanEntry::new(name, role, Origin::Declared, 0))
    });
    for (rejected, made_progress) in [("collector", true), ("co", false)] {
        let client = create_rejecting_client(rejected, 500, Arc::default());
        let context = context_with(client, &mut Registry::default(), EventQueue::new().0);
        let (job, key) = job();
        let fail = || context.backoff.record_failure(&key, &crate::Error::JobGone);
        for _ in 0..5 {
            fail();
        }
        apply_actions(&context, &job, &key, &pods)
            .await
            .unwrap_err();
        assert_eq!(fail() <= INITIAL_DELAY, made_progress, "{rejected}");
    }
}

#[tokio::test]
async fn pod_is_stopped_once() {
    let patched = service_fn(|_: Request<Body>| async {
        Response::builder().body(Body::from(b"{}".to_vec()))
    });
    let client = Client::new(patched, "ns");
    let context = context_with(client, &mut Registry::default(), EventQueue::new().0);
    let (job, key) = job();
    let pod = json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"dijob-name": "j"}}});
    let view = PodView::new(&serde_json::from_value(pod).unwrap()).unwrap();
    context.pods.record_created(view);
    let stop = Action::StopPod {
        name: "p".to_owned(),
        uid: "u".to_owned(),
    };
    apply_actions(&context, &job, &key, &[stop]).await.unwrap();
    let is_stopped = |pods: &[PodView]| pods.iter().all(|pod| pod.deadline_requested);
    assert!(
        is_stopped(&context.pods.list_by_job(&key)),
        "before the watch reports it"
    );
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
    let requests = Arc::<Mutex<usize>>::default();
    let counter = requests.clone();
    let silent_server = service_fn(move |_: Request<Body>| {
        *counter.lock().unwrap() += 1;
        std::future::pending::<Result<Response<Body>, BoxError>>()
    });
    let context = context_with(
        Client::new(silent_server, "ns"),
        &mut Registry::default(),
        EventQueue::new().0,
    );
    let (job, key) = job();
    for expected in [PARALLEL_REQUESTS, 1, 1] {
        let failed = apply_actions(&context, &job, &key, &pods)
            .await
            .unwrap_err();
        context.backoff.record_failure(&key, &failed.error);
        assert_eq!(std::mem::take(&mut *requests.lock().unwrap()), expected);
    }
}

#[test]
fn most_severe_error_is_reported_until_it_is_solved() {
    let conflict = || Error::NameConflict {
        kind: "pod",
        name: "p".to_owned(),
    };
    let timeout = || Error::Timeout {
        operation: "try".to_owned(),
        seconds: 10,
    };
    let reported = |errors: Vec<Error>, before| {
        let errors = errors.into_iter().map(ApplyError::from).collect();
        most_severe_error(errors, before, None).map(|failed| failed.error.reason())
    };
    let quota = Some("QuotaExceeded");
    for (errors, before, expected) in [
        (vec![], None, None),
        (
            vec![timeout(), conflict()],
            None,
            Some(Reason::NameConflict),
        ),
        (
            vec![conflict(), timeout()],
            None,
            Some(Reason::NameConflict),
        ),
        (
            vec![conflict(), timeout()],
            Some("Timeout"),
            Some(Reason::Timeout),
        ),
        (
            vec![timeout(), conflict()],
            Some("Timeout"),
            Some(Reason::Timeout),
        ),
        (
            vec![timeout(), conflict()],
            quota,
            Some(Reason::NameConflict),
        ),
    ] {
        assert_eq!(reported(errors, before), expected, "{before:?}");
    }
}

#[test]
fn reported_object_is_preferred_among_equal_errors() {
    let failed = |resource, name: &str| ApplyError {
        error: Error::Timeout {
            operation: "try".to_owned(),
            seconds: 10,
        },
        deferred_create: Some((resource, name.to_owned())),
    };
    let all = || {
        vec![
            failed("pods", "a"),
            failed("pods", "b"),
            failed("services", "b"),
        ]
    };
    for object in [("pods", "a"), ("pods", "b"), ("services", "b")] {
        let object = (object.0, object.1.to_owned());
        let reported = most_severe_error(all(), Some("Timeout"), Some(&object))
            .and_then(|failed| failed.deferred_create);
        assert_eq!(reported, Some(object));
    }
}
