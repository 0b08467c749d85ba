use di_api::{ConditionType, Placement, find_condition};
use di_client::Job;

use crate::output::{
    colour::Tone,
    rows::{one_line, or_none},
};

use super::cells::{Field, plain_cell};

/// The fields of the block `Queue`. Empty if the job is in no queue of Kueue.
pub fn queue_fields(job: &Job, position: Option<i64>) -> Vec<Field> {
    let status = &job.status;
    let admitted = find_condition(&status.conditions, ConditionType::Admitted);
    if job.queue_name().is_none() && status.queueing.is_none() && admitted.is_none() {
        return Vec::new();
    }
    let admission = or_none(admitted.map(|admitted| &admitted.status));
    let tone = match admission.as_str() {
        "True" => Some(Tone::Good),
        "False" => Some(Tone::Warning),
        _ => None,
    };
    let mut fields = vec![
        ("Local Queue", vec![plain_cell(or_none(job.queue_name()))]),
        ("Admitted", vec![(admission, tone)]),
    ];
    let mut add = |name, lines: Vec<String>| {
        if !lines.is_empty() {
            fields.push((name, lines.into_iter().map(plain_cell).collect()));
        }
    };
    let position = position.map(|position| format!("{position} (0 is the next)"));
    add("Position", position.into_iter().collect());
    let cluster_queue = job.cluster_queue().map(str::to_owned);
    add("Cluster Queue", cluster_queue.into_iter().collect());
    let queueing = status.queueing.as_ref();
    add(
        "Flavors",
        queueing.map_or_else(Vec::new, |queueing| flavor_lines(&queueing.placements)),
    );
    if let Some(admitted) = admitted {
        add("Reason", vec![admitted.reason.clone()]);
        let message = one_line(&admitted.message);
        add(
            "Message",
            Some(message)
                .filter(|text| !text.is_empty())
                .into_iter()
                .collect(),
        );
    }
    let waiting = job.waiting_replicas();
    if waiting.total() > 0 {
        let cell = (waiting.to_string(), Some(Tone::Warning));
        fields.push(("Waiting Replicas", vec![cell]));
    }
    fields
}

/// A line for each pod set and its flavors, such as `collector: spot`.
fn flavor_lines(placements: &[Placement]) -> Vec<String> {
    let mut lines = Vec::new();
    for Placement {
        pod_set, flavors, ..
    } in placements
    {
        let line = format!("{pod_set}: {}", flavors.join(", "));
        // Placements with the same flavors can differ in labels.
        if !flavors.is_empty() && !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}
