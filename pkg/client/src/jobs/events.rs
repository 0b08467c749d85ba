use std::collections::HashSet;

use di_api::{Role, names};
use futures::{StreamExt, future, stream::BoxStream};
use k8s_openapi::{
    api::core::v1::Event as CoreEvent, apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp,
};
use kube::core::ApiResource;
use serde_json::Value;

use crate::{
    Change, Cluster, Job, JobQuery, Result,
    connection::watch::{Selection, watch_objects},
    list_jobs,
};

/// An event of a job or of one of its replicas.
#[derive(Clone, Debug)]
pub struct Event {
    /// Normal or Warning.
    pub type_: String,
    /// Reason in CamelCase.
    pub reason: String,
    /// Message.
    pub message: String,
    /// Component that reported the event.
    pub source: String,
    /// Involved object, for example `pod/cartpole-coordinator`.
    pub about: String,
    /// Number of occurrences.
    pub count: i32,
    /// Time of the first occurrence.
    pub first: Option<Timestamp>,
    /// Time of the last occurrence.
    pub last: Option<Timestamp>,
    /// The whole object.
    pub object: Value,
}

/// A list of events with its resourceVersion.
#[derive(Clone, Debug)]
pub struct JobEvents {
    /// Events, oldest first.
    pub events: Vec<Event>,
    /// Start of a subsequent watch.
    pub resource_version: String,
}

/// Selects the events of one job or of all jobs.
#[derive(Clone, Debug)]
pub struct EventFilter {
    /// None means every namespace.
    namespace: Option<String>,
    scope: Scope,
}

#[derive(Clone, Debug)]
enum Scope {
    OneJob(Box<Job>),
    /// Namespaces and names of the jobs.
    AllJobs(HashSet<(String, String)>),
}

impl EventFilter {
    /// Events of a job and its replicas, including deleted replicas.
    pub fn for_job(job: &Job) -> Self {
        Self {
            namespace: Some(job.namespace().to_owned()),
            scope: Scope::OneJob(Box::new(job.clone())),
        }
    }

    /// Events of all jobs in the current namespace or in all namespaces, and of their replicas.
    ///
    /// Includes deleted jobs that still have events.
    pub async fn for_all_jobs(cluster: &Cluster, all_namespaces: bool) -> Result<Self> {
        let query = JobQuery {
            all_namespaces,
            ..JobQuery::default()
        };
        let jobs = list_jobs(cluster, &query).await?.jobs;
        let names = jobs
            .iter()
            .map(|job| (job.namespace().to_owned(), job.name().to_owned()));
        Ok(Self {
            namespace: (!all_namespaces).then(|| cluster.namespace().name.clone()),
            scope: Scope::AllJobs(names.collect()),
        })
    }

    fn selection(&self) -> Selection {
        Selection {
            api: ApiResource::erase::<CoreEvent>(&()),
            namespace: self.namespace.clone(),
            labels: None,
            fields: None,
        }
    }

    /// Adds the job of an event, which may be deleted already.
    fn note_job(&mut self, event: &Event) {
        if let Scope::AllJobs(jobs) = &mut self.scope
            && let Some(job) = event.job_name()
        {
            jobs.insert((event.namespace().to_owned(), job.to_owned()));
        }
    }

    fn matches_event(&self, event: &Event) -> bool {
        match &self.scope {
            Scope::OneJob(job) => concerns_job(event, job),
            Scope::AllJobs(jobs) => {
                let is_one = |job: &str| {
                    let namespace = event.namespace().to_owned();
                    jobs.contains(&(namespace, job.to_owned()))
                };
                event.job_name().is_some()
                    || event
                        .replica_name()
                        .is_some_and(|name| is_replica_name(name, is_one))
            }
        }
    }
}

/// Lists the selected events.
pub async fn list_events(cluster: &Cluster, filter: &mut EventFilter) -> Result<JobEvents> {
    let listed = filter.selection().list(cluster).await?;
    let mut events: Vec<_> = listed.items.into_iter().map(Event::from).collect();
    for event in &events {
        filter.note_job(event);
    }
    events.retain(|event| filter.matches_event(event));
    events.sort_by_key(|event| event.last);
    Ok(JobEvents {
        events,
        resource_version: listed.resource_version,
    })
}

/// Watches the selected events from `version`, at which the `known` events existed.
///
/// The first error ends the stream.
pub fn watch_events(
    cluster: &Cluster,
    mut filter: EventFilter,
    version: &str,
    known: &[Event],
) -> BoxStream<'static, Result<Event>> {
    let known = known.iter().map(|event| &event.object);
    watch_objects(cluster, filter.selection(), version, known)
        .filter_map(move |change| {
            future::ready(match change {
                Ok(Change::Applied(object)) => {
                    let event = Event::from(object);
                    filter.note_job(&event);
                    filter.matches_event(&event).then_some(Ok(event))
                }
                // Events expire: a deletion is no news.
                Ok(Change::Deleted(_)) => None,
                Err(error) => Some(Err(error)),
            })
        })
        .boxed()
}

impl Event {
    /// Namespace of the event.
    pub fn namespace(&self) -> &str {
        self.object["metadata"]["namespace"]
            .as_str()
            .unwrap_or_default()
    }

    fn involved_name(&self, kinds: &[&str]) -> Option<&str> {
        let regarding = &self.object["involvedObject"];
        let kind = regarding["kind"].as_str()?;
        regarding["name"].as_str().filter(|_| kinds.contains(&kind))
    }

    /// Name of the job, if the event concerns the job itself.
    fn job_name(&self) -> Option<&str> {
        self.involved_name(&["DIJob"])
    }

    /// Name of the pod or service, which may be a replica.
    fn replica_name(&self) -> Option<&str> {
        self.involved_name(&["Pod", "Service"])
    }
}

impl From<Value> for Event {
    fn from(mut object: Value) -> Self {
        // API servers omit both fields in list items.
        if let Some(fields) = object.as_object_mut() {
            fields.entry("kind").or_insert("Event".into());
            fields.entry("apiVersion").or_insert("v1".into());
        }
        let event: CoreEvent = serde_json::from_value(object.clone()).unwrap_or_default();
        let time = |time: Option<Time>| time.map(|time| time.0);
        let series = event.series.unwrap_or_default();
        let event_time = event.event_time.map(|time| time.0);
        let created = time(event.metadata.creation_timestamp);
        let last = series.last_observed_time.map(|time| time.0);
        let first = time(event.first_timestamp).or(event_time).or(created);
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

/// Whether an event concerns this job or one of its replicas.
///
/// Events of a previous job of the same name do not match.
fn concerns_job(event: &Event, job: &Job) -> bool {
    if event.job_name().is_some() {
        let uid = job.metadata.uid.as_deref();
        return uid.is_some() && event.object["involvedObject"]["uid"].as_str() == uid;
    }
    let created = job.metadata.creation_timestamp.as_ref().map(|at| at.0);
    let is_it = |name: &str| is_replica_name(name, |other| other == job.name());
    event.replica_name().is_some_and(is_it) && event.last >= created
}

/// Whether a name has the form of a replica name of a matching job.
///
/// A replica name can match several jobs, because job names may contain dashes.
fn is_replica_name(name: &str, is_one: impl Fn(&str) -> bool) -> bool {
    // The other pods of a unit have the name of their leader and a number.
    let leader = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let leader = leader.strip_suffix('-');
    has_form(name, &is_one) || leader.is_some_and(|leader| has_form(leader, &is_one))
}

fn has_form(name: &str, is_one: impl Fn(&str) -> bool) -> bool {
    let before = |role: Role| {
        let (front, suffix) = name.rsplit_once('-')?;
        let job = front.strip_suffix(role.label())?.strip_suffix('-')?;
        (suffix.len() == names::SUFFIX_LEN).then_some(job)
    };
    names::job_of_coordinator(name).is_some_and(&is_one)
        || Role::ALL.into_iter().filter_map(before).any(&is_one)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::net::TcpListener;

    use super::*;
    use crate::connection::watch::tests::{expired_event, send_full_response, send_response};

    #[tokio::test]
    async fn known_events_are_not_repeated_after_expiry() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let cluster = Cluster::for_test_server(&server).await;
        let event = |name: &str| {
            json!({
                "metadata": {"name": name, "uid": name, "resourceVersion": "1"},
                "involvedObject": {"kind": "DIJob", "name": "j"},
            })
        };
        let filter = EventFilter {
            namespace: None,
            scope: Scope::AllJobs(HashSet::new()),
        };
        let mut events = watch_events(&cluster, filter, "1", &[Event::from(event("old"))]);
        let list = json!({
            "kind": "EventList", "apiVersion": "v1", "metadata": {"resourceVersion": "9"}, "items": [event("old"), event("new")],
        });
        let answers = async {
            let watch = send_response(&server, &expired_event()).await;
            (watch, send_full_response(&server, &list).await)
        };
        let (_open, next) = tokio::join!(answers, events.next());
        let next = next.unwrap().unwrap();
        assert_eq!(next.object["metadata"]["name"], "new");
    }

    #[test]
    fn legacy_and_series_events_decode_alike() {
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
    fn events_of_other_jobs_do_not_match() {
        let created = json!({"creationTimestamp": "2026-01-01T00:01:00Z"});
        let job = Job::from(di_fixtures::Job::test().metadata(created).json());
        let concerns = |kind: &str, name: &str, uid: &str, when: &str| {
            let event = Event::from(json!({
                "involvedObject": {"kind": kind, "name": name, "uid": uid}, "lastTimestamp": when,
            }));
            concerns_job(&event, &job)
        };
        let (before, after) = ("2026-01-01T00:00:59Z", "2026-01-01T00:02:00Z");
        assert!(concerns("DIJob", "j", "u", after));
        assert!(!concerns("DIJob", "j", "earlier", before));
        assert!(concerns("Pod", "j-coordinator", "p", after));
        assert!(concerns("Service", "j-ddp-learner-abcde", "p", after));
        assert!(concerns("Pod", "j-collector-abcde-12", "p", after));
        assert!(
            !concerns("Pod", "j-coordinator", "p", before),
            "of a previous job"
        );
        assert!(!concerns(
            "Pod",
            "j-collector-2-collector-abcde",
            "p",
            after
        ));
        assert!(!concerns("Pod", "j2-coordinator", "p", after));
        assert!(!concerns("ConfigMap", "j-coordinator", "c", after));
    }
    #[test]
    fn filter_of_all_jobs_includes_deleted_jobs() {
        let event = |kind: &str, namespace: &str, name: &str| {
            Event::from(json!({
                "metadata": {"namespace": namespace}, "involvedObject": {"kind": kind, "name": name},
            }))
        };
        let mut filter = EventFilter {
            namespace: None,
            scope: Scope::AllJobs(HashSet::from([("rl".to_owned(), "j-ddp".to_owned())])),
        };
        let deleted = event("Pod", "rl", "deleted-coordinator");
        assert!(!filter.matches_event(&deleted), "not known as a job yet");
        let job_event = event("DIJob", "rl", "deleted");
        filter.note_job(&job_event);
        assert!(filter.matches_event(&deleted) && filter.matches_event(&job_event));
        assert!(filter.matches_event(&event("Pod", "rl", "j-ddp-learner-abcde")));
        for (kind, namespace, name) in [
            ("Pod", "other", "deleted-coordinator"),
            ("Pod", "rl", "j-learner-abcde"),
            ("Pod", "rl", "j-ddp-learner-abc"),
            ("ConfigMap", "rl", "deleted-coordinator"),
        ] {
            assert!(
                !filter.matches_event(&event(kind, namespace, name)),
                "{name}"
            );
        }
    }
}
