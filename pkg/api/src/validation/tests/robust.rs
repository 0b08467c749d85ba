use proptest::prelude::*;

use super::*;

fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
        "[+-]?[0-9.]{0,40}[a-zA-Z0-9+-]{0,4}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        let name = prop_oneof![
            "\\PC{0,6}",
            proptest::sample::select(NAMES.to_vec()).prop_map(str::to_owned)
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(name, inner, 0..4)
                .prop_map(|map| map.into_iter().collect()),
        ]
    })
}

/// Names that lead somewhere.
const NAMES: [&str; 18] = [
    "metadata",
    "spec",
    "status",
    "phase",
    "coordinator",
    "collector",
    "template",
    "groups",
    "resources",
    "cpus",
    "containers",
    "name",
    "limits",
    "requests",
    "cpu",
    "nvidia.com/gpu",
    "volumes",
    "env",
];

/// Places of a good job that something else is put at.
const PLACES: [&str; 12] = [
    "/spec",
    "/spec/coordinator",
    "/spec/collector/groups",
    "/spec/volumes",
    "/metadata",
    "/metadata/name",
    "/status",
    "/spec/coordinator/template/spec",
    "/spec/coordinator/template/spec/containers",
    "/spec/collector/template/spec/containers",
    "/spec/collector/template",
    "/spec/collector/replicas",
];

fn judge(object: &Value, other: &Value) {
    for (old, new) in [(object, other), (other, object), (object, object)] {
        let judged = dijob_update(old, new);
        if let Ok(job) = judged {
            warnings(&job);
        }
        let _ = dijob(new).map(|job| warnings(&job));
        let _ = aggregator_config(new);
    }
    assert!(spec_unchanged(object, object));
}

proptest! {
    #[test]
    fn nothing_panics_on_any_json(object in anything(), other in anything()) {
        judge(&object, &other);
        judge(&json!({"spec": object.clone()}), &json!({"spec": {"coordinator": {"template": {"spec": other}}}, "status": object}));
    }

    #[test]
    fn nothing_panics_on_a_good_job_with_anything_in_it(
        place in proptest::sample::select(PLACES.to_vec()),
        value in anything(),
    ) {
        let mut job = good();
        set(&mut job, place, value.clone());
        judge(&job, &good());
        let quantity = json!({"limits": {"cpu": value}, "requests": {"cpu": value, "a/b": value}});
        let container = json!([{"name": "di-container", "image": "i", "resources": quantity}]);
        set(&mut job, "/spec", json!({"coordinator": {"template": {"spec": {"containers": container}}}}));
        judge(&job, &good());
    }
}
