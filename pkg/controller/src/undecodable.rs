//! Jobs that cannot be decoded. An API server without our webhooks stores them.

use di_api::{CleanPodPolicy, CoordinatorSpec, DIJob, DIJobSpec, DIJobStatus, PodTemplate};
use di_cache::{JobRef, Key};
use kube::{ResourceExt, api::DynamicObject};
use serde_json::Value;
use tracing::warn;

use crate::{
    context::Context,
    error::Result,
    stored_job::{
        OnInvalidSpec, get_stored_job, has_started, is_suspended, parse_field, report_invalid_spec,
        spec_errors,
    },
};

/// The readable fields of a job whose end is stored.
#[derive(Clone)]
pub(crate) struct EndedJob(JobRef);

impl From<EndedJob> for JobRef {
    fn from(EndedJob(job): EndedJob) -> Self {
        job
    }
}

/// Fails a job that cannot be decoded, if it never ran. A running job is only reported as invalid:
/// its pods are worth more than the mistake. Returns the job if it has ended.
pub(crate) async fn fail_undecodable(
    context: &Context,
    key: &Key,
    decode_error: &str,
) -> Result<Option<EndedJob>> {
    let (namespace, name) = key;
    // The error is not logged, as it may quote the environment of the job.
    warn!(
        namespace,
        name, "Cannot decode DIJob; see its status conditions"
    );
    let Some(job) = get_stored_job(context, key).await? else {
        return Ok(None);
    };
    if let Some(ended) = readable_end(&job) {
        return Ok(Some(EndedJob(ended.into())));
    }
    // The validator accepts some nulls that decoding rejects.
    let faults = spec_errors(&job).unwrap_or_else(|| decode_error.to_owned());
    // A job that lost its status may still have running pods.
    let has_pods = context.has_pods(key, job.metadata.uid.as_deref());
    let effect = if has_started(&job) || is_suspended(&job) || has_pods {
        OnInvalidSpec::ReportOnly
    } else {
        OnInvalidSpec::FailJob
    };
    report_invalid_spec(context, &job, &faults, effect).await?;
    Ok(None)
}

/// Returns the fields of an ended job that the clean-up needs. `None` if it has not ended.
///
/// An unreadable field keeps the objects: an unknown policy deletes no pod, and an unknown time does
/// not delete the job. See docs/decisions/0018.
fn readable_end(job: &DynamicObject) -> Option<DIJob> {
    let (spec, status) = (&job.data["spec"], &job.data["status"]);
    let status = DIJobStatus {
        phase: parse_field(&status["phase"]),
        completion_time: parse_field(&status["completionTime"]),
        conditions: parse_field(&status["conditions"]).unwrap_or_default(),
        ..DIJobStatus::default()
    };
    if !status.has_ended() {
        return None;
    }
    let policy = match &spec["cleanPodPolicy"] {
        Value::Null => CleanPodPolicy::default(),
        policy => parse_field(policy).unwrap_or(CleanPodPolicy::None),
    };
    // All fields are listed, because decoding would add the large decoder of pods to the program.
    let spec = DIJobSpec {
        clean_pod_policy: policy,
        ttl_seconds_after_finished: parse_field(&spec["ttlSecondsAfterFinished"]),
        coordinator: CoordinatorSpec {
            template: PodTemplate::default(),
        },
        group: String::new(),
        priority_class_name: String::new(),
        volumes: Vec::new(),
        collector: None,
        learner: None,
        suspend: false,
        active_deadline_seconds: None,
        backoff_limit: 0,
        failure_rules: Vec::new(),
        failure_tails: true,
        queueing: None,
        scheduling: None,
    };
    let mut ended = DIJob::new(&job.name_any(), spec);
    (ended.metadata, ended.status) = (job.metadata.clone(), Some(status));
    Some(ended)
}

#[cfg(test)]
mod tests {
    use di_fixtures::Job;
    use serde_json::json;

    use super::*;

    fn readable_fields(
        spec: &Value,
        status: &Value,
    ) -> Option<(CleanPodPolicy, Option<i32>, bool)> {
        let job = Job::test().spec(spec.clone()).status(status.clone());
        let ended = readable_end(&job.build())?;
        assert_eq!(ended.metadata.uid.as_deref(), Some("u"));
        let at = ended.status.unwrap().completion_time;
        let spec = ended.spec;
        Some((
            spec.clean_pod_policy,
            spec.ttl_seconds_after_finished,
            at.is_some(),
        ))
    }

    #[test]
    fn unreadable_fields_of_ended_job_keep_its_pods() {
        let good = json!({"phase": "Failed", "completionTime": "2027-01-15T08:00:00Z"});
        let all = json!({"cleanPodPolicy": "All", "ttlSecondsAfterFinished": 5, "volumes": 7});
        assert_eq!(
            readable_fields(&all, &good),
            Some((CleanPodPolicy::All, Some(5), true))
        );
        let none = json!({"coordinator": "x"});
        assert_eq!(
            readable_fields(&none, &good),
            Some((CleanPodPolicy::Running, None, true))
        );
        let odd = json!({"cleanPodPolicy": 7, "ttlSecondsAfterFinished": "soon"});
        assert_eq!(
            readable_fields(&odd, &good),
            Some((CleanPodPolicy::None, None, true))
        );
        let odd = json!({"phase": "Succeeded", "completionTime": 7, "plan": 7});
        assert_eq!(
            readable_fields(&all, &odd),
            Some((CleanPodPolicy::All, Some(5), false))
        );

        for running in [
            json!({"phase": "Running"}),
            json!({"phase": 7}),
            Value::Null,
        ] {
            assert_eq!(readable_fields(&all, &running), None, "{running}");
        }
    }
}
