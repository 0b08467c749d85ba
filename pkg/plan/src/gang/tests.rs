use di_api::{DIJob, Origin, PlanEntry, PodTemplate, names::gang};
use di_fixtures::Job;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{
    build::{BuildSettings, NewPod},
    ops::find_entry,
    pod::build_pod,
    view::{GroupView, PodView},
};

fn entry(name: &str, role: &str, index: i32, more: &Value) -> Value {
    let mut entry = json!({"name": name, "type": role, "origin": "Declared", "index": index});
    let more = more.as_object().unwrap().clone();
    entry.as_object_mut().unwrap().extend(more);
    entry
}

fn collector(name: &str, index: i32, more: &Value) -> Value {
    entry(name, "Collector", index, more)
}

fn ddp_learner(name: &str, start_rank: i32) -> Value {
    let place = json!({"aggregator": "a", "worldSize": 2, "startRank": start_rank});
    let more = json!({"resources": {"gpus": "1"}, "ddp": place});
    entry(name, "DDPLearner", start_rank, &more)
}

/// A pod of the unit of two whose leader is `u`.
fn unit_pod(name: &str, place: i32) -> Value {
    let leader = (place > 0).then_some("u");
    collector(
        name,
        0,
        &json!({"unit": {"leader": leader, "index": place, "size": 2}}),
    )
}

fn job_with_gang(gang: &Value) -> DIJob {
    let scheduling = json!({"gang": gang, "queue": "research", "topologyKey": "rack"});
    Job::test().spec(json!({"scheduling": scheduling})).build()
}

fn parse_plan(plan: &[Value]) -> Vec<PlanEntry> {
    serde_json::from_value(json!(plan)).unwrap()
}

#[test]
fn floor_has_first_declared_replicas() {
    let none = json!({});
    let (c0, c1) = (collector("c0", 0, &none), collector("c1", 1, &none));
    let (l0, a) = (
        entry("l0", "Learner", 0, &none),
        entry("a", "Aggregator", 1, &none),
    );
    let (d0, d1) = (ddp_learner("d0", 0), ddp_learner("d1", 1));
    let requested = collector("r", 0, &json!({"origin": "Requested"}));
    let queued = collector("q", 0, &json!({"queue": "Admitted"}));
    let done = collector("c0", 0, &json!({"done": true}));
    let replaced = collector("old", 0, &json!({"state": "Replaced"}));
    let removed = collector("c0", 0, &json!({"state": "Removing"}));
    let (u, v) = (unit_pod("u", 0), unit_pod("v", 1));
    let one = json!({"minCollectors": 1});
    for (what, gang, plan, expected) in [
        ("all", json!({}), vec![&c0, &c1, &l0], Some("c0 c1 l0")),
        ("first", one.clone(), vec![&c1, &c0, &l0], Some("c0 l0")),
        ("requested", json!({}), vec![&requested, &c1], Some("c1")),
        (
            "quota of its own",
            one.clone(),
            vec![&queued, &c1],
            Some("c1"),
        ),
        ("done", one.clone(), vec![&done, &c1, &l0], Some("l0")),
        (
            "replaced",
            one.clone(),
            vec![&replaced, &c1, &c0],
            Some("c0"),
        ),
        ("removed", one, vec![&removed, &c1], Some("c1")),
        (
            "unit",
            json!({"minCollectors": 1}),
            vec![&u, &v, &c1],
            Some("u v"),
        ),
        ("incomplete unit", json!({}), vec![&u, &c1], None),
        (
            "learner group",
            json!({"minLearners": 2}),
            vec![&a, &d1, &d0, &l0],
            Some("a d0 d1 l0"),
        ),
        (
            "not split",
            json!({"minLearners": 1}),
            vec![&a, &l0],
            Some("l0"),
        ),
        ("not split", json!({}), vec![&a, &l0], None),
        ("half split", json!({}), vec![&a, &d0], None),
        (
            "only coordinator",
            json!({"minCollectors": 0, "minLearners": 0}),
            vec![&c0, &a],
            Some(""),
        ),
    ] {
        let plan: Vec<Value> = plan.into_iter().cloned().collect();
        let plan = parse_plan(&plan);
        let floor = floor_members(&job_with_gang(&gang), &plan);
        let floor = floor.map(|names| names.into_iter().collect::<Vec<_>>().join(" "));
        assert_eq!(floor.as_deref(), expected, "{what}");
    }
    let plan = parse_plan(&[c0]);
    let job = Job::test().build();
    assert!(floor_members(&job, &plan).unwrap().is_empty(), "no gang");
}

proptest! {
    #[test]
    fn floor_is_bounded_and_independent_of_order(
        fields in prop::collection::vec((0..4_i32, any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()), 0..12),
        min in prop::option::of(0..6_i32),
        turn in 0..12_usize,
    ) {
        let entries = fields.into_iter().enumerate();
        let plan: Vec<Value> = entries.map(|(i, (index, wanted, declared, done, queued))| {
            collector(&format!("c{i}"), index, &json!({
                "state": if wanted { "Wanted" } else { "Removing" },
                "origin": if declared { "Declared" } else { "Requested" },
                "queue": queued.then_some("Waiting"),
                "done": done,
            }))
        }).collect();
        let plan = parse_plan(&plan);
        let job = job_with_gang(&json!({"minCollectors": min}));
        let floor = floor_members(&job, &plan).unwrap();
        let is_declared = |entry: &&PlanEntry| entry.is_wanted() && entry.origin == Origin::Declared;
        prop_assert!(floor.len() <= plan.iter().filter(is_declared).count());
        prop_assert!(min.is_none_or(|min| floor.len() <= usize::try_from(min).unwrap()));
        for name in &floor {
            let entry = find_entry(&plan, name).unwrap();
            prop_assert!(is_declared(&entry) && entry.queue.is_none() && !entry.done);
        }
        let mut other = plan.clone();
        other.rotate_left(turn.min(plan.len()));
        other.reverse();
        prop_assert_eq!(&floor, &floor_members(&job, &other).unwrap());
    }
}

#[test]
fn scheduler_is_written_as_in_the_flag() {
    for text in [
        "volcano",
        "coscheduling",
        "coscheduling:di-test-gang",
        "yunikorn",
        "kai",
        "kubernetes",
    ] {
        let scheduler: GangScheduler = text.parse().unwrap();
        assert_eq!(scheduler.to_string(), text);
    }
    for text in ["", "none", "Volcano", "coscheduling:", "volcano:name"] {
        assert!(text.parse::<GangScheduler>().is_err(), "{text}");
    }
}

#[test]
fn gang_setting_is_a_scheduler_or_none() {
    for text in ["none", "kai", "coscheduling:mine"] {
        let setting: GangSetting = text.parse().unwrap();
        assert_eq!(setting.to_string(), text);
        assert_eq!(setting.0.is_none(), text == "none", "{text}");
    }
    assert_eq!("".parse::<GangSetting>(), Ok(GangSetting(None)));
    let error = "slurm".parse::<GangSetting>().unwrap_err();
    assert!(error.ends_with(", kubernetes, none"), "{error}");
}

#[test]
fn gang_needs_a_scheduler_that_all_templates_use() {
    let no_scheduler = "spec.scheduling.gang does not apply to new pods: the orchestrator runs without --gang-scheduler";
    let other = "spec.scheduling.gang does not apply to new pods: spec.collector.template.spec.schedulerName is other, and the gang scheduler is";
    for (scheduler, own, expected) in [
        ("", "", Some(no_scheduler.to_owned())),
        ("volcano", "", None),
        ("volcano", "volcano", None),
        ("volcano", "other", Some(format!("{other} volcano"))),
        ("coscheduling:mine", "mine", None),
        (
            "kai",
            "",
            Some(
                "spec.scheduling.gang does not apply to new pods: KAI needs a queue; set spec.scheduling.queue"
                    .to_owned(),
            ),
        ),
        ("kubernetes", "default-scheduler", None),
        (
            "kubernetes",
            "other",
            Some(format!("{other} default-scheduler")),
        ),
    ] {
        let template = json!({"template": {"spec": {"schedulerName": own}}});
        let asked = json!({"collector": template, "scheduling": {"gang": {}}});
        let job = Job::test().collectors(1).spec(asked).build();
        let parsed: Option<GangScheduler> = scheduler.parse().ok();
        let problem = gang_problem(&job, parsed.as_ref(), None);
        assert_eq!(problem, expected, "{scheduler} {own}");
    }
    let asks_for_none = Job::test().spec(json!({"scheduling": {"queue": "q"}}));
    assert_eq!(gang_problem(&asks_for_none.build(), None, None), None);

    let job = job_with_gang(&json!({}));
    for (own, is_problem) in [("", false), ("volcano", false), ("other", true)] {
        let template: PodTemplate =
            serde_json::from_value(json!({"spec": {"schedulerName": own}})).unwrap();
        let problem = gang_problem(&job, Some(&GangScheduler::Volcano), Some(&template));
        let expected = "spec.scheduling.gang does not apply to new pods: spec.aggregator.template.spec.schedulerName of AggregatorConfig aggregator-config is other, and the gang scheduler is volcano";
        assert_eq!(problem.as_deref(), is_problem.then_some(expected), "{own}");
    }
}

/// A job with a floor of five pods: the coordinator, a collector, and a learner group of three.
fn placed_job() -> DIJob {
    let none = json!({});
    let plan = [
        collector("j-collector-a", 0, &none),
        collector("j-collector-b", 1, &none),
        entry("a", "Aggregator", 0, &json!({"resources": {"gpus": "2"}})),
        ddp_learner("d0", 0),
        ddp_learner("d1", 1),
    ];
    let gpus = json!({"limits": {"nvidia.com/gpu": "2", "cpu": "3", "memory": "4Gi"}});
    let tolerations = json!([{"key": "gpu", "operator": "Exists"}]);
    Job::test()
        .collectors(2)
        .learners_with(1, &gpus)
        .spec(json!({
            "priorityClassName": "high",
            "learner": {"template": {"spec": {"tolerations": tolerations}}},
            "scheduling": {"gang": {"minCollectors": 1}, "queue": "research", "topologyKey": "rack"},
        }))
        .status(json!({"plan": plan, "scheduling": {"group": "dijob-j-u", "minMember": 5}}))
        .build()
}

fn pod_of(job: &DIJob, name: &str, scheduler: &GangScheduler) -> NewPod {
    let template: Value = di_fixtures::template();
    let template: PodTemplate = serde_json::from_value(template).unwrap();
    let settings = BuildSettings {
        gang: Some(scheduler.clone()),
        ..BuildSettings::default()
    };
    let plan = &job.status.as_ref().unwrap().plan;
    let entry = find_entry(plan, name).unwrap();
    build_pod(job, entry, Some(&template), &settings).unwrap()
}

/// The pod without its containers, which no gang changes, and with readable task groups.
fn readable_pod(pod: &NewPod) -> Value {
    let mut pod = json!(pod);
    pod["spec"].as_object_mut().unwrap().remove("containers");
    let annotations = &mut pod["metadata"]["annotations"];
    if let Some(groups) = annotations.get_mut(gang::YUNIKORN_TASK_GROUPS) {
        *groups = serde_json::from_str(groups.as_str().unwrap()).unwrap();
    }
    pod
}

#[test]
fn groups_and_pods_match_golden_files() {
    let job = placed_job();
    for (name, golden) in [
        ("volcano", include_str!("golden/volcano.json")),
        ("coscheduling", include_str!("golden/coscheduling.json")),
        ("yunikorn", include_str!("golden/yunikorn.json")),
        ("kai", include_str!("golden/kai.json")),
        ("kubernetes", include_str!("golden/kubernetes.json")),
    ] {
        let scheduler: GangScheduler = name.parse().unwrap();
        let [floor, overflow] =
            ["j-collector-a", "j-collector-b"].map(|pod| pod_of(&job, pod, &scheduler));
        let group = new_group(&job, &scheduler, 5);
        let built = json!({
            "group": group,
            "floor": readable_pod(&floor),
            "overflow": readable_pod(&overflow),
        });
        let golden: Value = serde_json::from_str(golden).unwrap();
        assert_eq!(built, golden, "{name}: {built:#}");

        let pod = PodView::new(&floor.decode().unwrap()).unwrap();
        assert!(pod.in_gang, "{name}");
        if let Some(mut group) = group {
            let view = GroupView::new(&group).unwrap();
            assert_eq!((view.min_member, view.owner.as_deref()), (5, Some("u")));
            group.data = group_size_patch(&scheduler, 3);
            assert_eq!(GroupView::new(&group).unwrap().min_member, 3, "{name}");
        }
    }
}

#[test]
fn job_without_group_has_pods_without_gang() {
    let mut job = placed_job();
    job.status.as_mut().unwrap().scheduling = None;
    let scheduler = GangScheduler::Volcano;
    let pod = readable_pod(&pod_of(&job, "j-collector-a", &scheduler));
    assert_eq!(pod["spec"]["schedulerName"], Value::Null);
    assert_eq!(pod["metadata"]["annotations"], Value::Null);
}
