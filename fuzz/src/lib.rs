//! What the fuzz targets share: what must hold of every answer, and JSON that looks like ours.

use arbitrary::{Arbitrary, Result, Unstructured};
use di_admission::{
    Error,
    review::{Answer, Judgement, mutate, validate},
};
use di_api::validation;
use serde_json::{Map, Value};

/// Names that the validator knows, and some that it nearly does.
const NAMES: [&str; 64] = [
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
];
/// Values that mean something.
const TEXTS: [&str; 24] = [
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
];
const DEEPEST: usize = 12;
const MOST: usize = 6;

/// JSON of names and values that are likely to be understood.
#[derive(Clone, Debug)]
pub struct Json(pub Value);

impl<'a> Arbitrary<'a> for Json {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        value(u, DEEPEST).map(Self)
    }
}

fn value(u: &mut Unstructured<'_>, depth: usize) -> Result<Value> {
    let kinds = if depth == 0 { 5 } else { 8 };
    Ok(match u.int_in_range(0..=kinds)? {
        0 => Value::Null,
        1 => Value::Bool(u.arbitrary()?),
        2 => Value::from(u.arbitrary::<i64>()?),
        3 => Value::from(u.int_in_range(-2..=70_000)?),
        4 => Value::from(*u.choose(&TEXTS)?),
        5 => Value::from(u.arbitrary::<String>()?),
        6 => {
            let items = (0..u.int_in_range(0..=MOST)?).map(|_| value(u, depth - 1));
            Value::Array(items.collect::<Result<_>>()?)
        }
        _ => {
            let fields =
                (0..u.int_in_range(0..=MOST)?).map(|_| Ok((name(u)?, value(u, depth - 1)?)));
            Value::Object(fields.collect::<Result<Map<_, _>>>()?)
        }
    })
}

fn name(u: &mut Unstructured<'_>) -> Result<String> {
    if u.ratio(9, 10)? {
        u.choose(&NAMES).map(|name| (*name).to_owned())
    } else {
        u.arbitrary()
    }
}

/// A job that could be ours, with one part of it anything.
#[derive(Clone, Debug)]
pub struct NearlyJob(pub Value);

impl<'a> Arbitrary<'a> for NearlyJob {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let mut job: Value = serde_json::from_str(JOB).unwrap_or_default();
        for _ in 0..u.int_in_range(0..=4)? {
            let mut place = &mut job;
            // Down some known steps, and then something else is there.
            for _ in 0..u.int_in_range(1..=8)? {
                let keys: Vec<String> = match &*place {
                    Value::Object(fields) => fields.keys().cloned().collect(),
                    _ => Vec::new(),
                };
                let key = if keys.is_empty() || u.ratio(1, 6)? {
                    name(u)?
                } else {
                    u.choose(&keys)?.clone()
                };
                let index = match &*place {
                    Value::Array(items) if !items.is_empty() => {
                        Some(u.int_in_range(0..=items.len() - 1)?)
                    }
                    _ => None,
                };
                place = match (place, index) {
                    (Value::Array(items), Some(index)) => &mut items[index],
                    (Value::Object(fields), _) => fields.entry(key).or_insert(Value::Null),
                    (other, _) => other,
                };
            }
            *place = value(u, 4)?;
        }
        Ok(Self(job))
    }
}

const JOB: &str = r#"{
    "apiVersion": "diengine.opendilab.org/v1alpha2", "kind": "DIJob", "metadata": {"name": "j", "namespace": "rl"},
    "spec": {
        "cleanPodPolicy": "Running",
        "volumes": [{"name": "shared", "emptyDir": {}}],
        "coordinator": {"template": {"spec": {"containers": [{"name": "di-container", "image": "i",
            "env": [{"name": "A", "value": "b"}], "ports": [{"name": "di-port", "containerPort": 22273}],
            "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}, "volumeMounts": [{"name": "shared", "mountPath": "/s"}]}]}}},
        "collector": {"replicas": 1, "groups": [{"name": "g", "replicas": 1, "resources": {"cpus": "1"}}],
            "template": {"spec": {"containers": [{"name": "di-container", "image": "i"}]}}}
    },
    "status": {"phase": "Running", "startTime": "2026-01-02T03:04:05Z"}
}"#;

/// Two jobs, one in the place of the other, and something else in its place.
pub type Changed = (NearlyJob, NearlyJob, Json);

/// Nearly right jobs, new and changed into one another.
pub fn changed((old, new, anything): &Changed) {
    judge(&old.0, &new.0);
    judge(&new.0, &old.0);
    judge(&old.0, &anything.0);
}

/// The first JSON document of a text in the place of the second.
pub fn objects(text: &[u8]) {
    let mut values = serde_json::Deserializer::from_slice(text).into_iter::<Value>();
    let Some(Ok(new)) = values.next() else {
        return;
    };
    let old = values.next().and_then(std::result::Result::ok);
    judge(&old.unwrap_or_default(), &new);
}

/// A body as a review: it is answered, or it is malformed.
///
/// # Panics
/// When it is neither.
pub fn review(body: &[u8]) {
    match mutate(body) {
        Ok(answer) => is_review(&answer),
        Err(error) => assert!(matches!(error, Error::Malformed(_)), "{error}"),
    }
    match validate(body) {
        Ok(Judgement::Final(answer)) => is_review(&answer),
        Ok(Judgement::Claimed(claim)) => {
            claim.question();
            let refused = [claim.refused(), claim.undecided()];
            for answer in refused.into_iter().flatten() {
                assert!(!answer.allowed);
                is_review(&answer);
            }
            is_review(&claim.granted().expect("an answer can be written"));
        }
        Err(error) => assert!(matches!(error, Error::Malformed(_)), "{error}"),
    }
}

fn is_review(answer: &Answer) {
    let review: Value = serde_json::from_slice(&answer.body).expect("an answer is JSON");
    assert_eq!(review["kind"], "AdmissionReview");
    assert_eq!(review["response"]["allowed"], answer.allowed);
    assert!(review["response"]["uid"].is_string());
    assert!(answer.allowed || review["response"]["status"]["code"].is_u64());
}

/// The validator in all its uses: nothing panics, and whoever refuses says why.
fn judge(old: &Value, new: &Value) {
    let created = validation::validate_dijob(new).map(Some);
    for judged in [created, validation::validate_dijob_update(old, new)] {
        match judged {
            Ok(job) => drop(job.as_ref().map(validation::warnings)),
            Err(faults) => {
                assert!(!validation::summarize_faults(&faults).is_empty());
                assert!(!faults.is_empty(), "refused without a reason");
            }
        }
    }
    validation::is_spec_unchanged(old, new);
    if let Err(faults) = validation::validate_aggregator_config(new) {
        assert!(!faults.is_empty(), "refused without a reason");
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What is fed first, and whatever was found by it.
    #[test]
    fn the_seeds_are_judged() {
        let all = concat!(env!("CARGO_MANIFEST_DIR"), "/seeds");
        let mut judged = 0;
        for (target, feed) in [
            ("review", (|text| review(text)) as fn(&[u8])),
            ("validator", objects),
            ("structured", |bytes| {
                changed(&Changed::arbitrary(&mut Unstructured::new(bytes)).unwrap());
            }),
        ] {
            for seed in std::fs::read_dir(format!("{all}/{target}")).unwrap() {
                feed(&std::fs::read(seed.unwrap().path()).unwrap());
                judged += 1;
            }
        }
        assert!(judged >= 10, "{judged}");
    }
}
