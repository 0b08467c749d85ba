use di_api::{UnitPlace, names, quantity};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::env::env_value;

/// The place of a pod in its unit, read from the pod. `None` if it belongs to no unit.
pub(super) fn unit_place(pod: &Pod) -> Option<UnitPlace> {
    // The bound protects the plan: a user can create a pod with any number.
    let number =
        |text: &str| quantity::parse_count(text).filter(|number| *number <= names::MAX_UNIT_SIZE);
    let leader = pod.labels().get(names::labels::UNIT)?;
    let index = number(pod.labels().get(names::labels::UNIT_INDEX)?)?;
    let size = number(env_value(pod, names::env::UNIT_SIZE)?)?;
    let is_leader = *leader == pod.name_any();
    (index < size && is_leader == (index == 0)).then(|| UnitPlace {
        leader: (!is_leader).then(|| leader.clone()),
        index,
        size,
    })
}
