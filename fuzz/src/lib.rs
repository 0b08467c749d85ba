//! Shared code of the fuzz targets: invariants of every response, and generators of JSON that
//! resembles jobs.

use arbitrary::{Arbitrary, Result, Unstructured};
use di_admission::{
    Error,
    review::{ReviewOutcome, ReviewResponse, mutate, validate},
};
use di_api::{Failure, FailureRule, Role, find_rule, quantity, validation};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Map, Value};

/// Field names that the validator knows, and some misspelt ones.
const NAMES: [&str; 74] = [
    "apiVersion",
    "kind",
    "metadata",
    "spec",
    "status",
    "name",
    "generateName",
    "labels",
    "annotations",
    "finalizers",
    "deletionTimestamp",
    "group",
    "priorityClassName",
    "cleanPodPolicy",
    "cleanPodPolciy",
    "volumes",
    "coordinator",
    "collector",
    "learner",
    "aggregator",
    "template",
    "replicas",
    "groups",
    "resources",
    "cpus",
    "gpus",
    "memory",
    "suspend",
    "activeDeadlineSeconds",
    "ttlSecondsAfterFinished",
    "backoffLimit",
    "containers",
    "initContainers",
    "ephemeralContainers",
    "image",
    "command",
    "args",
    "env",
    "envFrom",
    "value",
    "valueFrom",
    "ports",
    "containerPort",
    "protocol",
    "hostPort",
    "limits",
    "requests",
    "cpu",
    "nvidia.com/gpu",
    "volumeMounts",
    "mountPath",
    "emptyDir",
    "hostPath",
    "configMap",
    "secret",
    "path",
    "restartPolicy",
    "hostNetwork",
    "nodeSelector",
    "tolerations",
    "affinity",
    "phase",
    "startTime",
    "plan",
    "failureRules",
    "failureTails",
    "roles",
    "onExitCodes",
    "operator",
    "values",
    "onReasons",
    "action",
    "growMemory",
    "factor",
];
/// String values that are valid in some field.
const STRING_VALUES: [&str; 28] = [
    "",
    "di-container",
    "di-port",
    "Running",
    "ALL",
    "None",
    "Never",
    "Always",
    "Failed",
    "Suspended",
    "a",
    "job",
    "1",
    "1Gi",
    "0.5",
    "-1",
    "1e9",
    "9999999999999999999",
    "100m",
    "TCP",
    "$(X)",
    "\u{1F980}",
    "A_B",
    "2026-01-02T03:04:05Z",
    "In",
    "NotIn",
    "OOMKilled",
    "FailJob",
];
/// Maximum depth of generated JSON.
const MAX_DEPTH: usize = 12;
/// Maximum number of items of a generated list or object.
const MAX_ITEMS: usize = 6;

/// JSON of names and values that the validator probably knows.
#[derive(Clone, Debug)]
pub struct Json(pub Value);

impl<'a> Arbitrary<'a> for Json {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        arbitrary_value(u, MAX_DEPTH).map(Self)
    }
}

fn arbitrary_value(u: &mut Unstructured<'_>, depth: usize) -> Result<Value> {
    let kinds = if depth == 0 { 5 } else { 8 };
    Ok(match u.int_in_range(0..=kinds)? {
        0 => Value::Null,
        1 => Value::Bool(u.arbitrary()?),
        2 => Value::from(u.arbitrary::<i64>()?),
        3 => Value::from(u.int_in_range(-2..=70_000)?),
        4 => Value::from(*u.choose(&STRING_VALUES)?),
        5 => Value::from(u.arbitrary::<String>()?),
        6 => {
            let items = (0..u.int_in_range(0..=MAX_ITEMS)?).map(|_| arbitrary_value(u, depth - 1));
            Value::Array(items.collect::<Result<_>>()?)
        }
        _ => {
            let fields = (0..u.int_in_range(0..=MAX_ITEMS)?)
                .map(|_| Ok((arbitrary_name(u)?, arbitrary_value(u, depth - 1)?)));
            Value::Object(fields.collect::<Result<Map<_, _>>>()?)
        }
    })
}

fn arbitrary_name(u: &mut Unstructured<'_>) -> Result<String> {
    if u.ratio(9, 10)? {
        u.choose(&NAMES).map(|name| (*name).to_owned())
    } else {
        u.arbitrary()
    }
}

/// A valid job with up to four fields replaced by arbitrary values.
#[derive(Clone, Debug)]
pub struct MutatedJob(pub Value);

impl<'a> Arbitrary<'a> for MutatedJob {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let mut job: Value = serde_json::from_str(JOB).unwrap_or_default();
        for _ in 0..u.int_in_range(0..=4)? {
            let mut target = &mut job;
            // Follow existing fields for some levels, then replace the value.
            for _ in 0..u.int_in_range(1..=8)? {
                let keys: Vec<String> = match &*target {
                    Value::Object(fields) => fields.keys().cloned().collect(),
                    _ => Vec::new(),
                };
                let key = if keys.is_empty() || u.ratio(1, 6)? {
                    arbitrary_name(u)?
                } else {
                    u.choose(&keys)?.clone()
                };
                let index = match &*target {
                    Value::Array(items) if !items.is_empty() => {
                        Some(u.int_in_range(0..=items.len() - 1)?)
                    }
                    _ => None,
                };
                target = match (target, index) {
                    (Value::Array(items), Some(index)) => &mut items[index],
                    (Value::Object(fields), _) => fields.entry(key).or_insert(Value::Null),
                    (other, _) => other,
                };
            }
            *target = arbitrary_value(u, 4)?;
        }
        Ok(Self(job))
    }
}

const JOB: &str = r#"{
    "apiVersion": "diengine.opendilab.org/v1alpha2", "kind": "DIJob", "metadata": {"name": "j", "namespace": "rl"},
    "spec": {
        "cleanPodPolicy": "Running",
        "failureRules": [
            {"name": "config", "onExitCodes": {"operator": "In", "values": [2, 127]}, "action": "FailJob"},
            {"roles": ["collector"], "onReasons": ["OOMKilled"], "growMemory": {"factor": "1.5", "limit": "2Gi"}, "limit": 3}
        ],
        "volumes": [{"name": "shared", "emptyDir": {}}],
        "coordinator": {"template": {"spec": {"containers": [{"name": "di-container", "image": "i",
            "env": [{"name": "A", "value": "b"}], "ports": [{"name": "di-port", "containerPort": 22273}],
            "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}, "volumeMounts": [{"name": "shared", "mountPath": "/s"}]}]}}},
        "collector": {"replicas": 1, "groups": [{"name": "g", "replicas": 1, "resources": {"cpus": "1"}}],
            "template": {"spec": {"containers": [{"name": "di-container", "image": "i"}]}}}
    },
    "status": {"phase": "Running", "startTime": "2026-01-02T03:04:05Z"}
}"#;

/// An old and a new job, and an arbitrary object.
pub type JobUpdate = (MutatedJob, MutatedJob, Json);

/// Fuzzes validation with mutated jobs and updates from one to the other.
pub fn fuzz_updates((old, new, anything): &JobUpdate) {
    check_validation(&old.0, &new.0);
    check_validation(&new.0, &old.0);
    check_validation(&old.0, &anything.0);
}

/// Fuzzes validation with JSON text: the first document is the new object, the second the old one.
pub fn fuzz_objects(text: &[u8]) {
    let mut values = serde_json::Deserializer::from_slice(text).into_iter::<Value>();
    let Some(Ok(new)) = values.next() else {
        return;
    };
    let old = values.next().and_then(std::result::Result::ok);
    check_validation(&old.unwrap_or_default(), &new);
}

/// Fuzzes the webhooks with a request body: the result is a response or a malformed-body error.
///
/// # Panics
/// If the result is anything else.
pub fn fuzz_review(body: &[u8]) {
    match mutate(body) {
        Ok(answer) => assert_is_review(&answer),
        Err(error) => assert!(matches!(error, Error::Malformed(_)), "{error}"),
    }
    match validate(body, None) {
        Ok(ReviewOutcome::Final(answer)) => assert_is_review(&answer),
        Ok(ReviewOutcome::NeedsAuthorization(claim)) => {
            claim.access_query();
            let refused = [claim.deny_response(), claim.error_response()];
            for answer in refused.into_iter().flatten() {
                assert!(!answer.allowed);
                assert_is_review(&answer);
            }
            assert_is_review(&claim.allow_response().expect("a response is serializable"));
        }
        Err(error) => assert!(matches!(error, Error::Malformed(_)), "{error}"),
    }
}

fn assert_is_review(answer: &ReviewResponse) {
    let review: Value = serde_json::from_slice(&answer.body).expect("a response is JSON");
    assert_eq!(review["kind"], "AdmissionReview");
    assert_eq!(review["response"]["allowed"], answer.allowed);
    assert!(review["response"]["uid"].is_string());
    assert!(answer.allowed || review["response"]["status"]["code"].is_u64());
}

/// Calls every entry point of the validator: none panics, and each rejection has a fault.
fn check_validation(old: &Value, new: &Value) {
    let created = validation::validate_dijob(new).map(Some);
    for result in [created, validation::validate_dijob_update(old, new)] {
        match result {
            Ok(job) => {
                if let Some(job) = job {
                    validation::job_warnings(&job.object);
                    check_failure_rules(&job.object.spec.failure_rules);
                }
            }
            Err(faults) => {
                assert!(!validation::summarize_faults(&faults).is_empty());
                assert!(!faults.is_empty(), "rejected without a fault");
            }
        }
    }
    validation::is_spec_unchanged(old, new);
    if let Err(faults) = validation::validate_aggregator_config(new) {
        assert!(!faults.is_empty(), "rejected without a fault");
    }
    let mut defaulted = new.clone();
    let patch = di_api::default_patch(new);
    if json_patch::patch(&mut defaulted, &patch).is_ok() {
        assert!(
            di_api::default_patch(&defaulted).0.is_empty(),
            "defaulting twice changes something"
        );
    }
}

/// The first rule that matches a failure is found, and memory only grows, up to its limit.
fn check_failure_rules(rules: &[FailureRule]) {
    for role in Role::ALL {
        for exit_code in [None, Some(0), Some(1), Some(2), Some(137)] {
            for reason in ["Error", "OOMKilled", "ErrImagePull"] {
                let failure = Failure {
                    role,
                    exit_code,
                    reason,
                };
                let first = rules.iter().find(|rule| rule.matches(failure));
                let found = find_rule(rules, failure).map(|(_, rule)| rule);
                assert_eq!(found, first, "{failure:?}");
            }
        }
    }
    for growth in rules.iter().filter_map(|rule| rule.grow_memory.as_ref()) {
        let bytes = |quantity: &Quantity| quantity::parse_nanos(&quantity.0);
        let current = Quantity("64Mi".to_owned());
        if let Some(grown) = growth.next_memory(&current) {
            assert!(bytes(&grown) > bytes(&current), "{growth:?}: {grown:?}");
            assert!(
                bytes(&grown) <= bytes(&growth.limit),
                "{growth:?}: {grown:?}"
            );
        }
    }
}

/// Reads a manifest.
pub fn fuzz_manifest(bytes: &[u8]) {
    di_client::manifest::parse_bytes("manifest.yaml", bytes.to_vec()).ok();
}

/// Builds a client from a kubeconfig. Sends no request and runs no credential plugin.
///
/// # Panics
/// If reading the kubeconfig does, which is what fuzzing looks for.
pub fn fuzz_kubeconfig(bytes: &[u8]) {
    // No plugin may run, not even one with an escaped key, and no file may wait for a terminal.
    let has = |text: &[u8]| bytes.windows(text.len()).any(|part| part == text);
    if has(b"exec")
        || has(b"binary")
        || has(b"\\")
        || has(b"/dev")
        || matches!(bytes, [0xFE | 0xFF, ..])
    {
        return;
    }
    let path = std::env::temp_dir().join(format!("di-fuzz-{}.yaml", std::process::id()));
    std::fs::write(&path, bytes).expect("a kubeconfig file");
    let options = di_client::ConnectOptions {
        kubeconfig: Some(path),
        ..di_client::ConnectOptions::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let connected = di_client::Cluster::connect(&options, |_| {});
    drop(runtime.expect("a runtime").block_on(connected));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The seeds contain the inputs of earlier failures.
    #[test]
    fn seeds_do_not_panic() {
        let all = concat!(env!("CARGO_MANIFEST_DIR"), "/seeds");
        let mut count = 0;
        for (target, run) in [
            ("review", (|text| fuzz_review(text)) as fn(&[u8])),
            ("validator", fuzz_objects),
            ("kubeconfig", fuzz_kubeconfig),
            ("manifest", fuzz_manifest),
            ("structured", |bytes| {
                fuzz_updates(&JobUpdate::arbitrary(&mut Unstructured::new(bytes)).unwrap());
            }),
        ] {
            for seed in std::fs::read_dir(format!("{all}/{target}")).unwrap() {
                run(&std::fs::read(seed.unwrap().path()).unwrap());
                count += 1;
            }
        }
        assert!(count >= 10, "{count}");
    }
}
