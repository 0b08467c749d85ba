//! Metrics of the requests for each action.

use super::*;

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
        Action::CreateWorkload(Box::new(draft("workload", ""))),
        Action::UpdateWorkload {
            draft: Box::new(draft("", "pod")),
            resource_version: "1".to_owned(),
        },
        Action::PatchWorkloadStatus(patch_pods_ready(
            &WorkloadView::default(),
            jiff::Timestamp::UNIX_EPOCH,
        )),
        Action::DeleteWorkload {
            name: name(),
            uid: uid(),
        },
        Action::CreateGroup { min_member: 2 },
        Action::UpdateGroup {
            name: name(),
            uid: uid(),
            min_member: 1,
        },
        Action::DeleteGroup {
            name: name(),
            uid: uid(),
        },
        Action::LeaveGroup {
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
            | Action::CreateWorkload(_)
            | Action::UpdateWorkload { .. }
            | Action::PatchWorkloadStatus(_)
            | Action::DeleteWorkload { .. }
            | Action::CreateGroup { .. }
            | Action::UpdateGroup { .. }
            | Action::DeleteGroup { .. }
            | Action::LeaveGroup { .. }
            | Action::DeleteJob => {}
        }
    }
    all
}

fn draft(workload_class: &str, pod_class: &str) -> WorkloadDraft {
    let class = |name: &str| (!name.is_empty()).then(|| name.to_owned());
    WorkloadDraft {
        name: "w".to_owned(),
        queue: "team".to_owned(),
        index: None,
        workload_class: class(workload_class),
        pod_class: class(pod_class),
        pod_sets: Vec::new(),
    }
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
    let (mut context, registry) = context_with_metrics(rejecting_client());
    context.settings.build.gang = Some(GangScheduler::Volcano);
    let before = request_counts(&registry);
    assert!(before.values().all(|count| *count == 0), "{before:?}");

    let (job, key) = job();
    context.workloads.serve(KueueVersion::V1beta2);
    context.groups.serve(());
    apply(&context, &job, &key, &actions()).await.unwrap_err();
    let mut observed = observe(&context, &key, job.clone().into());
    let flavors = read_flavors(&context, &mut observed, vec!["fast".to_owned()]);
    flavors.await.unwrap_err();
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
    let (context, registry) = context_with_metrics(rejecting_client());
    let (_, key) = job();
    let job_reads =
        |registry: &Registry| request_counts(registry)[r#"{verb="get",resource="dijobs"}"#];
    assert!(!fail_invalid_spec(&context, &key).await.unwrap());
    let before = job_reads(&registry);
    context.update_state(&key, |state| state.unacknowledged = Some(Arc::default()));
    replay_unacknowledged(&context, &key).await.unwrap();
    assert_eq!((before, job_reads(&registry)), (1, 2));
}
