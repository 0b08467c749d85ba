//! Gang scheduling of a job.

use super::{
    fault::{Fault, Faults},
    names,
    path::{Path, SPEC},
    spec::check_not_negative,
};
use crate::{
    dijob::{DIJob, DIJobSpec},
    role::Role,
};

/// Checks how the pods of a job are scheduled.
pub(super) fn check_scheduling(job: &DIJob, faults: &mut Faults) {
    let Some(scheduling) = &job.spec.scheduling else {
        return;
    };
    let part = SPEC.child("scheduling");
    if let Some(gang) = &scheduling.gang {
        let gang_field = part.child("gang");
        for (role, field, min) in [
            (Role::Collector, "minCollectors", gang.min_collectors),
            (Role::Learner, "minLearners", gang.min_learners),
        ] {
            let field = gang_field.child(field);
            check_not_negative(min, &field, faults);
            // Later the counts of a job may fall below the minimum: its coordinator can lower them.
            if job.status.is_none() {
                check_minimum(&job.spec, role, min, &field, faults);
            }
        }
    }
    let queue = scheduling.queue.as_str();
    names::check_label_value(queue, &part.child("queue"), faults);
    let key = scheduling.topology_key.as_str();
    names::check_label_key(key, &part.child("topologyKey"), faults);
}

fn check_minimum(
    spec: &DIJobSpec,
    role: Role,
    min: Option<i32>,
    field: &Path<'_>,
    faults: &mut Faults,
) {
    let declared = spec.declared(role).map_or(0, |declared| {
        let groups = declared.groups.iter().map(|group| group.replicas);
        groups.fold(declared.replicas, i32::saturating_add).max(0)
    });
    if let Some(min) = min.filter(|min| *min > declared) {
        let why = format_args!(
            "must be no more than {declared}, the number of declared {role}s; omit it for all of them"
        );
        faults.push(Fault::invalid(field, min, why));
    }
}

#[cfg(test)]
mod tests {
    use di_fixtures::{Job, template};
    use serde_json::{Value, json};

    use crate::validation::validate_dijob;

    fn job(scheduling: &Value) -> Job {
        let group = json!({"name": "large", "replicas": 1});
        let learner = json!({"template": template(), "replicas": 1, "groups": [group]});
        Job::test()
            .collectors(2)
            .spec(json!({"learner": learner, "scheduling": scheduling}))
    }

    fn messages_of(job: Job) -> Vec<String> {
        let faults = validate_dijob(&job.json()).err().unwrap_or_default();
        faults.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn minimum_over_declared_count_is_rejected() {
        let too_many = |field: &str, value: i32, roles: &str| {
            format!(
                "spec.scheduling.gang.{field}: Invalid value: {value}: must be no more than 2, the number of declared {roles}; omit it for all of them"
            )
        };
        for (gang, expected) in [
            (json!({}), Vec::new()),
            (json!({"minCollectors": 2, "minLearners": 2}), Vec::new()),
            (json!({"minCollectors": 0, "minLearners": 0}), Vec::new()),
            (
                json!({"minCollectors": 3}),
                vec![too_many("minCollectors", 3, "collectors")],
            ),
            (
                json!({"minCollectors": 2, "minLearners": 5}),
                vec![too_many("minLearners", 5, "learners")],
            ),
            (
                json!({"minLearners": -1}),
                vec![
                    "spec.scheduling.gang.minLearners: Invalid value: -1: must be greater than or equal to 0".to_owned(),
                ],
            ),
        ] {
            let job = job(&json!({"gang": gang}));
            assert_eq!(messages_of(job), expected, "{gang}");
        }
    }

    #[test]
    fn lowered_count_of_known_job_is_accepted() {
        let job = job(&json!({"gang": {"minCollectors": 3}}));
        let known = job.status(json!({"phase": "Running"}));
        assert_eq!(messages_of(known), [""; 0]);
    }

    #[test]
    fn topology_key_must_be_label_key() {
        let long = "a".repeat(64);
        let rule = "must be the key of a node label, such as topology.kubernetes.io/rack";
        for (key, is_valid) in [
            ("", true),
            ("rack", true),
            ("Rack_1.b", true),
            ("topology.kubernetes.io/rack", true),
            ("/rack", false),
            ("topology.kubernetes.io/", false),
            ("Topology/rack", false),
            ("a/b/c", false),
            ("-rack", false),
            ("rack!", false),
            (&*long, false),
        ] {
            let found = messages_of(job(&json!({"topologyKey": key})));
            let fault = format!("spec.scheduling.topologyKey: Invalid value: {key:?}: {rule}");
            let expected = if is_valid { vec![] } else { vec![fault] };
            assert_eq!(found, expected, "{key}");
        }
    }
}
