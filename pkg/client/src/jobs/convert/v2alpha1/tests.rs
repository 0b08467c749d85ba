use std::process::Command;

use super::*;

/// Converts a job with these tasks. Returns its new form and the note.
fn convert_tasks(tasks: &Value) -> (Value, String) {
    let object = json!({
        "apiVersion": "diengine.opendilab.org/v2alpha1", "kind": "DIJob",
        "metadata": {"name": "dqn"},
        "spec": {
            "group": "g", "cleanPodPolicy": "All", "backoffLimit": 1, "tasks": tasks,
            "volumes": [{"name": "data", "emptyDir": {}}],
        },
        "status": {"phase": "Running", "restarts": 1},
    });
    let origin = "job.yaml".into();
    let mut document = Document { origin, object };
    let note = convert_v2alpha1(&mut document).unwrap();
    (document.object, note)
}

fn template(image: &str) -> Value {
    let main =
        json!({"name": "di-container", "image": image, "command": ["ditask"], "args": ["x"]});
    json!({"spec": {"containers": [main], "restartPolicy": "Never"}})
}

/// A task whose type is its name.
fn task(name: &str, replicas: i32, image: &str) -> Value {
    json!({"name": name, "type": name, "replicas": replicas, "template": template(image)})
}

fn main_of(template: &Value) -> &Value {
    &template["spec"]["containers"][0]
}

#[test]
fn tasks_become_a_coordinator_and_a_unit() {
    // Tasks, the note, the role of the unit, its size, and the images of its leader and its others.
    let rows = [
        (
            json!([
                task("learner", 1, "l"),
                task("evaluator", 1, "e"),
                task("collector", 2, "c")
            ]),
            "learner: rank 0 -> coordinator, evaluator: rank 1 -> collector, \
             collector: ranks 2 to 3 -> collector",
            ("collector", 3, Some("e"), "c"),
        ),
        (
            json!([
                task("learner", 1, "l"),
                task("collector", 2, "c"),
                task("evaluator", 1, "e")
            ]),
            "learner: rank 0 -> coordinator, evaluator: rank 3 -> collector with rank 1, \
             collector: ranks 1 to 2 -> collector with ranks 2 to 3",
            ("collector", 3, Some("e"), "c"),
        ),
        (
            json!([task("learner", 4, "l")]),
            "learner: rank 0 -> coordinator, learner: ranks 1 to 3 -> learner",
            ("learner", 3, None, "l"),
        ),
        (
            json!([task("learner", 2, "l"), task("collector", 1, "c")]),
            "learner: rank 0 -> coordinator, learner: rank 1 -> collector, \
             collector: rank 2 -> collector",
            ("collector", 2, Some("l"), "c"),
        ),
        (
            json!([{"type": "none", "template": template("s")}, task("collector", 1, "c")]),
            "none: rank 0 -> coordinator, collector: rank 1 -> collector",
            ("collector", 1, None, "c"),
        ),
    ];
    for (tasks, changes, (role, size, leader, others)) in rows {
        let (object, note) = convert_tasks(&tasks);
        let subject = r#"job.yaml: DIJob "dqn" of v2alpha1 was converted to v1alpha2"#;
        assert_eq!(note, format!("{subject} ({changes})"));
        di_api::validation::validate_dijob(&object).unwrap();
        let replica = &object["spec"][role];
        assert_eq!(replica["replicas"], 1, "{tasks}");
        assert_eq!(replica["unit"]["size"], size, "{tasks}");
        let image_of_leader = main_of(&replica["unit"]["leaderTemplate"])["image"].as_str();
        assert_eq!(image_of_leader, leader, "{tasks}");
        let main = main_of(&replica["template"]);
        assert_eq!(main["image"], others, "{tasks}");
        let command = json!(["/bin/sh", "-c", JOIN_COORDINATOR, "sh", "ditask"]);
        assert_eq!((&main["command"], &main["args"]), (&command, &json!(["x"])));
    }
}

#[test]
fn first_task_becomes_the_coordinator() {
    let (object, _) = convert_tasks(&json!([task("none", 1, "serial")]));
    assert_eq!(object["apiVersion"], "diengine.opendilab.org/v1alpha2");
    assert_eq!(object.get("status"), None);
    let main = json!({
        "name": "di-container", "image": "serial", "command": ["ditask"], "args": ["x"],
        "env": [
            {"name": "DI_NODES", "value": "$(KUBERNETES_POD_NAME)"},
            {"name": "DI_RANK", "value": "0"},
        ],
    });
    let expected = json!({
        "group": "g", "cleanPodPolicy": "All", "backoffLimit": 1,
        "volumes": [{"name": "data", "emptyDir": {}}],
        "coordinator": {"template": {"spec": {"containers": [main]}}},
    });
    assert_eq!(object["spec"], expected);
    di_api::validation::validate_dijob(&object).unwrap();
}

#[test]
fn reserved_fields_are_removed_and_defaults_are_kept() {
    let object = json!({
        "apiVersion": "diengine.opendilab.org/v2alpha1", "kind": "DIJob",
        "metadata": {"generateName": "serial-"},
        "spec": {"priority": "high", "preemptible": false, "tasks": [task("none", 1, "serial")]},
    });
    let origin = "STDIN".into();
    let mut document = Document { origin, object };
    let note = convert_v2alpha1(&mut document).unwrap();
    let changes =
        "priority removed, preemptible removed, backoffLimit 3, none: rank 0 -> coordinator";
    let subject = r#"STDIN: DIJob "" of v2alpha1 was converted to v1alpha2"#;
    assert_eq!(note, format!("{subject} ({changes})"));
    assert_eq!(document.object["spec"]["backoffLimit"], 3);
    di_api::validation::validate_dijob(&document.object).unwrap();
}

#[test]
fn jobs_that_no_unit_can_run_stay_as_they_are() {
    let mut without_command = task("collector", 2, "c");
    let main = &mut without_command["template"]["spec"]["containers"][0];
    main.as_object_mut().unwrap().remove("command");
    let mut misnamed = task("collector", 2, "c");
    misnamed["template"]["spec"]["containers"][0]["name"] = json!("main");
    let learner = task("learner", 1, "l");
    let rows = [
        (json!(null), "spec.tasks: Required value"),
        (json!([]), "spec.tasks: Required value"),
        (
            json!([learner, task("collector", 0, "c")]),
            "spec.tasks[1].replicas: Invalid value: 0: must be between 1 and 2000",
        ),
        (
            json!([
                task("learner", 1, "l"),
                task("evaluator", 2, "e"),
                task("collector", 2, "c")
            ]),
            "spec.tasks: the pods after the first one have too many templates (evaluator, collector): \
             only one pod may differ from the others",
        ),
        (
            json!([learner, without_command]),
            "spec.tasks: collector needs a command in its container di-container",
        ),
        (
            json!([learner, misnamed]),
            "spec.tasks: collector needs a command in its container di-container",
        ),
    ];
    for (tasks, reason) in rows {
        let (object, note) = convert_tasks(&tasks);
        let subject = r#"job.yaml: DIJob "dqn" of v2alpha1 cannot be converted"#;
        assert_eq!(note, format!("{subject}: {reason}"));
        assert_eq!(object["apiVersion"], "diengine.opendilab.org/v2alpha1");
        assert_eq!(object["spec"]["tasks"], tasks);
    }
}

#[test]
fn pods_of_unit_follow_the_coordinator() {
    let print = "echo $DI_RANK $DI_NODES $0 $1";
    let output = Command::new("/bin/sh")
        .arg("-c")
        .arg(JOIN_COORDINATOR.replace("$$", "$"))
        .args(["sh", "/bin/sh", "-c", print, "first", "second"])
        .env("KUBERNETES_COORDINATOR_URL", "localhost:22273")
        .env("DI_NODES", "localhost,127.0.0.1")
        .env("DI_RANK", "1")
        .output()
        .unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(printed, "2 localhost,localhost,127.0.0.1 first second\n");
}

#[test]
fn other_documents_are_not_converted() {
    for (version, kind) in [
        ("diengine.opendilab.org/v1alpha2", "DIJob"),
        ("diengine.opendilab.org/v2alpha1", "AggregatorConfig"),
        ("other.example/v2alpha1", "DIJob"),
    ] {
        let object = json!({"apiVersion": version, "kind": kind});
        let origin = "job.yaml".into();
        let mut document = Document { origin, object };
        let before = document.clone();
        assert_eq!(convert_v2alpha1(&mut document), None);
        assert_eq!(document, before);
    }
}
