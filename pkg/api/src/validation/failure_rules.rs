//! Failure rules.

use std::collections::HashSet;

use super::{
    fault::{Fault, Faults},
    path::{Path, SPEC},
};
use crate::{
    failure_rules::{ExitCodeOperator, ExitCodes, FailureRule, MemoryGrowth},
    names,
    quantity::{NANOS_PER_UNIT, parse_nanos},
};

/// Maximum number of rules, as in `podFailurePolicy` of Kubernetes Jobs.
const MAX_RULES: usize = 20;
const MAX_NAME_BYTES: usize = 63;
const MAX_EXIT_CODES: usize = 255;

pub(super) fn check_rules(rules: &[FailureRule], faults: &mut Faults) {
    let field = SPEC.child("failureRules");
    if rules.len() > MAX_RULES {
        let why = format_args!("must have at most {MAX_RULES} items");
        faults.push(Fault::invalid(field, rules.len(), why));
    }
    let mut names = HashSet::new();
    for (i, rule) in rules.iter().enumerate() {
        let field = field.index(i);
        let name = rule.name_at(i);
        if name.len() > MAX_NAME_BYTES {
            let why = format_args!("must be no more than {MAX_NAME_BYTES} bytes");
            faults.push(Fault::invalid(field.child("name"), &name, why));
        } else if let Some(name) = names.replace(name) {
            faults.push(Fault::duplicate(field.child("name"), &name));
        }
        if rule.on_exit_codes.is_some() != rule.on_reasons.is_empty() {
            let why = "either onExitCodes or onReasons, and not both";
            faults.push(Fault::required(field, why));
        }
        if let Some(codes) = &rule.on_exit_codes {
            check_exit_codes(codes, &field.child("onExitCodes"), faults);
        }
        if let Some(limit) = rule.limit.filter(|limit| *limit < 0) {
            let why = "must be greater than or equal to 0";
            faults.push(Fault::invalid(field.child("limit"), limit, why));
        }
        if let Some(growth) = &rule.grow_memory {
            check_growth(growth, &field.child("growMemory"), faults);
        }
    }
}

fn check_exit_codes(codes: &ExitCodes, field: &Path<'_>, faults: &mut Faults) {
    let container = codes.container_name.as_deref().unwrap_or_default();
    if !["", names::MAIN_CONTAINER].contains(&container) {
        let why = format_args!("must be {}", names::MAIN_CONTAINER);
        faults.push(Fault::invalid(field.child("containerName"), container, why));
    }
    let field = &field.child("values");
    let lowest = match codes.operator {
        ExitCodeOperator::In => 1,
        ExitCodeOperator::NotIn => 0,
    };
    if codes.values.is_empty() {
        faults.push(Fault::required(field, "at least one exit code"));
    }
    if codes.values.len() > MAX_EXIT_CODES {
        let why = format_args!("must have at most {MAX_EXIT_CODES} items");
        faults.push(Fault::invalid(field, codes.values.len(), why));
    }
    for (i, code) in codes.values.iter().enumerate() {
        if !(lowest..=255).contains(code) {
            let why = format_args!("must be between {lowest} and 255");
            faults.push(Fault::invalid(field.index(i), code, why));
        }
    }
}

fn check_growth(growth: &MemoryGrowth, field: &Path<'_>, faults: &mut Faults) {
    let factor = parse_nanos(&growth.factor.0).filter(|factor| *factor > NANOS_PER_UNIT);
    if factor.is_none() {
        let why = "must be a number greater than 1, such as 1.5";
        faults.push(Fault::invalid(field.child("factor"), &growth.factor.0, why));
    }
    if parse_nanos(&growth.limit.0).is_none_or(|limit| limit <= 0) {
        let why = "must be a quantity, such as 64Gi";
        faults.push(Fault::invalid(field.child("limit"), &growth.limit.0, why));
    }
}
