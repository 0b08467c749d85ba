use super::*;

#[test]
fn pod_with_label_or_annotation_of_gang_is_in_gang() {
    for (metadata, expected) in [
        (json!({}), false),
        (
            json!({"annotations": {"scheduling.k8s.io/group-name": "g"}}),
            true,
        ),
        (
            json!({"labels": {"scheduling.x-k8s.io/pod-group": "g"}}),
            true,
        ),
        (json!({"annotations": {"pod-group-name": "g"}}), true),
        (json!({"labels": {"applicationId": "u"}}), true),
        (
            json!({"labels": {"queue": "q"}, "annotations": {"kai.scheduler/skip-podgrouper": "true"}}),
            false,
        ),
    ] {
        let pod = di_fixtures::Pod::test("p", "collector").metadata(metadata.clone());
        let view = PodView::new(&pod.build()).unwrap();
        assert_eq!(view.in_gang, expected, "{metadata}");
    }
}

#[test]
fn group_size_is_read_from_all_kinds_of_groups() {
    for (spec, expected) in [
        (json!({"minMember": 3}), 3),
        (json!({"schedulingPolicy": {"gang": {"minCount": 4}}}), 4),
        (json!({}), 0),
    ] {
        let group = json!({"metadata": {"name": "g", "labels": {"dijob-name": "j"}}, "spec": spec});
        let view = GroupView::new(&serde_json::from_value(group).unwrap()).unwrap();
        assert_eq!((view.min_member, &*view.job), (expected, "j"), "{spec}");
    }
    let foreign = json!({"metadata": {"name": "g"}, "spec": {"minMember": 3}});
    assert_eq!(
        GroupView::new(&serde_json::from_value(foreign).unwrap()),
        None
    );
}

#[test]
fn own_group_is_found_by_its_owner_without_job_label() {
    let owner = json!({
        "apiVersion": "diengine.opendilab.org/v1alpha2", "kind": "DIJob", "name": "j", "uid": "u",
        "controller": true,
    });
    for labels in [json!({}), json!({"dijob-name": "other"})] {
        let metadata = json!({"name": "g", "labels": labels, "ownerReferences": [owner]});
        let group = json!({"metadata": metadata, "spec": {}});
        let view = GroupView::new(&serde_json::from_value(group).unwrap()).unwrap();
        assert_eq!((&*view.job, view.owner.as_deref()), ("j", Some("u")));
    }
}
