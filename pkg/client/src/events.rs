use std::collections::HashSet;

use di_api::{Role, names};
use futures::{StreamExt, future, stream::BoxStream};
use k8s_openapi::{
    api::core::v1::Event as CoreEvent, apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp,
};
use kube::core::ApiResource;
use serde_json::Value;

use crate::{
    Change, Cluster, Job, JobQuery, Result, jobs,
    watch::{Selection, watch},
};

/// What Kubernetes or the orchestrator told of a job or of one of its replicas.
#[derive(Clone, Debug)]
pub struct Event {
    /// Normal or Warning.
    pub type_: String,
    /// Why, in one word.
    pub reason: String,
    /// What happened.
    pub message: String,
    /// Who tells.
    pub source: String,
    /// Of whom, as `pod/cartpole-coordinator`.
    pub about: String,
    /// How often.
    pub count: i32,
    /// When it was first told.
    pub first: Option<Timestamp>,
    /// When it was last told.
    pub last: Option<Timestamp>,
    /// All of it.
    pub object: Value,
}

/// Events, oldest first, and the version at which they were seen.
#[derive(Clone, Debug)]
pub struct JobEvents {
    /// The events.
    pub events: Vec<Event>,
    /// Where a watch goes on from.
    pub resource_version: String,
}

/// Of whom events are asked for.
#[derive(Clone, Debug)]
pub struct EventFilter {
    /// None means every namespace.
    namespace: Option<String>,
    of: Of,
}

#[derive(Clone, Debug)]
enum Of {
    One(Box<Job>),
    /// Those of these namespaces and names.
    Any(HashSet<(String, String)>),
}

impl EventFilter {
    /// A job and its replicas, those included that are gone.
    pub fn job(job: &Job) -> Self {
        Self {
            namespace: Some(job.namespace().to_owned()),
            of: Of::One(Box::new(job.clone())),
        }
    }

    /// Every job of the current namespace, or of all, and their replicas; also of jobs that are gone while anything is told of them.
    pub async fn any(cluster: &Cluster, all_namespaces: bool) -> Result<Self> {
        let query = JobQuery {
            all_namespaces,
            ..JobQuery::default()
        };
        let jobs = jobs(cluster, &query).await?.jobs;
        let names = jobs
            .iter()
            .map(|job| (job.namespace().to_owned(), job.name().to_owned()));
        Ok(Self {
            namespace: (!all_namespaces).then(|| cluster.namespace().name.clone()),
            of: Of::Any(names.collect()),
        })
    }

    fn selection(&self) -> Selection {
        Selection {
            api: ApiResource::erase::<CoreEvent>(&()),
            namespace: self.namespace.clone(),
            labels: None,
            fields: None,
            page: None,
        }
    }

    /// Notes which jobs an event tells of.
    fn learn(&mut self, event: &Event) {
        if let Of::Any(jobs) = &mut self.of
            && let Some(job) = event.job()
        {
            jobs.insert((event.namespace().to_owned(), job.to_owned()));
        }
    }

    fn includes(&self, event: &Event) -> bool {
        match &self.of {
            Of::One(job) => is_about(event, job),
            Of::Any(jobs) => {
                let is_one = |job: &str| {
                    let namespace = event.namespace().to_owned();
                    jobs.contains(&(namespace, job.to_owned()))
                };
                event.job().is_some() || event.replica().is_some_and(|name| is_of_any(name, is_one))
            }
        }
    }
}

/// The events of these.
pub async fn events(cluster: &Cluster, whose: &mut EventFilter) -> Result<JobEvents> {
    let listed = whose.selection().list(cluster).await?;
    let mut events: Vec<_> = listed.items.into_iter().map(Event::from).collect();
    for event in &events {
        whose.learn(event);
    }
    events.retain(|event| whose.includes(event));
    events.sort_by_key(|event| event.last);
    Ok(JobEvents {
        events,
        resource_version: listed.resource_version,
    })
}

/// The same events as they come, since `version`, when those that are `known` had been told. The first error ends it.
pub fn watch_events(
    cluster: &Cluster,
    mut whose: EventFilter,
    version: &str,
    known: &[Event],
) -> BoxStream<'static, Result<Event>> {
    let known = known.iter().map(|event| &event.object);
    watch(cluster, whose.selection(), version, known)
        .filter_map(move |change| {
            future::ready(match change {
                Ok(Change::Applied(object)) => {
                    let event = Event::from(object);
                    whose.learn(&event);
                    whose.includes(&event).then_some(Ok(event))
                }
                // They expire.
                Ok(Change::Deleted(_)) => None,
                Err(error) => Some(Err(error)),
            })
        })
        .boxed()
}

impl Event {
    /// The namespace of what it tells of.
    pub fn namespace(&self) -> &str {
        self.object["metadata"]["namespace"]
            .as_str()
            .unwrap_or_default()
    }

    fn regarding(&self, kinds: &[&str]) -> Option<&str> {
        let regarding = &self.object["involvedObject"];
        let kind = regarding["kind"].as_str()?;
        regarding["name"].as_str().filter(|_| kinds.contains(&kind))
    }

    /// The job that it tells of itself.
    fn job(&self) -> Option<&str> {
        self.regarding(&["DIJob"])
    }

    /// What may be a replica of one.
    fn replica(&self) -> Option<&str> {
        self.regarding(&["Pod", "Service"])
    }
}

impl From<Value> for Event {
    fn from(mut object: Value) -> Self {
        // Servers leave both out of the items of a list.
        if let Some(fields) = object.as_object_mut() {
            fields.entry("kind").or_insert("Event".into());
            fields.entry("apiVersion").or_insert("v1".into());
        }
        let event: CoreEvent = serde_json::from_value(object.clone()).unwrap_or_default();
        let time = |time: Option<Time>| time.map(|time| time.0);
        let series = event.series.unwrap_or_default();
        let told = event.event_time.map(|time| time.0);
        let created = time(event.metadata.creation_timestamp);
        let last = series.last_observed_time.map(|time| time.0);
        let first = time(event.first_timestamp).or(told).or(created);
        let source = event.source.unwrap_or_default().component;
        let regarding = event.involved_object;
        Self {
            type_: event.type_.unwrap_or_default(),
            reason: event.reason.unwrap_or_default(),
            message: event.message.unwrap_or_default().trim().to_owned(),
            source: source
                .filter(|source| !source.is_empty())
                .or(event.reporting_component)
                .unwrap_or_default(),
            about: format!(
                "{}/{}",
                regarding.kind.unwrap_or_default().to_lowercase(),
                regarding.name.unwrap_or_default()
            ),
            count: series.count.or(event.count).unwrap_or(1).max(1),
            last: last.or(time(event.last_timestamp)).or(first),
            first,
            object,
        }
    }
}

/// Whether an event tells of this job, or of a replica that it has or had; not of an earlier job of the same name.
fn is_about(event: &Event, job: &Job) -> bool {
    if event.job().is_some() {
        let uid = job.metadata.uid.as_deref();
        return uid.is_some() && event.object["involvedObject"]["uid"].as_str() == uid;
    }
    let created = job.metadata.creation_timestamp.as_ref().map(|at| at.0);
    let is_it = |name: &str| is_of_any(name, |other| other == job.name());
    event.replica().is_some_and(is_it) && event.last >= created
}

/// Whether this is how a replica of such a job is called; the names of two jobs may allow it.
fn is_of_any(name: &str, is_one: impl Fn(&str) -> bool) -> bool {
    let before = |role: Role| {
        let (front, suffix) = name.rsplit_once('-')?;
        let job = front.strip_suffix(role.label())?.strip_suffix('-')?;
        (suffix.len() == names::SUFFIX_LEN).then_some(job)
    };
    names::job_of_coordinator(name).is_some_and(&is_one)
        || Role::ALL.into_iter().filter_map(before).any(is_one)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::net::TcpListener;

    use super::*;
    use crate::watch::tests::{answer, answer_whole, expired};

    #[tokio::test]
    async fn what_was_told_before_a_watch_expired_is_not_told_again() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let cluster = Cluster::for_test_server(&server).await;
        let event = |name: &str| {
            json!({
                "metadata": {"name": name, "uid": name, "resourceVersion": "1"},
                "involvedObject": {"kind": "DIJob", "name": "j"},
            })
        };
        let whose = EventFilter {
            namespace: None,
            of: Of::Any(HashSet::new()),
        };
        let mut told = watch_events(&cluster, whose, "1", &[Event::from(event("old"))]);
        let list = json!({
            "kind": "EventList", "apiVersion": "v1", "metadata": {"resourceVersion": "9"}, "items": [event("old"), event("new")],
        });
        let answers = async {
            let watch = answer(&server, &expired()).await;
            (watch, answer_whole(&server, &list).await)
        };
        let (_open, next) = tokio::join!(answers, told.next());
        let next = next.unwrap().unwrap();
        assert_eq!(next.object["metadata"]["name"], "new");
    }

    #[test]
    fn old_and_new_events_are_read_alike() {
        let old = Event::from(json!({
            "metadata": {"name": "e"}, "type": "Warning", "reason": "BackOff", "message": "waits\n", "count": 3,
            "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:05:00Z",
            "source": {"component": "kubelet"}, "involvedObject": {"kind": "Pod", "name": "j-coordinator"},
        }));
        let new = Event::from(json!({
            "metadata": {"name": "e"}, "type": "Warning", "reason": "BackOff", "message": "waits",
            "eventTime": "2026-01-01T00:00:00.000000Z", "reportingComponent": "kubelet",
            "series": {"count": 3, "lastObservedTime": "2026-01-01T00:05:00.000000Z"},
            "involvedObject": {"kind": "Pod", "name": "j-coordinator"},
        }));
        for event in [&old, &new] {
            assert_eq!(event.count, 3);
            assert_eq!(event.about, "pod/j-coordinator");
            assert_eq!(
                (event.source.as_str(), event.message.as_str()),
                ("kubelet", "waits")
            );
            assert_eq!(event.first, Some("2026-01-01T00:00:00Z".parse().unwrap()));
            assert_eq!(event.last, Some("2026-01-01T00:05:00Z".parse().unwrap()));
        }
    }

    #[test]
    fn events_of_other_jobs_are_left_out() {
        let job = Job::from(json!({"metadata": {
            "name": "j", "uid": "u", "creationTimestamp": "2026-01-01T00:01:00Z",
        }}));
        let about = |kind: &str, name: &str, uid: &str, when: &str| {
            let event = Event::from(json!({
                "involvedObject": {"kind": kind, "name": name, "uid": uid}, "lastTimestamp": when,
            }));
            is_about(&event, &job)
        };
        let (before, after) = ("2026-01-01T00:00:59Z", "2026-01-01T00:02:00Z");
        assert!(about("DIJob", "j", "u", after));
        assert!(!about("DIJob", "j", "earlier", before));
        assert!(about("Pod", "j-coordinator", "p", after));
        assert!(about("Service", "j-ddp-learner-abcde", "p", after));
        assert!(
            !about("Pod", "j-coordinator", "p", before),
            "of an earlier job"
        );
        assert!(!about("Pod", "j-collector-2-collector-abcde", "p", after));
        assert!(!about("Pod", "j2-coordinator", "p", after));
        assert!(!about("ConfigMap", "j-coordinator", "c", after));
    }
    #[test]
    fn events_of_any_job_are_those_of_jobs_that_are_or_were_told_of() {
        let event = |kind: &str, namespace: &str, name: &str| {
            Event::from(json!({
                "metadata": {"namespace": namespace}, "involvedObject": {"kind": kind, "name": name},
            }))
        };
        let mut whose = EventFilter {
            namespace: None,
            of: Of::Any(HashSet::from([("rl".to_owned(), "j-ddp".to_owned())])),
        };
        let gone = event("Pod", "rl", "gone-coordinator");
        assert!(!whose.includes(&gone), "it may be a stranger");
        let told = event("DIJob", "rl", "gone");
        whose.learn(&told);
        assert!(whose.includes(&gone) && whose.includes(&told));
        assert!(whose.includes(&event("Pod", "rl", "j-ddp-learner-abcde")));
        for (kind, namespace, name) in [
            ("Pod", "other", "gone-coordinator"),
            ("Pod", "rl", "j-learner-abcde"),
            ("Pod", "rl", "j-ddp-learner-abc"),
            ("ConfigMap", "rl", "gone-coordinator"),
        ] {
            assert!(!whose.includes(&event(kind, namespace, name)), "{name}");
        }
    }
}
