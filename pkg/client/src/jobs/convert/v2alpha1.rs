//! Converts jobs of version v2alpha1: lists of tasks, whose pods find each other by `DI_NODES` and
//! `DI_RANK`, as `ditask --platform k8s` does. The first pod becomes the coordinator, with rank 0.
//! All others become one unit.

use di_api::names;
use serde_json::{Map, Value, json};

use crate::Document;

const VERSION: &str = "v2alpha1";
/// Fields that v2alpha1 reserved for later.
const RESERVED: [&str; 2] = ["priority", "preemptible"];
/// Default of `backoffLimit` in v2alpha1.
const BACKOFF_LIMIT: i32 = 3;
/// Runs the command of a pod of the unit after the coordinator is its first node. `ditask` does not
/// retry names that are not resolved yet. The kubelet replaces `$$` by `$`.
const JOIN_COORDINATOR: &str = r#"export DI_RANK=$$((DI_RANK + 1))
export DI_NODES="${KUBERNETES_COORDINATOR_URL%:*},$DI_NODES"
IFS=,
for host in $DI_NODES; do
  until getent ahosts "$host" >/dev/null; do sleep 1; done
done
unset IFS
exec "$@"
"#;

/// Pods with the same template and consecutive ranks.
struct Task {
    name: String,
    is_learner: bool,
    first_rank: i64,
    pods: i64,
    template: Value,
}

/// Converts a job of v2alpha1 and describes the changes. `None` for other documents.
pub(super) fn convert_v2alpha1(document: &mut Document) -> Option<String> {
    let object = &mut document.object;
    let version = object["apiVersion"].as_str()?.split_once('/')?;
    if version != (names::GROUP, VERSION) || object["kind"] != "DIJob" {
        return None;
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let subject = format!("{}: DIJob {name:?} of {VERSION}", document.origin);
    let mut changes = Vec::new();
    let spec = match convert_spec(&object["spec"], &mut changes) {
        Ok(spec) => spec,
        Err(reason) => return Some(format!("{subject} cannot be converted: {reason}")),
    };
    object["apiVersion"] = format!("{}/{}", names::GROUP, names::VERSION).into();
    object["spec"] = spec.into();
    if let Some(object) = object.as_object_mut() {
        // The status has another format.
        object.remove("status");
    }
    let changes = changes.join(", ");
    Some(format!(
        "{subject} was converted to {} ({changes})",
        names::VERSION
    ))
}

fn convert_spec(old: &Value, changes: &mut Vec<String>) -> Result<Map<String, Value>, String> {
    let mut spec = old.as_object().cloned().unwrap_or_default();
    let mut tasks = read_tasks(&spec.remove("tasks").unwrap_or_default())?;
    for field in RESERVED {
        if spec.remove(field).is_some() {
            changes.push(format!("{field} removed"));
        }
    }
    if spec.get("backoffLimit").is_none_or(Value::is_null) {
        spec.insert("backoffLimit".to_owned(), BACKOFF_LIMIT.into());
        changes.push(format!("backoffLimit {BACKOFF_LIMIT}"));
    }
    let mut template = tasks[0].template.clone();
    changes.push(format!("{}: rank 0 -> coordinator", tasks[0].name));
    tasks[0].first_rank = 1;
    tasks[0].pods -= 1;
    tasks.retain(|task| task.pods > 0);
    add_rank_of_coordinator(&mut template);
    spec.insert("coordinator".to_owned(), json!({"template": template}));
    if !tasks.is_empty() {
        let all_learners = tasks.iter().all(|task| task.is_learner);
        let role = if all_learners { "learner" } else { "collector" };
        spec.insert(role.to_owned(), build_unit(role, tasks, changes)?);
    }
    Ok(spec)
}

fn read_tasks(list: &Value) -> Result<Vec<Task>, String> {
    let list = list.as_array().filter(|list| !list.is_empty());
    let list = list.ok_or("spec.tasks: Required value")?;
    let mut tasks = Vec::new();
    let mut first_rank = 0;
    for (i, task) in list.iter().enumerate() {
        let pods = match &task["replicas"] {
            Value::Null => 1,
            replicas => read_replicas(replicas)
                .map_err(|fault| format!("spec.tasks[{i}].replicas: {fault}"))?,
        };
        let text = |field: &str| task[field].as_str().filter(|text| !text.is_empty());
        let mut template = task["template"].clone();
        if let Some(pod) = template.get_mut("spec").and_then(Value::as_object_mut) {
            // v2alpha1 replaces it by the default of this version.
            pod.remove("restartPolicy");
        }
        tasks.push(Task {
            name: text("name").or(text("type")).unwrap_or("none").to_owned(),
            is_learner: text("type") == Some("learner"),
            first_rank,
            pods,
            template,
        });
        first_rank += pods;
    }
    Ok(tasks)
}

fn read_replicas(replicas: &Value) -> Result<i64, String> {
    let number = replicas.as_i64();
    let max = names::MAX_REPLICAS;
    let valid = number.filter(|number| (1..=i64::from(max)).contains(number));
    valid.ok_or_else(|| format!("Invalid value: {replicas}: must be between 1 and {max}"))
}

/// Sets the variables of `ditask` for the coordinator, unless the template does. A process attaches
/// to those with lower ranks only, so the first one does not need to know the others.
fn add_rank_of_coordinator(template: &mut Value) {
    let Some(main) = find_main_container(template) else {
        return; // Validation reports it.
    };
    let env = &mut main["env"];
    if env.is_null() {
        *env = json!([]);
    }
    let Some(env) = env.as_array_mut() else {
        return;
    };
    let own_name = format!("$({})", names::env::POD_NAME);
    for (name, value) in [
        (names::env::DI_NODES, own_name.as_str()),
        (names::env::DI_RANK, "0"),
    ] {
        if !env.iter().any(|variable| variable["name"] == name) {
            env.push(json!({"name": name, "value": value}));
        }
    }
}

fn find_main_container(template: &mut Value) -> Option<&mut Value> {
    let containers = template.pointer_mut("/spec/containers")?.as_array_mut()?;
    containers
        .iter_mut()
        .find(|container| container["name"] == names::MAIN_CONTAINER)
}

/// Builds the role whose only replica is the unit of all pods except the coordinator.
fn build_unit(
    role: &str,
    mut tasks: Vec<Task>,
    changes: &mut Vec<String>,
) -> Result<Value, String> {
    let has_leader = put_leader_first(&mut tasks)?;
    let mut rank = 1;
    for task in &tasks {
        changes.push(describe_move(task, role, rank));
        rank += task.pods;
    }
    let mut unit = json!({"size": rank - 1});
    if has_leader {
        unit["leaderTemplate"] = join_coordinator(&tasks.remove(0))?;
    }
    // All other tasks have the same template.
    let template = join_coordinator(&tasks[0])?;
    Ok(json!({"replicas": 1, "unit": unit, "template": template}))
}

/// Moves the task of the leader to the front if the pods have two templates. Returns whether they
/// do.
fn put_leader_first(tasks: &mut [Task]) -> Result<bool, String> {
    if have_one_template(tasks.iter()) {
        return Ok(false);
    }
    let can_lead = |leader: &usize| {
        let others = tasks.iter().enumerate().filter(|(i, _)| i != leader);
        tasks[*leader].pods == 1 && have_one_template(others.map(|(_, task)| task))
    };
    let Some(leader) = (0..tasks.len()).find(can_lead) else {
        let all: Vec<_> = tasks.iter().map(|task| task.name.as_str()).collect();
        return Err(format!(
            "spec.tasks: the pods after the first one have too many templates ({}): only one pod may differ from the others",
            all.join(", ")
        ));
    };
    tasks[..=leader].rotate_right(1);
    Ok(true)
}

fn have_one_template<'a>(tasks: impl Iterator<Item = &'a Task>) -> bool {
    let mut templates = tasks.map(|task| &task.template);
    let first = templates.next();
    templates.all(|template| Some(template) == first)
}

fn describe_move(task: &Task, role: &str, rank: i64) -> String {
    let ranks = |first: i64| match task.pods {
        1 => format!("rank {first}"),
        pods => format!("ranks {first} to {}", first + pods - 1),
    };
    let (name, old) = (&task.name, ranks(task.first_rank));
    if task.first_rank == rank {
        format!("{name}: {old} -> {role}")
    } else {
        format!("{name}: {old} -> {role} with {}", ranks(rank))
    }
}

/// Returns the template of a task for the unit.
fn join_coordinator(task: &Task) -> Result<Value, String> {
    let mut template = task.template.clone();
    let command = find_main_container(&mut template)
        .and_then(|main| main.get_mut("command")?.as_array_mut())
        .filter(|command| !command.is_empty());
    let Some(command) = command else {
        return Err(format!(
            "spec.tasks: {} needs a command in its container {}",
            task.name,
            names::MAIN_CONTAINER
        ));
    };
    let shell = ["/bin/sh", "-c", JOIN_COORDINATOR, "sh"];
    command.splice(0..0, shell.map(Value::from));
    Ok(template)
}

#[cfg(test)]
mod tests;
