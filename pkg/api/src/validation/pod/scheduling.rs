//! Scheduling of a pod: selectors, tolerations, affinities, topology spread.

use std::collections::HashSet;

use k8s_openapi::{
    api::core::v1::{
        Affinity, NodeAffinity, NodeSelectorRequirement, NodeSelectorTerm, PodAffinityTerm,
        PodSpec, Toleration, TopologySpreadConstraint, WeightedPodAffinityTerm,
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};

use super::super::{
    fault::{Fault, Faults},
    names,
    path::Path,
    value_checks::{check_one_of, check_optional_one_of, check_required},
};

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
/// Values of `nodeAffinityPolicy` and `nodeTaintsPolicy`.
const INCLUSIONS: [&str; 2] = ["Honor", "Ignore"];
const NO_SELECTOR: &str = "must not be specified when labelSelector is not set";
const WEIGHTS: std::ops::RangeInclusive<i32> = 1..=100;

/// Checks all scheduling fields of a pod.
pub(super) fn check_scheduling(pod: &PodSpec, field: &Path<'_>, faults: &mut Faults) {
    for (key, value) in pod.node_selector.iter().flatten() {
        let field = field.child("nodeSelector");
        names::check_qualified_name(key, &field, faults);
        names::check_label_value(value, &field, faults);
    }
    for (i, toleration) in pod.tolerations.iter().flatten().enumerate() {
        check_toleration(toleration, &field.child("tolerations").index(i), faults);
    }
    if let Some(affinity) = &pod.affinity {
        check_affinity(affinity, &field.child("affinity"), faults);
    }
    check_gates(pod, field, faults);
    let spread = pod.topology_spread_constraints.as_deref();
    let spread = spread.unwrap_or_default();
    let mut earlier = HashSet::new();
    for (i, constraint) in spread.iter().enumerate() {
        let field = field.child("topologySpreadConstraints").index(i);
        check_spread(constraint, &field, faults);
        let pair = (&constraint.topology_key, &constraint.when_unsatisfiable);
        if !earlier.insert(pair) {
            let both = format!(
                "{{{}, {}}}",
                constraint.topology_key, constraint.when_unsatisfiable
            );
            faults.push(Fault::duplicate(
                field.child("{topologyKey, whenUnsatisfiable}"),
                both,
            ));
        }
    }
}

/// Checks the scheduling gates.
fn check_gates(pod: &PodSpec, field: &Path<'_>, faults: &mut Faults) {
    let gates = pod.scheduling_gates.as_deref().unwrap_or_default();
    let mut earlier = HashSet::new();
    for (i, gate) in gates.iter().enumerate() {
        let field = field.child("schedulingGates").index(i);
        let place = field.child("name");
        names::check_qualified_name(&gate.name, &place, faults);
        names::check_unique(&mut earlier, &gate.name, &place, faults);
    }
    let node = pod.node_name.as_deref().unwrap_or_default();
    if !gates.is_empty() && !node.is_empty() {
        let why = "cannot be set until all schedulingGates have been cleared";
        faults.push(Fault::forbidden(field.child("nodeName"), why));
    }
}

pub(super) fn check_toleration(toleration: &Toleration, field: &Path<'_>, faults: &mut Faults) {
    let key = toleration.key.as_deref().unwrap_or_default();
    let operator = toleration.operator.as_deref().unwrap_or_default();
    let value = toleration.value.as_deref().unwrap_or_default();
    let effect = toleration.effect.as_deref().unwrap_or_default();
    if !key.is_empty() {
        names::check_qualified_name(key, &field.child("key"), faults);
    }
    let place = field.child("operator");
    match operator {
        "Exists" if !value.is_empty() => {
            let why = "value must be empty when `operator` is 'Exists'";
            faults.push(Fault::invalid(place, value, why));
        }
        "" | "Equal" | "Lt" | "Gt" if key.is_empty() => {
            let why = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            faults.push(Fault::invalid(place, operator, why));
        }
        "" | "Equal" => names::check_label_value(value, &place, faults),
        "Lt" | "Gt" => check_compared(value, &place, faults),
        "Exists" => {}
        _ => check_one_of(Some(operator), &["Equal", "Exists"], &place, faults),
    }
    let place = field.child("effect");
    check_one_of(Some(effect), &EFFECTS, &place, faults);
    if toleration.toleration_seconds.is_some() && effect != "NoExecute" {
        let why = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        faults.push(Fault::invalid(place, effect, why));
    }
}

/// Checks the number of the operators Lt and Gt (feature gate TaintTolerationComparisonOperators).
fn check_compared(value: &str, field: &Path<'_>, faults: &mut Faults) {
    // A plus sign or leading zeroes are not allowed.
    let number = value.parse::<i64>();
    let is_plain = number.is_ok_and(|number| number.to_string() == value);
    if !is_plain {
        let why = "value must be an integer when `operator` is 'Lt' or 'Gt'";
        faults.push(Fault::invalid(field, value, why));
    }
}

fn check_affinity(affinity: &Affinity, field: &Path<'_>, faults: &mut Faults) {
    if let Some(node) = &affinity.node_affinity {
        check_node_affinity(node, &field.child("nodeAffinity"), faults);
    }
    let pods = affinity.pod_affinity.as_ref();
    let pods = pods.map(|a| {
        let required = &a.required_during_scheduling_ignored_during_execution;
        let preferred = &a.preferred_during_scheduling_ignored_during_execution;
        ("podAffinity", required, preferred)
    });
    let others = affinity.pod_anti_affinity.as_ref();
    let others = others.map(|a| {
        let required = &a.required_during_scheduling_ignored_during_execution;
        let preferred = &a.preferred_during_scheduling_ignored_during_execution;
        ("podAntiAffinity", required, preferred)
    });
    for (name, required, preferred) in pods.into_iter().chain(others) {
        let field = field.child(name);
        for (i, term) in required.iter().flatten().enumerate() {
            let field = field
                .child("requiredDuringSchedulingIgnoredDuringExecution")
                .index(i);
            check_pod_term(term, &field, faults);
        }
        for (i, term) in preferred.iter().flatten().enumerate() {
            let field = field
                .child("preferredDuringSchedulingIgnoredDuringExecution")
                .index(i);
            let WeightedPodAffinityTerm {
                weight,
                pod_affinity_term,
            } = term;
            check_weight(*weight, &field, faults);
            check_pod_term(pod_affinity_term, &field.child("podAffinityTerm"), faults);
        }
    }
}

fn check_weight(weight: i32, field: &Path<'_>, faults: &mut Faults) {
    if !WEIGHTS.contains(&weight) {
        let why = "must be in the range 1-100";
        faults.push(Fault::invalid(field.child("weight"), weight, why));
    }
}

fn check_node_affinity(affinity: &NodeAffinity, field: &Path<'_>, faults: &mut Faults) {
    if let Some(required) = &affinity.required_during_scheduling_ignored_during_execution {
        let field = field.child("requiredDuringSchedulingIgnoredDuringExecution");
        let field = field.child("nodeSelectorTerms");
        if required.node_selector_terms.is_empty() {
            let message = "must have at least one node selector term";
            faults.push(Fault::required(field, message));
        }
        for (i, term) in required.node_selector_terms.iter().enumerate() {
            check_node_term(term, &field.index(i), faults);
        }
    }
    let preferred = &affinity.preferred_during_scheduling_ignored_during_execution;
    for (i, term) in preferred.iter().flatten().enumerate() {
        let field = field
            .child("preferredDuringSchedulingIgnoredDuringExecution")
            .index(i);
        check_weight(term.weight, &field, faults);
        check_node_term(&term.preference, &field.child("preference"), faults);
    }
}

fn check_node_term(term: &NodeSelectorTerm, field: &Path<'_>, faults: &mut Faults) {
    for (i, one) in term.match_expressions.iter().flatten().enumerate() {
        let field = field.child("matchExpressions").index(i);
        let values = one.values.as_deref().unwrap_or_default();
        let bound = ["Gt", "Lt"].contains(&one.operator.as_str());
        if bound {
            check_bound(values, &field, faults);
        } else {
            check_operator(&one.operator, values, &field, faults);
            for (j, value) in values.iter().enumerate() {
                names::check_label_value(value, &field.child("values").index(j), faults);
            }
        }
        names::check_qualified_name(&one.key, &field.child("key"), faults);
    }
    for (i, one) in term.match_fields.iter().flatten().enumerate() {
        check_node_field(one, &field.child("matchFields").index(i), faults);
    }
}

/// Checks the single integer of Gt and Lt.
fn check_bound(values: &[String], field: &Path<'_>, faults: &mut Faults) {
    let [value] = values else {
        let message = "must be specified single value when `operator` is 'Lt' or 'Gt'";
        faults.push(Fault::required(field.child("values"), message));
        return;
    };
    let place = field.child("values").index(0);
    if value.parse::<i64>().is_ok() {
        // A label value has no sign.
        names::check_label_value(value, &place, faults);
    } else {
        let why = "for 'Gt', 'Lt' operators, the value must be an integer";
        faults.push(Fault::invalid(place, value.as_str(), why));
    }
}

/// Checks a node field; only `metadata.name` is supported.
fn check_node_field(one: &NodeSelectorRequirement, field: &Path<'_>, faults: &mut Faults) {
    let values = one.values.as_deref().unwrap_or_default();
    if !["In", "NotIn"].contains(&one.operator.as_str()) {
        let why = "not a valid selector operator";
        let operator = one.operator.as_str();
        faults.push(Fault::invalid(field.child("operator"), operator, why));
    } else if values.len() != 1 {
        let message =
            "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
        faults.push(Fault::required(field.child("values"), message));
    }
    if one.key != "metadata.name" {
        let why = "not a valid field selector key";
        faults.push(Fault::invalid(field.child("key"), one.key.as_str(), why));
        return;
    }
    for (i, value) in values.iter().enumerate() {
        names::check_subdomain(value, &field.child("values").index(i), faults);
    }
}

/// Checks the values of an operator.
fn check_operator(operator: &str, values: &[String], field: &Path<'_>, faults: &mut Faults) {
    let place = field.child("values");
    match operator {
        "In" | "NotIn" if values.is_empty() => {
            let message = "must be specified when `operator` is 'In' or 'NotIn'";
            faults.push(Fault::required(place, message));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            faults.push(Fault::forbidden(place, why));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        _ => {
            let why = "not a valid selector operator";
            faults.push(Fault::invalid(field.child("operator"), operator, why));
        }
    }
}

fn check_pod_term(term: &PodAffinityTerm, field: &Path<'_>, faults: &mut Faults) {
    check_selector(
        term.label_selector.as_ref(),
        &field.child("labelSelector"),
        faults,
    );
    let place = field.child("namespaceSelector");
    check_selector(term.namespace_selector.as_ref(), &place, faults);
    check_label_keys(term, field, faults);
    for namespace in term.namespaces.iter().flatten() {
        // The API server rejects an empty one too.
        names::check_label_name(namespace, &field.child("namespace"), faults);
    }
    let place = field.child("topologyKey");
    if check_required(&term.topology_key, &place, "can not be empty", faults) {
        names::check_qualified_name(&term.topology_key, &place, faults);
    }
}

/// Checks `matchLabelKeys` and `mismatchLabelKeys`.
fn check_label_keys(term: &PodAffinityTerm, field: &Path<'_>, faults: &mut Faults) {
    let matched = term.match_label_keys.as_deref().unwrap_or_default();
    let others = term.mismatch_label_keys.as_deref().unwrap_or_default();
    let selector = term.label_selector.as_ref();
    check_matched(matched, selector, field, faults);
    if selector.is_none() && !others.is_empty() {
        faults.push(Fault::forbidden(
            field.child("mismatchLabelKeys"),
            NO_SELECTOR,
        ));
    } else {
        for (i, key) in others.iter().enumerate() {
            names::check_qualified_name(key, &field.child("mismatchLabelKeys").index(i), faults);
        }
    }
    for (i, key) in matched.iter().enumerate() {
        if others.contains(key) {
            let why = "exists in both matchLabelKeys and mismatchLabelKeys";
            let field = field.child("matchLabelKeys").index(i);
            faults.push(Fault::invalid(field, key.as_str(), why));
        }
    }
}

/// Checks `matchLabelKeys`, which must not be in the selector already.
fn check_matched(
    keys: &[String],
    selector: Option<&LabelSelector>,
    field: &Path<'_>,
    faults: &mut Faults,
) {
    let Some(selector) = selector else {
        if !keys.is_empty() {
            faults.push(Fault::forbidden(field.child("matchLabelKeys"), NO_SELECTOR));
        }
        return;
    };
    let labels = selector.match_labels.iter().flatten().map(|(key, _)| key);
    let expressions = selector.match_expressions.iter().flatten();
    let selected: HashSet<_> = labels.chain(expressions.map(|one| &one.key)).collect();
    for (i, key) in keys.iter().enumerate() {
        let field = field.child("matchLabelKeys").index(i);
        names::check_qualified_name(key, &field, faults);
        if selected.contains(key) {
            let why = "exists in both matchLabelKeys and labelSelector";
            faults.push(Fault::invalid(field, key.as_str(), why));
        }
    }
}

fn check_selector(selector: Option<&LabelSelector>, field: &Path<'_>, faults: &mut Faults) {
    let Some(selector) = selector else { return };
    for (key, value) in selector.match_labels.iter().flatten() {
        let field = field.child("matchLabels");
        names::check_qualified_name(key, &field, faults);
        names::check_label_value(value, &field, faults);
    }
    for (i, one) in selector.match_expressions.iter().flatten().enumerate() {
        let field = field.child("matchExpressions").index(i);
        let values = one.values.as_deref().unwrap_or_default();
        check_operator(&one.operator, values, &field, faults);
        for (j, value) in values.iter().enumerate() {
            names::check_label_value(value, &field.child("values").index(j), faults);
        }
        names::check_qualified_name(&one.key, &field.child("key"), faults);
    }
}

fn check_spread(constraint: &TopologySpreadConstraint, field: &Path<'_>, faults: &mut Faults) {
    if constraint.max_skew <= 0 {
        let why = "must be greater than zero";
        faults.push(Fault::invalid(
            field.child("maxSkew"),
            constraint.max_skew,
            why,
        ));
    }
    let place = field.child("topologyKey");
    check_required(&constraint.topology_key, &place, "can not be empty", faults);
    let place = field.child("whenUnsatisfiable");
    let policies = ["DoNotSchedule", "ScheduleAnyway"];
    let policy = constraint.when_unsatisfiable.as_str();
    if !policies.contains(&policy) {
        faults.push(Fault::not_supported(place, policy, &policies));
    }
    if let Some(least) = constraint.min_domains {
        let place = field.child("minDomains");
        if least <= 0 {
            faults.push(Fault::invalid(place, least, "must be greater than zero"));
        }
        if policy != "DoNotSchedule" {
            let why = format_args!(
                "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {policy}"
            );
            faults.push(Fault::invalid(place, least, why));
        }
    }
    for (name, policy) in [
        ("nodeAffinityPolicy", &constraint.node_affinity_policy),
        ("nodeTaintsPolicy", &constraint.node_taints_policy),
    ] {
        check_optional_one_of(policy.as_deref(), &INCLUSIONS, &field.child(name), faults);
    }
    let selector = constraint.label_selector.as_ref();
    let keys = constraint.match_label_keys.as_deref().unwrap_or_default();
    check_matched(keys, selector, field, faults);
    check_selector(selector, &field.child("labelSelector"), faults);
}
