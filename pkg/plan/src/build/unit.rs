//! What the pods of a unit have in addition. See docs/decisions/0040.

use di_api::{DIJob, PlanEntry, UnitPlace, names};
use serde_json::{Value, json};

use crate::{
    job::Job,
    ops::{leader_of, wanted_members},
};

/// Labels of a pod of a unit; none for other pods.
pub(super) fn unit_labels(entry: &PlanEntry) -> impl Iterator<Item = (String, String)> {
    let labels = entry.unit.iter().flat_map(move |place| {
        [
            (names::labels::UNIT, leader_name(entry).to_owned()),
            (names::labels::UNIT_INDEX, place.index.to_string()),
        ]
    });
    labels.map(|(key, value)| (key.to_owned(), value))
}

/// Builds the environment variables of a pod of a unit. Addresses are plain pod names: each is the
/// host name of the pod itself, and the name of its service for the others.
pub(super) fn unit_env(
    job: &DIJob,
    entry: &PlanEntry,
    place: &UnitPlace,
) -> [(&'static str, String); 12] {
    let (size, index) = (place.size.to_string(), place.index.to_string());
    let leader = leader_name(entry).to_owned();
    let port = names::ports::master_port(job.role_port(entry.role), 1);
    let hosts = host_names(job.plan_entries(), &leader, place.size);
    [
        (names::env::UNIT_SIZE, size.clone()),
        (names::env::UNIT_INDEX, index.clone()),
        (names::env::UNIT_LEADER_ADDRESS, leader.clone()),
        (names::env::LWS_GROUP_SIZE, size.clone()),
        (names::env::LWS_WORKER_INDEX, index.clone()),
        (names::env::LWS_LEADER_ADDRESS, leader.clone()),
        (names::env::NNODES, size),
        (names::env::NODE_RANK, index.clone()),
        (names::env::MASTER_ADDR, leader),
        (names::env::MASTER_PORT, port.to_string()),
        (names::env::DI_NODES, hosts.join(",")),
        (names::env::DI_RANK, index),
    ]
}

/// Names of all pods of a unit, in their order.
fn host_names(plan: &[PlanEntry], leader: &str, size: i32) -> Vec<String> {
    let others = (1..size).map(|index| names::unit_member_name(leader, index));
    let mut hosts: Vec<String> = std::iter::once(leader.to_owned()).chain(others).collect();
    for member in wanted_members(plan, leader) {
        let index = member
            .unit
            .as_ref()
            .map(|place| usize::try_from(place.index));
        if let Some(Ok(index)) = index
            && let Some(host) = hosts.get_mut(index)
        {
            host.clone_from(&member.name);
        }
    }
    hosts
}

/// The term of a pod affinity that keeps the pods of a unit in one topology domain. The first one
/// chooses the domain: a pod may satisfy its own affinity. `None` if any nodes will do.
pub(super) fn unit_topology_term(job: &DIJob, entry: &PlanEntry) -> Option<Value> {
    let key = &job.spec.unit(entry.role)?.topology_key;
    (!key.is_empty() && entry.is_in_unit()).then(|| {
        json!({
            "labelSelector": {"matchLabels": {(names::labels::UNIT): leader_name(entry)}},
            "topologyKey": key,
        })
    })
}

fn leader_name(entry: &PlanEntry) -> &str {
    leader_of(entry).unwrap_or(&entry.name)
}

#[cfg(test)]
mod tests {
    use di_fixtures::Job;
    use k8s_openapi::api::core::v1::Pod;

    use super::*;
    use crate::{
        PodView,
        build::BuildSettings,
        build_service,
        job::Job as _,
        pod::build_pod,
        queueing::{build_pod_sets, pod_set_name},
    };

    const LEADER: &str = "j-collector-aaaaa";

    /// A job with a unit of three. Its second pod has replaced another.
    fn job() -> DIJob {
        let main = json!({
            "name": "di-container", "image": "server", "ports": [{"name": "di-port", "containerPort": 8000}],
        });
        let unit = json!({
            "size": 3, "topologyKey": "rack", "leaderTemplate": {"spec": {"containers": [main]}},
        });
        let entry = |name: &str, place: &Value| json!({"name": name, "type": "Collector", "origin": "Declared", "index": 4, "unit": place});
        let plan = json!([
            entry(LEADER, &json!({"index": 0, "size": 3})),
            entry(
                "j-collector-aaaaa-2",
                &json!({"leader": LEADER, "index": 2, "size": 3})
            ),
            entry(
                "j-collector-bbbbb-1",
                &json!({"leader": LEADER, "index": 1, "size": 3})
            ),
        ]);
        let job = Job::test().collectors(1).status(json!({"plan": plan}));
        job.spec(json!({"collector": {"unit": unit}})).build()
    }

    fn build(job: &DIJob, position: usize) -> Pod {
        let entry = &job.plan_entries()[position];
        let pod = build_pod(job, entry, None, &BuildSettings::default());
        pod.unwrap().decode().unwrap()
    }

    #[test]
    fn pods_of_unit_have_names_that_tools_read() {
        let job = job();
        for (position, index) in [(0, "0"), (1, "2"), (2, "1")] {
            let pod = build(&job, position);
            let container = &pod.spec.as_ref().unwrap().containers[0];
            let env = container.env.iter().flatten();
            let env = env.map(|variable| (&*variable.name, variable.value.as_deref()));
            let env: Vec<_> = env
                .skip_while(|(name, _)| *name != "DI_UNIT_SIZE")
                .map(|(name, value)| (name, value.unwrap()))
                .collect();
            let expected = [
                ("DI_UNIT_SIZE", "3"),
                ("DI_UNIT_INDEX", index),
                ("DI_UNIT_LEADER_ADDRESS", LEADER),
                ("LWS_GROUP_SIZE", "3"),
                ("LWS_WORKER_INDEX", index),
                ("LWS_LEADER_ADDRESS", LEADER),
                ("NNODES", "3"),
                ("NODE_RANK", index),
                ("MASTER_ADDR", LEADER),
                ("MASTER_PORT", "10314"),
                (
                    "DI_NODES",
                    "j-collector-aaaaa,j-collector-bbbbb-1,j-collector-aaaaa-2",
                ),
                ("DI_RANK", index),
            ];
            assert_eq!(env, expected);
            let found: Vec<_> = env.iter().map(|(name, _)| *name).collect();
            assert_eq!(found, names::env::UNIT, "the validator knows them");
            let labels = pod.metadata.labels.as_ref().unwrap();
            assert_eq!(labels["unit-name"], LEADER);
            assert_eq!(labels["unit-index"], index);
            let view = PodView::new(&pod).unwrap();
            let entry = &job.plan_entries()[position];
            assert_eq!(view.unit.as_deref(), entry.unit.as_ref());
            assert_eq!((view.index, view.port), (Some(4), 8000));
            let service = build_service(&job, entry);
            assert_eq!(service.metadata.labels.unwrap()["unit-name"], LEADER);
        }
    }

    #[test]
    fn leader_has_template_of_its_own() {
        let job = job();
        let image = |position| {
            let spec = build(&job, position).spec.unwrap();
            spec.containers[0].image.clone().unwrap()
        };
        assert_eq!([image(0), image(1)], ["server", "worker"]);
    }

    #[test]
    fn topology_of_unit_is_in_pods_but_not_in_pod_sets() {
        let job = job();
        let term = json!({
            "labelSelector": {"matchLabels": {"unit-name": LEADER}}, "topologyKey": "rack",
        });
        for position in 0..3 {
            let affinity = json!(build(&job, position).spec.unwrap().affinity);
            let terms = &affinity["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
            assert_eq!(*terms, json!([term]));
        }
        let pod_sets = build_pod_sets(&job, false, job.plan_entries(), None).unwrap();
        let counts: Vec<_> = pod_sets.iter().map(|set| (&*set.name, set.count)).collect();
        assert_eq!(counts, [("collector", 2), ("collector-leader", 1)]);
        let has_affinity = |set: &crate::PodSet| !set.template["spec"]["affinity"].is_null();
        assert!(!pod_sets.iter().any(has_affinity));
        assert_eq!(pod_set_name(&job.plan_entries()[0]), "collector-leader");
    }

    #[test]
    fn pod_with_wrong_place_belongs_to_no_unit() {
        let job = job();
        for (label, value) in [
            ("unit-index", "3"),
            ("unit-index", "0"),
            ("unit-index", "x"),
            ("unit-name", "j-collector-aaaaa-2"),
        ] {
            let mut pod = build(&job, 1);
            let labels = pod.metadata.labels.as_mut().unwrap();
            labels.insert(label.to_owned(), value.to_owned());
            assert_eq!(PodView::new(&pod).unwrap().unit, None, "{label}={value}");
        }
    }
}
