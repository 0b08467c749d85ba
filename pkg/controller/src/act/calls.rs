//! What is called is counted, in series that are there from the start, and what comes of it is told.

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

use super::{spared::IN_VAIN, *};
use crate::{
    Metrics, Settings, Step,
    backoff::FIRST,
    outbox::{Item, News, Outbox},
    raw::fail_invalid,
    status::{tell_unsaid, write_and_tell},
};

/// A client of a server that refuses every write, and then has nothing of what it was about: so all is tried that there is.
fn refused() -> Client {
    let refuse = service_fn(|request: Request<Body>| async move {
        let (code, reason) = match *request.method() {
            Method::GET => (404, "NotFound"),
            Method::POST => (409, "AlreadyExists"),
            _ => (409, "Conflict"),
        };
        let status = json!({"status": "Failure", "reason": reason, "code": code, "message": ""});
        let body = Body::from(status.to_string().into_bytes());
        Response::builder().status(code).body(body)
    });
    Client::new(refuse, "ns")
}

/// A client of a server that answers some pods so, by what their names begin with, or with 0 not at all, and tells of each that it was asked for.
fn refusing(begin: &'static str, code: u16, asked: Arc<Mutex<Vec<String>>>) -> Client {
    let make = service_fn(move |request: Request<Body>| {
        let asked = asked.clone();
        async move {
            let is_pod = request.uri().path().ends_with("/pods");
            let body = request.into_body().collect_bytes().await?;
            let mut object: serde_json::Value = serde_json::from_slice(&body)?;
            let name = object["metadata"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            let is_refused = is_pod && name.starts_with(begin);
            if is_pod {
                asked.lock().unwrap().push(name);
            }
            let reason = match code {
                0 if is_refused => return Err("reset".into()),
                403 => "Forbidden",
                409 => "Conflict",
                _ => "InternalError",
            };
            let status =
                json!({"status": "Failure", "reason": reason, "code": code, "message": "denied"});
            object["metadata"]["uid"] = object["metadata"]["name"].clone();
            let (code, answer) = if is_refused {
                (code, status)
            } else {
                (201, object)
            };
            let body = Body::from(answer.to_string().into_bytes());
            Ok::<_, BoxError>(Response::builder().status(code).body(body)?)
        }
    });
    Client::new(make, "ns")
}

/// A client of a server that answers so when some objects of a resource are to be deleted, by what their names begin with, or with 0 not at all,
/// and tells of each write by its path.
fn keeping(
    resource: &'static str,
    begin: &'static str,
    code: u16,
    asked: Arc<Mutex<Vec<String>>>,
) -> Client {
    let kept = format!("/{resource}/{begin}");
    let write = service_fn(move |request: Request<Body>| {
        let path = request.uri().path().to_owned();
        let is_kept = *request.method() == Method::DELETE && path.contains(&kept);
        if *request.method() != Method::GET {
            asked.lock().unwrap().push(path);
        }
        async move {
            let reason = match code {
                0 if is_kept => std::future::pending().await,
                403 => "Forbidden",
                409 => "Conflict",
                _ => "InternalError",
            };
            let status =
                json!({"status": "Failure", "reason": reason, "code": code, "message": "denied"});
            let (code, answer) = if is_kept {
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

/// A client of a server that has this pod or this service already, whatever is to be made.
fn having(pod: &Pod, service: &Service) -> Client {
    let (pod, service) = (json!(pod).to_string(), json!(service).to_string());
    let taken = json!({"status": "Failure", "reason": "AlreadyExists", "code": 409, "message": ""});
    let answer = service_fn(move |request: Request<Body>| {
        let is_pod = request.uri().path().contains("/pods/");
        let there = if is_pod { &pod } else { &service };
        let (code, text) = if *request.method() == Method::GET {
            (200_u16, there.clone())
        } else {
            (409, taken.to_string())
        };
        let body = Body::from(text.into_bytes());
        std::future::ready(Response::builder().status(code).body(body))
    });
    Client::new(answer, "ns")
}

/// A client of a server that makes whatever it is asked to.
fn obliging() -> Client {
    let make = service_fn(|request: Request<Body>| async move {
        let body = request.into_body().collect_bytes().await?;
        let mut object: serde_json::Value = serde_json::from_slice(&body)?;
        object["metadata"]["uid"] = object["metadata"]["name"].clone();
        let body = Body::from(object.to_string().into_bytes());
        Ok::<_, BoxError>(Response::builder().status(201).body(body)?)
    });
    Client::new(make, "ns")
}

/// Of a reconciler that knows the job.
fn context(client: Client, registry: &mut Registry, outbox: Outbox) -> Context {
    let jobs = JobCache::new(store().0);
    jobs.written(job().0);
    Context::new(
        client,
        Settings::default(),
        Metrics::new(registry),
        jobs,
        Arc::default(),
        Arc::default(),
        outbox,
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

/// One of each.
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
        Action::EndPod {
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
            // One that is not named here is not made above either.
            Action::CreatePod(_)
            | Action::CreateService(_)
            | Action::DeletePod { .. }
            | Action::EndPod { .. }
            | Action::DeleteService { .. }
            | Action::DeleteJob => {}
        }
    }
    all
}

/// Writes as they were counted so far.
fn counts(registry: &Registry) -> BTreeMap<String, u64> {
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
async fn whatever_is_called_was_listed_before_and_whatever_is_listed_is_called() {
    let mut registry = Registry::default();
    let context = context(refused(), &mut registry, Outbox::new().0);
    let before = counts(&registry);
    assert!(before.values().all(|count| *count == 0), "{before:?}");

    let (job, key) = job();
    act(&context, &job, &key, &actions()).await.unwrap_err();
    let written = write_and_tell(&context, &key, &job, Step::default()).await;
    assert!(written.unwrap_err().is_conflict());
    let event = Event {
        type_: EventType::Normal,
        reason: "Tried".to_owned(),
        note: None,
        action: "Try".to_owned(),
        secondary: None,
    };
    context
        .send(&News {
            event,
            about: job.object_ref(&()),
            counted: true,
        })
        .await
        .unwrap_err();

    let after = counts(&registry);
    assert!(after.keys().eq(before.keys()), "{before:?} {after:?}");
    assert!(after.values().all(|count| *count > 0), "{after:?}");
}

#[tokio::test]
async fn reads_of_the_job_are_counted() {
    let mut registry = Registry::default();
    let context = context(refused(), &mut registry, Outbox::new().0);
    let (_, key) = job();
    let counted = |registry: &Registry| counts(registry)[r#"{verb="get",resource="dijobs"}"#];
    assert!(!fail_invalid(&context, &key).await.unwrap());
    let before = counted(&registry);
    context.remember(&key, |memory| memory.unsaid = Some(Arc::default()));
    tell_unsaid(&context, &key).await.unwrap();
    assert_eq!((before, counted(&registry)), (1, 2));
}

#[tokio::test]
async fn all_that_is_made_at_one_time_is_told_by_one_event() {
    let (outbox, lanes) = Outbox::new();
    let context = context(obliging(), &mut Registry::default(), outbox);
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
    act(&context, &job, &key, &all).await.unwrap();
    let told: Vec<_> = lanes
        .into_iter()
        .flat_map(|mut lane| std::iter::from_fn(move || lane.try_recv().ok()))
        .filter_map(|item| match item {
            Item::News(news) => Some((news.event.reason, news.event.note.unwrap())),
            Item::Flush(_) => None,
        })
        .collect();
    let message = "created z, a, b, c, d and 1 more".to_owned();
    assert_eq!(told, [("SuccessfulCreate".to_owned(), message)]);
}

#[tokio::test]
async fn what_is_refused_to_one_is_not_asked_for_by_others_like_it() {
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
    for (refused, code, collectors, learners) in [
        ("the-coordinator", 403, 0..=0, 0..=0),
        ("the-coordinator", 500, 0..=0, 0..=0),
        // Who else writes the quota at the same time; whether it was made is not known.
        ("the-coordinator", 409, 0..=0, 0..=0),
        ("the-coordinator", 0, 0..=0, 0..=0),
        ("collector", 403, 1..=IN_PARALLEL, 100..=100),
        ("collector", 500, IN_VAIN..=IN_PARALLEL + IN_VAIN, 100..=100),
        // Some of many are failed, by a server that is ill.
        ("collector-3", 500, 100..=100, 100..=100),
    ] {
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let client = refusing(refused, code, asked.clone());
        let context = context(client, &mut Registry::default(), Outbox::new().0);
        let (job, key) = job();
        act(&context, &job, &key, &all).await.unwrap_err();
        let asked = asked.lock().unwrap();
        let of = |name: &str| asked.iter().filter(|asked| asked.starts_with(name)).count();
        assert_eq!(of("the-coordinator"), 1);
        assert!(
            collectors.contains(&of("collector")),
            "{refused} {code}: {asked:?}"
        );
        assert!(
            learners.contains(&of("learner")),
            "{refused} {code}: {asked:?}"
        );
        let put_off = context.memory(&key).refused.creates.len();
        let expected = match code {
            409 => 0,
            _ => all.len() - asked.len() + of(refused),
        };
        assert_eq!(put_off, expected, "{refused} {code}");
    }
}

#[tokio::test]
async fn where_deletions_are_in_vain_few_are_tried() {
    let uid = || "u".to_owned();
    let names = || (0..100).map(|i| format!("collector-{i}"));
    let pods = names().map(|name| Action::DeletePod { name, uid: uid() });
    let services = names().map(|name| Action::DeleteService { name, uid: uid() });
    let end = Action::EndPod {
        name: "the-coordinator".to_owned(),
        uid: uid(),
    };
    let all: Vec<_> = pods.chain(services).chain([end]).collect();
    let in_vain = || IN_VAIN..=IN_PARALLEL + IN_VAIN;
    for (resource, begin, code, pods, services) in [
        ("pods", "collector", 0, 1..=IN_PARALLEL, 100..=100),
        ("services", "collector", 0, 100..=100, 1..=IN_PARALLEL),
        ("pods", "collector", 500, in_vain(), 100..=100),
        ("services", "collector", 500, 100..=100, in_vain()),
        // What befalls one says nothing of the others: it was written at the same moment, or is protected.
        ("pods", "collector-3", 500, 100..=100, 100..=100),
        ("pods", "collector", 409, 100..=100, 100..=100),
        ("pods", "collector", 403, 100..=100, 100..=100),
    ] {
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let client = keeping(resource, begin, code, asked.clone());
        let mut context = context(client, &mut Registry::default(), Outbox::new().0);
        context.settings.call_timeout = Duration::from_secs(1);
        let (job, key) = job();
        // So the job is tried again.
        act(&context, &job, &key, &all).await.unwrap_err();
        let asked = asked.lock().unwrap();
        let of = |path: &str| asked.iter().filter(|asked| asked.contains(path)).count();
        let what = format!("{resource} {begin} {code}: {asked:?}");
        assert!(pods.contains(&of("/pods/collector")), "{what}");
        assert!(services.contains(&of("/services/collector")), "{what}");
        assert_eq!(of("/pods/the-coordinator"), 1, "{what}");
        assert!(context.memory(&key).refused.creates.is_empty(), "{what}");
    }
}

#[tokio::test]
async fn what_is_there_though_the_watch_has_shown_it_going_is_waited_for() {
    let (job, key) = job();
    let entry = PlanEntry::new("p".to_owned(), Role::Collector, Origin::Declared, 0);
    let mut its_pod = pod(&job, &entry, None, &Settings::default().build).unwrap();
    its_pod.metadata.uid = Some("pod".to_owned());
    let mut its_service = service(&job, &entry);
    its_service.metadata.uid = Some("service".to_owned());
    let client = having(&its_pod, &its_service);
    let context = context(client, &mut Registry::default(), Outbox::new().0);
    let creates = [
        Action::CreatePod(entry.clone()),
        Action::CreateService(entry),
    ];
    assert!(
        !act(&context, &job, &key, &creates).await.unwrap(),
        "they are taken in"
    );
    // A label by which they are watched was taken away.
    let view = PodView::new(&its_pod).unwrap();
    context.pods.deleted(&view.uid);
    let view = ServiceView::new(&its_service).unwrap();
    context.services.deleted(&view.uid);
    for create in creates {
        let failed = act(&context, &job, &key, &[create]).await.unwrap_err();
        assert_eq!(failed.error.reason(), Reason::PreviousJobTerminating);
    }
}

#[tokio::test]
async fn a_job_that_got_on_waits_as_after_a_first_failure() {
    let pods = [Role::Coordinator, Role::Collector].map(|role| {
        let name = role.label().to_owned();
        Action::CreatePod(PlanEntry::new(name, role, Origin::Declared, 0))
    });
    for (refused, got_on) in [("collector", true), ("co", false)] {
        let client = refusing(refused, 500, Arc::default());
        let context = context(client, &mut Registry::default(), Outbox::new().0);
        let (job, key) = job();
        let fail = || context.backoff.failed(&key, &crate::Error::JobGone);
        for _ in 0..5 {
            fail();
        }
        act(&context, &job, &key, &pods).await.unwrap_err();
        assert_eq!(fail() <= FIRST, got_on, "{refused}");
    }
}

#[tokio::test]
async fn a_pod_is_told_to_end_once() {
    let patched = service_fn(|_: Request<Body>| async {
        Response::builder().body(Body::from(b"{}".to_vec()))
    });
    let client = Client::new(patched, "ns");
    let context = context(client, &mut Registry::default(), Outbox::new().0);
    let (job, key) = job();
    let pod = json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"dijob-name": "j"}}});
    let view = PodView::new(&serde_json::from_value(pod).unwrap()).unwrap();
    context.pods.created(view);
    let end = Action::EndPod {
        name: "p".to_owned(),
        uid: "u".to_owned(),
    };
    act(&context, &job, &key, &[end]).await.unwrap();
    let told = |pods: &[PodView]| pods.iter().all(|pod| pod.told_to_end);
    assert!(
        told(&context.pods.of_job(&key)),
        "before the watch shows it"
    );
}

/// They would take the turns and calls of all others, each for as long as a call may take.
#[tokio::test(start_paused = true)]
async fn of_a_job_that_hangs_one_call_is_made_at_a_time() {
    let pods: Vec<_> = (0..20)
        .map(|i| {
            let name = format!("collector-{i}");
            Action::CreatePod(PlanEntry::new(name, Role::Collector, Origin::Declared, i))
        })
        .collect();
    let asked = Arc::<Mutex<usize>>::default();
    let counted = asked.clone();
    let never = service_fn(move |_: Request<Body>| {
        *counted.lock().unwrap() += 1;
        std::future::pending::<Result<Response<Body>, BoxError>>()
    });
    let context = context(
        Client::new(never, "ns"),
        &mut Registry::default(),
        Outbox::new().0,
    );
    let (job, key) = job();
    for expected in [IN_PARALLEL, 1, 1] {
        let failed = act(&context, &job, &key, &pods).await.unwrap_err();
        context.backoff.failed(&key, &failed.error);
        assert_eq!(std::mem::take(&mut *asked.lock().unwrap()), expected);
    }
}
