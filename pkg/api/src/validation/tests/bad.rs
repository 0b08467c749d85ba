use super::*;

/// The longest messages, by the name that they have in the table.
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = r"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const QUANTITY: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// Sets each of `rows` in a good job and compares what comes back; `~` stands for the coordinator's pod, `@` for its main container.
fn check(rows: &[(&str, Value, &str)]) {
    for (path, value, message) in rows {
        let pod = "/spec/coordinator/template/spec";
        let container = format!("{pod}/containers/0");
        let path = path.replace('@', &container).replace('~', pod);
        let mut job = good();
        set(&mut job, &path, value.clone());
        let message = message
            .replace('@', &container[1..].replace("/0", "[0]").replace('/', "."))
            .replace('~', &pod[1..].replace('/', "."))
            .replace("{LABEL}", LABEL)
            .replace("{SUBDOMAIN}", SUBDOMAIN)
            .replace("{VALUE}", VALUE)
            .replace("{QUANTITY}", QUANTITY);
        let faults = dijob(&job).expect_err(&message);
        assert_eq!(summary(&faults), message, "{path} = {value}");
    }
}

#[test]
#[rustfmt::skip] // a table
fn unknown_fields() {
    check(&[
        ("/specs", json!({}), "specs: Invalid value: {}: unknown field, did you mean spec?"),
        ("/data", json!(1), "data: Invalid value: 1: unknown field"),
        ("/spec/cleanPodPolciy", json!("Running"), r#"spec.cleanPodPolciy: Invalid value: "Running": unknown field, did you mean cleanPodPolicy?"#),
        ("/spec/clean_pod_policy", json!("Running"), r#"spec.clean_pod_policy: Invalid value: "Running": unknown field, did you mean cleanPodPolicy?"#),
        ("/spec/learners", json!({}), "spec.learners: Invalid value: {}: unknown field, did you mean learner?"),
        ("/spec/zebra", json!(null), "spec.zebra: Invalid value: null: unknown field"),
        ("/spec/zebra", json!("z".repeat(100)), &format!("spec.zebra: Invalid value: \"{}...: unknown field", "z".repeat(79))),
        ("/spec/backofLimit", json!(3), "spec.backofLimit: Invalid value: 3: unknown field, did you mean backoffLimit?"),
        ("/spec/ttlSecondsAfterFinish", json!(3), "spec.ttlSecondsAfterFinish: Invalid value: 3: unknown field, did you mean ttlSecondsAfterFinished?"),
        ("/spec/coordinator/replicas", json!(1), "spec.coordinator.replicas: Invalid value: 1: unknown field"),
        ("/spec/collector/replica", json!(1), "spec.collector.replica: Invalid value: 1: unknown field, did you mean replicas?"),
        ("/spec/collector/groups", json!([{"name": "g", "resource": {}}]), "spec.collector.groups[0].resource: Invalid value: {}: unknown field, did you mean resources?"),
        ("/spec/collector/groups", json!([{"name": "g", "resources": {"cpu": "1"}}]), r#"spec.collector.groups[0].resources.cpu: Invalid value: "1": unknown field, did you mean cpus?"#),
        ("/spec/collector/groups", json!([{"name": "g", "resources": {"gpu": 1}}]), "spec.collector.groups[0].resources.gpu: Invalid value: 1: unknown field, did you mean gpus?"),
        ("/spec/coordinator/template/metadata", json!({"lables": {"a": "b"}}), r#"spec.coordinator.template.metadata.lables: Invalid value: {"a":"b"}: unknown field, did you mean labels?"#),
        ("~/container", json!([]), "~.container: Invalid value: []: unknown field, did you mean containers?"),
        ("~/restartpolicy", json!("Never"), r#"~.restartpolicy: Invalid value: "Never": unknown field, did you mean restartPolicy?"#),
        ("@/imagePullPolcy", json!("Always"), r#"@.imagePullPolcy: Invalid value: "Always": unknown field, did you mean imagePullPolicy?"#),
        ("@/resources", json!({"limit": {"cpu": 1}}), r#"@.resources.limit: Invalid value: {"cpu":1}: unknown field, did you mean limits?"#),
        ("@/env", json!([{"name": "A", "valeu": "1"}]), r#"@.env[0].valeu: Invalid value: "1": unknown field, did you mean value?"#),
        ("@/ports", json!([{"containerPort": 1, "port": 2}]), "@.ports[0].port: Invalid value: 2: unknown field"),
        ("/spec/volumes", json!([{"name": "v", "emptydir": {}}]), "spec.volumes[0].emptydir: Invalid value: {}: unknown field, did you mean emptyDir?"),
        ("/spec/volumes", json!([{"name": "v", "hostPath": {"paht": "/"}}]), r#"spec.volumes[0].hostPath.paht: Invalid value: "/": unknown field, did you mean path?"#),
    ]);
}

#[test]
#[rustfmt::skip] // a table
fn names_and_volumes() {
    let long = "a".repeat(64);
    let di = json!({"name": "di-container", "image": "i"});
    let named = |name: &str| json!([di, {"name": name, "image": "i"}]);
    let mount = |name: &str, path: &str| json!({"name": name, "mountPath": path});
    check(&[
        ("~/containers", named("Side"), r#"~.containers[1].name: Invalid value: "Side": {LABEL}"#),
        ("~/containers", named(""), "~.containers[1].name: Required value: it needs a name"),
        ("~/containers", named(&long), &format!("~.containers[1].name: Invalid value: \"{long}\": must be no more than 63 characters")),
        ("~/containers", named("di-container"), r#"~.containers[1].name: Duplicate value: "di-container""#),
        ("~/initContainers", json!([di]), r#"~.containers[0].name: Duplicate value: "di-container""#),
        ("~/initContainers", json!([{"name": "i-"}]), r#"[~.initContainers[0].name: Invalid value: "i-": {LABEL}, ~.initContainers[0].image: Required value: the image that the container runs]"#),
        ("@/image", json!(""), "@.image: Required value: the image that the container runs"),
        ("@/image", json!(null), "@.image: Required value: the image that the container runs"),
        ("~/volumes", json!([{"name": "v"}, {"name": "v"}]), r#"~.volumes[1].name: Duplicate value: "v""#),
        ("~/volumes", json!([{"name": "my_v"}]), r#"~.volumes[0].name: Invalid value: "my_v": {LABEL}"#),
        ("/spec/volumes", json!([{"emptyDir": {}}]), "spec.volumes[0].name: Required value: it needs a name"),
        ("/spec/volumes", json!([{"name": "v."}]), r#"spec.volumes[0].name: Invalid value: "v.": {LABEL}"#),
        ("@/volumeMounts", json!([mount("data", "/d")]), r#"@.volumeMounts[0].name: Not found: "data""#),
        ("@/volumeMounts", json!([mount("data", "")]), r#"[@.volumeMounts[0].name: Not found: "data", @.volumeMounts[0].mountPath: Required value: where the volume appears in the container]"#),
        ("~", json!({"volumes": [{"name": "a"}], "containers": [{"name": "di-container", "image": "i", "volumeMounts": [mount("a", "/d"), mount("a", "/d")]}]}), r#"@.volumeMounts[1].mountPath: Invalid value: "/d": must be unique"#),
        ("~", json!({"volumes": 3, "containers": [{"name": "di-container", "image": "i", "volumeMounts": [mount("a", "/d")]}]}), "~.volumes: Invalid value: invalid type: integer `3`, expected a sequence"),
        ("@/env", json!([{"value": "1"}]), "@.env[0].name: Required value: it needs a name"),
        ("@/env", json!([{"name": "A=B"}]), r#"@.env[0].name: Invalid value: "A=B": must not contain '='"#),
        ("/spec/priorityClassName", json!("High"), r#"spec.priorityClassName: Invalid value: "High": {SUBDOMAIN}"#),
        ("/spec/group", json!("my team"), r#"spec.group: Invalid value: "my team": {VALUE}"#),
        ("/spec/group", json!("-a"), r#"spec.group: Invalid value: "-a": {VALUE}"#),
        ("/spec/collector/groups", json!([{"name": "Big"}]), r#"spec.collector.groups[0].name: Invalid value: "Big": {LABEL}"#),
        ("/spec/collector/groups", json!([{"name": ""}]), "spec.collector.groups[0].name: Required value: it needs a name"),
    ]);
}

#[test]
#[rustfmt::skip] // a table
fn ports_and_the_pod() {
    let port = |name: &str, number: i32| json!({"name": name, "containerPort": number});
    let sidecar = json!({"name": "side", "image": "i", "ports": [port("di-port", 2)]});
    let learner = json!({"template": {"spec": {"containers": [{"name": "di-container", "image": "i", "ports": [port("gpu-port-1", 1), port("gpu-port-x", 2), port("master-port", 3)]}]}}});
    check(&[
        ("@/ports", json!([port("p", 0)]), "@.ports[0].containerPort: Invalid value: 0: must be between 1 and 65535, inclusive"),
        ("@/ports", json!([port("p", 65536)]), "@.ports[0].containerPort: Invalid value: 65536: must be between 1 and 65535, inclusive"),
        ("@/ports", json!([{"containerPort": 1, "hostPort": -1}]), "@.ports[0].hostPort: Invalid value: -1: must be between 1 and 65535, inclusive"),
        ("@/ports", json!([{"containerPort": 1, "protocol": "tcp"}]), r#"@.ports[0].protocol: Unsupported value: "tcp": supported values: "SCTP", "TCP", "UDP""#),
        ("@/ports", json!([port("p", 1), port("p", 2)]), r#"@.ports[1].name: Duplicate value: "p""#),
        ("@/ports", json!([port("di-port", 1), port("di-port", 2)]), r#"@.ports[1].name: Duplicate value: "di-port""#),
        ("~/containers", json!([{"name": "di-container", "image": "i", "ports": [port("di-port", 1)]}, sidecar]), r#"~.containers[1].ports[0].name: Duplicate value: "di-port""#),
        ("@/ports", json!([port("much-too-long-name", 1)]), r#"@.ports[0].name: Invalid value: "much-too-long-name": must be no more than 15 characters"#),
        ("@/ports", json!([port("Http", 1)]), r#"@.ports[0].name: Invalid value: "Http": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"#),
        ("@/ports", json!([port("80", 1)]), r#"@.ports[0].name: Invalid value: "80": must contain at least one letter (a-z)"#),
        ("@/ports", json!([port("a--b", 1)]), r#"@.ports[0].name: Invalid value: "a--b": must not contain consecutive hyphens"#),
        ("@/ports", json!([port("a-", 1)]), r#"@.ports[0].name: Invalid value: "a-": must not begin or end with a hyphen"#),
        ("/spec/learner", learner, r#"[spec.learner.template.spec.containers[0].ports[0].name: Invalid value: "gpu-port-1": is the name of a port that ddp learners are given; choose another, spec.learner.template.spec.containers[0].ports[2].name: Invalid value: "master-port": is the name of a port that ddp learners are given; choose another]"#),
        ("~/restartPolicy", json!("Sometimes"), r#"~.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never""#),
        ("~/terminationGracePeriodSeconds", json!(-1), "~.terminationGracePeriodSeconds: Invalid value: -1: must be greater than or equal to 0"),
        ("~/ephemeralContainers", json!([{"name": "e", "image": "i"}]), "~.ephemeralContainers: Forbidden: ephemeral containers not allowed in pod template"),
    ]);
}

#[test]
#[rustfmt::skip] // a table
fn quantities() {
    let limits = |name: &str, amount: Value| json!({"limits": {name: amount}});
    let both = |name: &str, request: &str, limit: &str| json!({"requests": {name: request}, "limits": {name: limit}});
    check(&[
        ("@/resources", limits("cpu", json!("two")), r#"@.resources.limits[cpu]: Invalid value: "two": {QUANTITY}"#),
        ("@/resources", limits("memory", json!("4GB")), r#"@.resources.limits[memory]: Invalid value: "4GB": {QUANTITY}"#),
        ("@/resources", limits("memory", json!("1.2.3Gi")), r#"@.resources.limits[memory]: Invalid value: "1.2.3Gi": {QUANTITY}"#),
        ("@/resources", limits("memory", json!("")), r#"@.resources.limits[memory]: Invalid value: "": {QUANTITY}"#),
        ("@/resources", limits("cpu", json!(".")), r#"@.resources.limits[cpu]: Invalid value: ".": {QUANTITY}"#),
        ("@/resources", limits("cpu", json!("+-1")), r#"@.resources.limits[cpu]: Invalid value: "+-1": {QUANTITY}"#),
        ("@/resources", limits("cpu", json!("-1")), r#"@.resources.limits[cpu]: Invalid value: "-1": must be greater than or equal to 0"#),
        ("@/resources", limits("cpu", json!(-1)), r#"@.resources.limits[cpu]: Invalid value: "-1": must be greater than or equal to 0"#),
        ("@/resources", limits("nvidia.com/gpu", json!("500m")), r#"@.resources.limits[nvidia.com/gpu]: Invalid value: "500m": must be an integer"#),
        ("@/resources", both("cpu", "1500m", "1"), r#"@.resources.requests: Invalid value: "1500m": must be less than or equal to cpu limit of 1"#),
        ("@/resources", both("memory", "1Gi", "1G"), r#"@.resources.requests: Invalid value: "1Gi": must be less than or equal to memory limit of 1G"#),
        ("@/resources", both("nvidia.com/gpu", "1", "2"), r#"@.resources.requests: Invalid value: "1": must be equal to nvidia.com/gpu limit of 2"#),
        ("@/resources", json!({"requests": {"nvidia.com/gpu": "1"}}), "@.resources.limits: Required value: Limit must be set for non overcommitable resources: nvidia.com/gpu"),
        ("/spec/collector/groups", json!([{"name": "g", "resources": {"cpus": "x"}}]), r#"spec.collector.groups[0].resources.cpus: Invalid value: "x": {QUANTITY}"#),
        ("/spec/collector/groups", json!([{"name": "g", "resources": {"gpus": "0.5"}}]), r#"spec.collector.groups[0].resources.gpus: Invalid value: "0.5": must be an integer"#),
        ("/spec/collector/groups", json!([{"name": "g", "resources": {"memory": "-1Gi"}}]), r#"spec.collector.groups[0].resources.memory: Invalid value: "-1Gi": must be greater than or equal to 0"#),
    ]);
}

#[test]
fn faults_of_every_kind_come_in_one_answer() {
    let mut job = good();
    set(&mut job, "/spec/cleanPodPolciy", json!("All"));
    set(&mut job, "/spec/cleanPodPolicy", json!("Sometimes"));
    set(&mut job, "/spec/coordinator", json!(null));
    set(&mut job, "/spec/suspend", json!("no"));
    set(&mut job, "/spec/collector/replicas", json!("two"));
    set(&mut job, "/spec/backoffLimit", json!(-1));
    let faults = dijob(&job).unwrap_err();
    assert_eq!(
        summary(&faults),
        r#"[spec.cleanPodPolciy: Invalid value: "All": unknown field, did you mean cleanPodPolicy?, spec.cleanPodPolicy: Unsupported value: "Sometimes": supported values: "None", "Running", "All", spec.coordinator.template: Required value: the pod that the coordinator runs in, spec.collector.replicas: Invalid value: invalid type: string "two", expected i32, spec.suspend: Invalid value: invalid type: string "no", expected a boolean, spec.backoffLimit: Invalid value: -1: must be greater than or equal to 0]"#
    );
}

#[test]
fn an_aggregator_config_is_held_to_the_same_rules() {
    let mut template = template("di-container");
    template["spec"]["containers"][0]["imagee"] = json!("i");
    template["spec"]["restartPolicy"] = json!("No");
    let faults =
        aggregator_config(&json!({"metadata": {}, "spec": {"aggregator": {"template": template}}}));
    assert_eq!(
        summary(&faults.unwrap_err()),
        r#"[spec.aggregator.template.spec.containers[0].imagee: Invalid value: "i": unknown field, did you mean image?, spec.aggregator.template.spec.restartPolicy: Unsupported value: "No": supported values: "Always", "OnFailure", "Never"]"#
    );
}
