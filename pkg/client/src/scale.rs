use std::{collections::BTreeSet, fmt};

use di_api::{Origin, PlanEntry, ReplicaResources, Role, names, quantity};
use serde_json::{Value, json};

use crate::{
    Cluster, DryRun, Error, Job, Result,
    guarded_patch::{Edit, annotate, edit, refuse_ended, still, unchanged},
};

/// Numbers of collectors and learners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts<T = i32> {
    /// Collectors.
    pub collectors: T,
    /// Learners.
    pub learners: T,
}

impl<T> Counts<T> {
    pub(crate) fn by_role(self) -> [(Role, T); 2] {
        [
            (Role::Collector, self.collectors),
            (Role::Learner, self.learners),
        ]
    }
}

/// Which of a job's declared replicas are meant: those as the template has them where nothing is said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReplicaGroupRef {
    /// Those of this group.
    pub group: Option<String>,
    /// Those whose resources differ so from the template's; GPUs are those of learners.
    pub resources: ReplicaResources,
}

impl ReplicaGroupRef {
    fn resources(&self, role: Role) -> ReplicaResources {
        let mut resources = self.resources.clone();
        if role == Role::Collector {
            resources.gpus = None;
        }
        resources
    }
}

/// A change of what a job declares.
#[derive(Clone, Debug, PartialEq)]
pub enum ScaleRequest {
    /// Adds to the counts.
    By {
        /// How many more, or fewer.
        counts: Counts,
        /// Of selector replicas; more of resources that no group has make one.
        selector: ReplicaGroupRef,
    },
    /// Sets them; what is not told stays.
    To {
        /// How many there are to be.
        counts: Counts<Option<i32>>,
        /// Of selector replicas.
        selector: ReplicaGroupRef,
    },
    /// Lets go of the replicas of these names, and declares fewer.
    Without(Vec<String>),
}

/// A declared count that was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScaledCount {
    /// Of selector role.
    pub role: Role,
    /// Of selector group; none for those that are as the template has them.
    pub group: Option<String>,
    /// What it was.
    pub from: i32,
    /// What it is.
    pub to: i32,
}

impl fmt::Display for ScaledCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}s", self.role)?;
        if let Some(group) = &self.group {
            write!(f, " of group {group}")?;
        }
        write!(f, " {} -> {}", self.from, self.to)
    }
}

/// Changes the declared counts of a job in one write, selector fails if anybody changed them meanwhile, and is then tried again.
/// What is told is only what changes.
///
/// # Errors
/// [`Error::Refused`] when the job cannot have these counts, [`Error::JobEnded`] when it is over.
pub async fn scale(
    cluster: &Cluster,
    name: &str,
    request: &ScaleRequest,
    dry_run: DryRun,
) -> Result<(Job, Vec<ScaledCount>)> {
    edit(cluster, name, dry_run, |job| {
        refuse_ended(job, "; create a new job instead")?;
        change(job, request).map_err(Error::Refused)
    })
    .await
}

fn change(job: &Job, request: &ScaleRequest) -> Result<Edit<Vec<ScaledCount>>, String> {
    let mut draft = Draft::new(job);
    match request {
        ScaleRequest::By { counts, selector } => {
            for (role, by) in counts.by_role() {
                if by > 0 && !selector.resources(role).is_empty() {
                    draft.add_with(role, by, selector)?;
                } else if by != 0 {
                    let group = draft.group(role, selector)?;
                    draft.add(role, group.as_deref(), by)?;
                }
            }
        }
        ScaleRequest::To { counts, selector } => {
            for (role, to) in counts.by_role() {
                if let Some(to) = to {
                    let group = draft.group(role, selector)?;
                    let from = draft.count(role, group.as_deref())?;
                    draft.set(role, group.as_deref(), from, i64::from(to))?;
                }
            }
        }
        ScaleRequest::RemoveNamed(names) => draft.let_go(names)?,
    }
    Ok(Edit {
        operations: draft.operations,
        told: draft.scaled,
    })
}

struct Draft<'a> {
    job: &'a Job,
    operations: Vec<Value>,
    scaled: Vec<ScaledCount>,
}

impl<'a> Draft<'a> {
    fn new(job: &'a Job) -> Self {
        Self {
            job,
            operations: Vec::new(),
            scaled: Vec::new(),
        }
    }

    fn part(&self, role: Role) -> Result<&'a Value, String> {
        let part = self.job.object["spec"].get(role.label());
        part.filter(|part| part.is_object()).ok_or_else(|| {
            format!(
                "job {:?} has no {role}s: spec.{role} is not set, so there is no template to make them from",
                self.job.name()
            )
        })
    }

    /// Where the count of a group stands, or that of those in none.
    fn path(&self, role: Role, group: Option<&str>) -> Result<String, String> {
        let part = self.part(role)?;
        let Some(group) = group else {
            return Ok(format!("/spec/{role}/replicas"));
        };
        let groups = groups(part);
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

    fn count(&self, role: Role, group: Option<&str>) -> Result<i64, String> {
        let path = self.path(role, group)?;
        let count = self.job.object.pointer(&path);
        Ok(count.and_then(Value::as_i64).unwrap_or(0))
    }

    fn add(&mut self, role: Role, group: Option<&str>, by: i32) -> Result<(), String> {
        let from = self.count(role, group)?;
        let to = from + i64::from(by);
        if to < 0 {
            return Err(self.too_few(role, group, from, -i64::from(by)));
        }
        self.set(role, group, from, to)
    }

    fn set(&mut self, role: Role, group: Option<&str>, from: i64, to: i64) -> Result<(), String> {
        if from == to {
            return Ok(());
        }
        let path = self.path(role, group)?;
        if let Some(i) = group.and_then(|_| path.strip_suffix("/replicas")) {
            // Groups may be put into another order.
            self.operations.push(still(self.job, &format!("{i}/name")));
        }
        self.operations.push(still(self.job, &path));
        let add = json!({"op": "add", "path": path, "value": to});
        self.operations.push(add);
        self.tell(role, group, from, to)
    }

    fn tell(&mut self, role: Role, group: Option<&str>, from: i64, to: i64) -> Result<(), String> {
        let whole = |count: i64| {
            i32::try_from(count)
                .map_err(|_| format!("{count} {role}s are more than can be counted"))
        };
        self.scaled.push(ScaledCount {
            role,
            group: group.map(str::to_owned),
            from: whole(from)?,
            to: whole(to)?,
        });
        Ok(())
    }

    /// The group of these resources, if there is one, or that of this name, selector has to have them.
    fn of_resources(&self, role: Role, selector: &ReplicaGroupRef) -> Result<Option<String>, String> {
        let wanted = selector.resources(role);
        let is_meant = |known: &&Value| match &selector.group {
            Some(group) => known["name"] == group.as_str(),
            None => are_same(&known["resources"], &wanted),
        };
        let Some(known) = groups(self.part(role)?).iter().find(is_meant) else {
            return Ok(None);
        };
        let name = known["name"].as_str().unwrap_or_default();
        if !are_same(&known["resources"], &wanted) {
            return Err(format!(
                "group {name:?} of {role}s has other resources: {}; leave them out, or name another group",
                known["resources"]
            ));
        }
        Ok(Some(name.to_owned()))
    }

    /// The group that is meant, selector is there; none for replicas as the template has them.
    fn group(&self, role: Role, selector: &ReplicaGroupRef) -> Result<Option<String>, String> {
        let resources = selector.resources(role);
        if resources.is_empty() {
            return Ok(selector.group.clone());
        }
        if let Some(group) = self.of_resources(role, selector)? {
            return Ok(Some(group));
        }
        if selector.group.is_some() {
            // It is told of where it is looked for.
            return Ok(selector.group.clone());
        }
        let groups = groups(self.part(role)?);
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

    fn add_with(&mut self, role: Role, by: i32, selector: &ReplicaGroupRef) -> Result<(), String> {
        if let Some(group) = self.of_resources(role, selector)? {
            return self.add(role, Some(&group), by);
        }
        let groups = groups(self.part(role)?);
        let resources = selector.resources(role);
        let as_json = json!(resources);
        let name = match &selector.group {
            Some(group) => group.clone(),
            None => free_name(groups, &resources),
        };
        let path = format!("/spec/{role}/groups");
        let new = json!({"name": name, "replicas": by, "resources": as_json});
        self.operations.push(still(self.job, &path));
        self.operations
            .push(if self.job.object.pointer(&path).is_some() {
                json!({"op": "add", "path": format!("{path}/-"), "value": new})
            } else {
                json!({"op": "add", "path": path, "value": [new]})
            });
        self.tell(role, Some(&name), 0, i64::from(by))
    }

    fn too_few(&self, role: Role, group: Option<&str>, declared: i64, fewer: i64) -> String {
        let plan = self.job.status.plan.iter();
        let requested = plan
            .filter(|e| e.role.counted_as() == role && e.origin == Origin::Requested)
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
                    "; {n} more were requested through the replica endpoint, or adopted, and go through it alone"
                )
            }
        };
        let in_groups = self.part(role).map_or(0, |part| {
            groups(part)
                .iter()
                .filter_map(|group| group["replicas"].as_i64())
                .sum()
        });
        let grouped = if group.is_none() && in_groups > 0 {
            format!("; {in_groups} more are in groups, see --group")
        } else {
            String::new()
        };
        format!(
            "cannot delete {fewer} {role}s of job {:?}: {field} declares {declared}{grouped}{others}",
            self.job.name()
        )
    }

    /// The names go into an annotation together with the counts: lowered first, the counts would take others, and pods that are deleted first
    /// would be replaced.
    fn let_go(&mut self, names: &[String]) -> Result<(), String> {
        let names: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        let mut units = BTreeSet::new();
        let mut buckets: Vec<(Role, Option<&str>, i64)> = Vec::new();
        for name in &names {
            let entry = declared_unit(self.job, name)?;
            if !units.insert(entry.name.as_str()) {
                continue;
            }
            let (role, group) = (entry.role.counted_as(), entry.group.as_deref());
            match buckets.iter_mut().find(|b| (b.0, b.1) == (role, group)) {
                Some(bucket) => bucket.2 += 1,
                None => buckets.push((role, group, 1)),
            }
        }
        for (role, group, fewer) in buckets {
            let from = self.count(role, group)?;
            // The count may have been lowered already, selector has yet to be seen to.
            if from < fewer {
                return Err(self.too_few(role, group, from, fewer));
            }
            self.set(role, group, from, from - fewer)?;
        }
        // Those of an earlier change that the orchestrator has yet to see stay.
        let key = names::LET_GO_ANNOTATION;
        let annotations = self.job.metadata.annotations.as_ref();
        let earlier = annotations.and_then(|all| all.get(key));
        let earlier = earlier.into_iter().flat_map(|all| all.split(','));
        let is_there = |name: &&str| {
            let mut plan = self.job.status.plan.iter();
            plan.any(|entry| entry.name == *name && entry.is_wanted())
        };
        units.extend(earlier.filter(is_there));
        let all: Vec<_> = units.into_iter().collect();
        self.operations
            .extend(annotate(self.job, key, &all.join(",")));
        // Who these names are stands in the status.
        self.operations.insert(0, unchanged(self.job));
        Ok(())
    }
}

fn groups(part: &Value) -> &[Value] {
    part["groups"].as_array().map_or(&[], Vec::as_slice)
}

/// Whether a group's resources are as wanted, however each amount is spelt: 2 or "2", 1Gi or 1024Mi.
fn are_same(known: &Value, wanted: &ReplicaResources) -> bool {
    let amounts = |of: &ReplicaResources| {
        [&of.cpus, &of.gpus, &of.memory].map(|one| {
            let text = &one.as_ref()?.0;
            Some(quantity::nanos(text).ok_or_else(|| text.clone()))
        })
    };
    let known = serde_json::from_value::<ReplicaResources>(known.clone());
    known.is_ok_and(|known| amounts(&known) == amounts(wanted))
}

/// As `cpus-2-gpus-1`, with a number behind it where others have that name.
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

/// The entry of the plan that a user means by the name of a pod, from selector the job's own may be left out: of a ddp learner, its aggregator's.
pub(crate) fn unit<'a>(job: &'a Job, pod: &str) -> Result<&'a PlanEntry, String> {
    let pod = pod.strip_prefix("pod/").unwrap_or(pod);
    let plan = &job.status.plan;
    let coordinator = names::coordinator(job.name());
    let long = format!("{}-{pod}", job.name());
    let is_known = |name: &str| {
        let mut all = plan
            .iter()
            .flat_map(|e| e.replaces.iter().chain([&e.name]))
            .chain([&coordinator]);
        all.any(|known| known == name)
    };
    let pod = if is_known(&long) && !is_known(pod) {
        &long
    } else {
        pod
    };
    let find = |name: &str| plan.iter().find(|entry| entry.name == name);
    let entry = find(pod).map(|entry| match &entry.ddp {
        Some(place) => find(&place.aggregator).unwrap_or(entry),
        None => entry,
    });
    if let Some(entry) = entry.filter(|entry| entry.is_wanted()) {
        return Ok(entry);
    }
    let successor = plan.iter().find(|e| e.replaces.as_deref() == Some(pod));
    Err(match (entry, successor) {
        (_, Some(next)) => format!("{pod} has been replaced by {}", next.name),
        (Some(_), None) => format!("{pod} is being let go of already"),
        (None, None) if pod == coordinator => format!(
            "{pod} is the coordinator; kubectl di restart {}",
            job.name()
        ),
        (None, None) => format!("job {:?} has no replica {pod:?}", job.name()),
    })
}

fn declared_unit<'a>(job: &'a Job, pod: &str) -> Result<&'a PlanEntry, String> {
    let entry = unit(job, pod)?;
    if entry.origin == Origin::Requested {
        return Err(format!(
            "{pod} was requested through the replica endpoint, or adopted, and goes through it alone; another takes its place with: kubectl di replicas restart {} {pod}",
            job.name()
        ));
    }
    Ok(entry)
}

#[cfg(test)]
mod tests;
