use std::collections::BTreeSet;

use di_api::{Origin, ReplicaResources, Role, names, quantity};
use serde_json::{Value, json};

use crate::{
    Job,
    jobs::guarded_patch::{annotation_operations, test_field, test_resource_version},
};

use super::{
    plan_entry::find_declared_entry,
    scale_request::{ReplicaGroupRef, ScaledCount},
};

/// A patch of the declared counts that is being built.
pub(crate) struct Draft<'a> {
    job: &'a Job,
    pub(crate) operations: Vec<Value>,
    pub(crate) scaled: Vec<ScaledCount>,
}

impl<'a> Draft<'a> {
    pub(crate) fn new(job: &'a Job) -> Self {
        Self {
            job,
            operations: Vec::new(),
            scaled: Vec::new(),
        }
    }

    fn role_spec(&self, role: Role) -> Result<&'a Value, String> {
        let part = self.job.object["spec"].get(role.label());
        part.filter(|part| part.is_object()).ok_or_else(|| {
            format!(
                "job {:?} has no {role}s: spec.{role} is not set, so there is no pod template for them",
                self.job.name()
            )
        })
    }

    /// JSON pointer to the count of a group, or to the count outside of groups.
    fn count_path(&self, role: Role, group: Option<&str>) -> Result<String, String> {
        let part = self.role_spec(role)?;
        let Some(group) = group else {
            return Ok(format!("/spec/{role}/replicas"));
        };
        let groups = declared_groups(part);
        if let Some(i) = groups.iter().position(|known| known["name"] == group) {
            return Ok(format!("/spec/{role}/groups/{i}/replicas"));
        }
        let known: Vec<_> = groups.iter().filter_map(|g| g["name"].as_str()).collect();
        let known = if known.is_empty() {
            "it has none".to_owned()
        } else {
            format!("it has {}", known.join(", "))
        };
        Err(format!(
            "job {:?} has no group {group:?} of {role}s: {known}",
            self.job.name()
        ))
    }

    pub(crate) fn declared_count(&self, role: Role, group: Option<&str>) -> Result<i64, String> {
        let path = self.count_path(role, group)?;
        let count = self.job.object.pointer(&path);
        Ok(count.and_then(Value::as_i64).unwrap_or(0))
    }

    pub(crate) fn add_to_count(
        &mut self,
        role: Role,
        group: Option<&str>,
        by: i32,
    ) -> Result<(), String> {
        let from = self.declared_count(role, group)?;
        let to = from + i64::from(by);
        if to < 0 {
            return Err(self.too_few_message(role, group, from, -i64::from(by)));
        }
        self.set_count(role, group, from, to)
    }

    pub(crate) fn set_count(
        &mut self,
        role: Role,
        group: Option<&str>,
        from: i64,
        to: i64,
    ) -> Result<(), String> {
        if from == to {
            return Ok(());
        }
        let path = self.count_path(role, group)?;
        if let Some(i) = group.and_then(|_| path.strip_suffix("/replicas")) {
            // The patch uses an index, so test that the group is still at this index.
            self.operations
                .push(test_field(self.job, &format!("{i}/name")));
        }
        self.operations.push(test_field(self.job, &path));
        let add = json!({"op": "add", "path": path, "value": to});
        self.operations.push(add);
        self.record_change(role, group, from, to)
    }

    fn record_change(
        &mut self,
        role: Role,
        group: Option<&str>,
        from: i64,
        to: i64,
    ) -> Result<(), String> {
        let whole = |count: i64| {
            i32::try_from(count)
                .map_err(|_| format!("{count} {role}s exceed the maximum count {}", i32::MAX))
        };
        self.scaled.push(ScaledCount {
            role,
            group: group.map(str::to_owned),
            from: whole(from)?,
            to: whole(to)?,
        });
        Ok(())
    }

    /// Finds the group by name, or else by resources. A named group must have the resources.
    fn group_with_resources(
        &self,
        role: Role,
        selector: &ReplicaGroupRef,
    ) -> Result<Option<String>, String> {
        let wanted = selector.resources_for(role);
        let is_selected = |known: &&Value| match &selector.group {
            Some(group) => known["name"] == group.as_str(),
            None => are_same(&known["resources"], &wanted),
        };
        let Some(known) = declared_groups(self.role_spec(role)?)
            .iter()
            .find(is_selected)
        else {
            return Ok(None);
        };
        let name = known["name"].as_str().unwrap_or_default();
        if !are_same(&known["resources"], &wanted) {
            return Err(format!(
                "group {name:?} of {role}s has other resources: {}; omit the resources or name another group",
                known["resources"]
            ));
        }
        Ok(Some(name.to_owned()))
    }

    /// Finds the selected group. `None` selects the replicas outside of groups.
    pub(crate) fn find_group(
        &self,
        role: Role,
        selector: &ReplicaGroupRef,
    ) -> Result<Option<String>, String> {
        let resources = selector.resources_for(role);
        if resources.is_empty() {
            return Ok(selector.group.clone());
        }
        if let Some(group) = self.group_with_resources(role, selector)? {
            return Ok(Some(group));
        }
        if selector.group.is_some() {
            // `count_path` reports the missing group.
            return Ok(selector.group.clone());
        }
        let groups = declared_groups(self.role_spec(role)?);
        let known = groups
            .iter()
            .filter_map(|g| Some(format!("{} {}", g["name"].as_str()?, g["resources"])));
        let known: Vec<_> = known.collect();
        let known = if known.is_empty() {
            "it has no groups".to_owned()
        } else {
            format!("it has {}", known.join(", "))
        };
        Err(format!(
            "job {:?} has no group of {role}s with {}: {known}",
            self.job.name(),
            json!(resources)
        ))
    }

    pub(crate) fn add_with_resources(
        &mut self,
        role: Role,
        by: i32,
        selector: &ReplicaGroupRef,
    ) -> Result<(), String> {
        if let Some(group) = self.group_with_resources(role, selector)? {
            return self.add_to_count(role, Some(&group), by);
        }
        let groups = declared_groups(self.role_spec(role)?);
        let resources = selector.resources_for(role);
        let as_json = json!(resources);
        let name = match &selector.group {
            Some(group) => group.clone(),
            None => free_name(groups, &resources),
        };
        let path = format!("/spec/{role}/groups");
        let new = json!({"name": name, "replicas": by, "resources": as_json});
        self.operations.push(test_field(self.job, &path));
        self.operations
            .push(if self.job.object.pointer(&path).is_some() {
                json!({"op": "add", "path": format!("{path}/-"), "value": new})
            } else {
                json!({"op": "add", "path": path, "value": [new]})
            });
        self.record_change(role, Some(&name), 0, i64::from(by))
    }

    fn too_few_message(
        &self,
        role: Role,
        group: Option<&str>,
        declared: i64,
        fewer: i64,
    ) -> String {
        let plan = self.job.status.plan.iter();
        let requested = plan
            .filter(|e| e.counts_as(role) && e.origin == Origin::Requested)
            .filter(|e| e.is_wanted())
            .count();
        let field = match group {
            Some(group) => format!("group {group:?} of spec.{role}.groups"),
            None => format!("spec.{role}.replicas"),
        };
        let others = match requested {
            0 => String::new(),
            n => {
                format!(
                    "; {n} more were requested through the replica endpoint or adopted, and only the endpoint removes them"
                )
            }
        };
        let in_groups = self.role_spec(role).map_or(0, |part| {
            declared_groups(part)
                .iter()
                .filter_map(|group| group["replicas"].as_i64())
                .sum()
        });
        let grouped = if group.is_none() && in_groups > 0 {
            format!("; {in_groups} more are in groups, use --group")
        } else {
            String::new()
        };
        format!(
            "cannot delete {fewer} {role}s of job {:?}: {field} declares {declared}{grouped}{others}",
            self.job.name()
        )
    }

    /// Writes the names into an annotation in the same patch as the lowered counts.
    ///
    /// Lowering the counts first would remove other replicas. Deleting the pods first would replace
    /// them. See docs/decisions/0014.
    pub(crate) fn remove_named(&mut self, names: &[String]) -> Result<(), String> {
        let names: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        let mut removed = BTreeSet::new();
        let mut group_counts: Vec<(Role, Option<&str>, i64)> = Vec::new();
        for name in &names {
            let entry = find_declared_entry(self.job, name)?;
            if !removed.insert(entry.name.as_str()) {
                continue;
            }
            let (role, group) = (entry.role.counted_as(), entry.group.as_deref());
            match group_counts
                .iter_mut()
                .find(|b| (b.0, b.1) == (role, group))
            {
                Some(counted) => counted.2 += 1,
                None => group_counts.push((role, group, 1)),
            }
        }
        for (role, group, fewer) in group_counts {
            let from = self.declared_count(role, group)?;
            // An earlier patch may have lowered the count already without a reconcile since.
            if from < fewer {
                return Err(self.too_few_message(role, group, from, fewer));
            }
            self.set_count(role, group, from, from - fewer)?;
        }
        // Keep the names of earlier patches that the orchestrator has not reconciled.
        let key = names::PODS_TO_DELETE_ANNOTATION;
        let annotations = self.job.metadata.annotations.as_ref();
        let pending = annotations.and_then(|all| all.get(key));
        let pending = pending.into_iter().flat_map(|all| all.split(','));
        let is_there = |name: &&str| {
            let mut plan = self.job.status.plan.iter();
            plan.any(|entry| entry.name == *name && entry.is_wanted())
        };
        removed.extend(pending.filter(is_there));
        let all: Vec<_> = removed.into_iter().collect();
        self.operations
            .extend(annotation_operations(self.job, key, &all.join(",")));
        // The names refer to status.plan, so test that the job is unchanged.
        self.operations.insert(0, test_resource_version(self.job));
        Ok(())
    }
}

fn declared_groups(part: &Value) -> &[Value] {
    part["groups"].as_array().map_or(&[], Vec::as_slice)
}

/// Compares resources by amount, independent of notation: 2 and "2", 1Gi and 1024Mi are equal.
fn are_same(known: &Value, wanted: &ReplicaResources) -> bool {
    let amounts = |of: &ReplicaResources| {
        [&of.cpus, &of.gpus, &of.memory].map(|one| {
            let text = &one.as_ref()?.0;
            Some(quantity::parse_nanos(text).ok_or_else(|| text.clone()))
        })
    };
    let known = serde_json::from_value::<ReplicaResources>(known.clone());
    known.is_ok_and(|known| amounts(&known) == amounts(wanted))
}

/// An unused group name such as `cpus-2-gpus-1`, with a number if that name is taken.
fn free_name(groups: &[Value], resources: &ReplicaResources) -> String {
    let parts = [
        ("cpus", &resources.cpus),
        ("gpus", &resources.gpus),
        ("memory", &resources.memory),
    ];
    let parts = parts.into_iter().filter_map(|(name, quantity)| {
        let quantity = quantity.as_ref()?.0.to_lowercase().replace('.', "-");
        Some(format!("{name}-{quantity}"))
    });
    let base = parts.collect::<Vec<_>>().join("-");
    let is_free = |name: &String| groups.iter().all(|group| group["name"] != name.as_str());
    let numbered = (2..).map(|number| format!("{base}-{number}"));
    let mut all = std::iter::once(base.clone()).chain(numbered);
    all.find(is_free).unwrap_or_default()
}
