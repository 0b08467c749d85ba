use di_api::{Role, names};
use futures::{StreamExt, future, stream::BoxStream};
use k8s_openapi::{
    api::core::v1::Event as CoreEvent, apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp,
};
use kube::core::ApiResource;
use serde_json::Value;

use crate::{
    Change, Cluster, Job, Result,
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

/// The events of a job and of its replicas, those included that are gone.
pub async fn events(cluster: &Cluster, job: &Job) -> Result<JobEvents> {
    let listed = selection(job).list(cluster).await?;
    let events = listed.items.into_iter().map(Event::from);
    let mut events: Vec<_> = events.filter(|event| is_about(event, job)).collect();
    events.sort_by_key(|event| event.last);
    Ok(JobEvents {
        events,
        resource_version: listed.resource_version,
    })
}

/// The same events as they come, since `version`. The first error ends it.
pub fn watch_events(
    cluster: &Cluster,
    job: &Job,
    version: &str,
) -> BoxStream<'static, Result<Event>> {
    let job = job.clone();
    watch(cluster, selection(&job), version)
        .filter_map(move |change| {
            future::ready(match change {
                Ok(Change::Applied(object)) => Some(Event::from(object))
                    .filter(|event| is_about(event, &job))
                    .map(Ok),
                // They expire.
                Ok(Change::Deleted(_)) => None,
                Err(error) => Some(Err(error)),
            })
        })
        .boxed()
}

fn selection(job: &Job) -> Selection {
    Selection {
        api: ApiResource::erase::<CoreEvent>(&()),
        namespace: Some(job.namespace().to_owned()),
        labels: None,
        fields: None,
        page: None,
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
    let regarding = &event.object["involvedObject"];
    let uid = job.metadata.uid.as_deref();
    if regarding["kind"] == "DIJob" {
        return uid.is_some() && regarding["uid"].as_str() == uid;
    }
    let name = regarding["name"].as_str().unwrap_or_default();
    let created = job.metadata.creation_timestamp.as_ref().map(|at| at.0);
    matches!(regarding["kind"].as_str(), Some("Pod" | "Service"))
        && is_replica_name(name, job.name())
        && event.last >= created
}

fn is_replica_name(name: &str, job: &str) -> bool {
    let suffix = |role| name.strip_prefix(names::replica(job, role, "").as_str());
    name == names::coordinator(job)
        || Role::ALL
            .into_iter()
            .filter_map(suffix)
            .any(|suffix| suffix.len() == names::SUFFIX_LEN && !suffix.contains('-'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
}
