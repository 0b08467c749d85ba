//! The table of invalid jobs: CRD schema and validator must agree.

use di_api::validation::{Valid, validate_dijob};
use di_apiserver_tests::{Space, dry_run};
use futures::{StreamExt, stream};
use kube::{
    Api,
    api::{ApiResource, DynamicObject},
    core::{GroupVersionKind, Status},
};
use serde_json::{Value, json};

#[path = "../../../../../pkg/api/tests/table/mod.rs"]
pub(crate) mod table;

use table::{Mistake, good_of, mistakes_of, set};

pub(crate) const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../pkg/api/tests/table");
pub(crate) const AT_ONCE: usize = 8;

/// Returns the names in a path without list indices.
pub(crate) fn names(path: &str) -> Vec<&str> {
    let parts = path.split(['.', '[', ']']).filter(|part| !part.is_empty());
    let mut names: Vec<_> = parts
        .filter(|part| part.parse::<usize>().is_err())
        .collect();
    names.dedup();
    names
}

/// Validates an object of the table on the server with a dry run, in this version.
pub(crate) async fn submit(
    space: &Space,
    object: &Value,
    version: &str,
) -> Result<Value, Box<Status>> {
    let kind = object["kind"].as_str().unwrap();
    let gvk = GroupVersionKind::gvk("diengine.opendilab.org", version, kind);
    let resource = ApiResource::from_gvk_with_plural(&gvk, &format!("{}s", kind.to_lowercase()));
    let api: Api<DynamicObject> =
        Api::namespaced_with(space.client.clone(), &space.namespace, &resource);
    let mut object = object.clone();
    set(&mut object, "/metadata/namespace", json!(space.namespace));
    set(&mut object, "/metadata/resourceVersion", Value::Null);
    set(
        &mut object,
        "/apiVersion",
        json!(format!("diengine.opendilab.org/{version}")),
    );
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    match api.create(&dry_run(), &object).await {
        Ok(created) => Ok(serde_json::to_value(created).unwrap()),
        Err(kube::Error::Api(status)) => Err(status),
        Err(error) => panic!("{error}"),
    }
}

/// Whether the schema's path is a prefix of the table's: API servers of 1.20 omit list indices and
/// name the parent of a missing field.
pub(crate) fn is_path_prefix(definition: &str, table: &str) -> bool {
    let (definition, table) = (names(definition), names(table));
    definition
        .iter()
        .zip(&table)
        .all(|(one, other)| one == other)
}

/// Returns the fields that the schema rejects and the table does not list.
fn unexpected_fields(status: &Status, mistake: &Mistake) -> Vec<String> {
    let paths = mistake.faults.iter().map(|fault| {
        let path = fault.split_once(": ");
        path.map_or(fault.as_str(), |(path, _)| path)
    });
    let paths: Vec<_> = paths.collect();
    let causes = status.details.iter().flat_map(|details| &details.causes);
    // The note that rules were skipped because of other faults has no field.
    let fields = causes.map(|cause| cause.field.as_str());
    let fields = fields.filter(|field| field.starts_with("spec"));
    let others = fields.filter(|field| !paths.iter().any(|path| is_path_prefix(field, path)));
    others.map(str::to_owned).collect()
}

#[tokio::test]
async fn crd_schema_matches_validation_table() {
    let space = Space::new().await;
    for object in good_of(TABLE) {
        for version in ["v1alpha1", "v1alpha2"] {
            let answer = submit(&space, &object, version).await;
            assert!(answer.is_ok(), "{object}: {answer:?}");
        }
    }
    let judged = stream::iter(mistakes_of(TABLE)).map(|mistake| {
        let space = &space;
        async move {
            let answer = submit(space, &mistake.object, "v1alpha2").await;
            // API servers of 1.20 treat an empty string as absent.
            let depends = mistake.value.to_string().contains("\"\"");
            let refusal = answer.as_ref().err();
            let is_elsewhere =
                refusal.is_some_and(|status| !unexpected_fields(status, &mistake).is_empty());
            let differs = is_elsewhere || answer.is_err() != mistake.schema;
            (differs && !depends).then(|| format!("{} = {}: {answer:?}", mistake.at, mistake.value))
        }
    });
    let differing: Vec<_> = judged.buffer_unordered(AT_ONCE).collect().await;
    let differing: Vec<_> = differing.into_iter().flatten().collect();
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

/// If a server pruned unknown fields, no webhook could report a misspelling.
#[tokio::test]
async fn unknown_fields_reach_webhooks_and_are_reported() {
    let space = Space::new().await;
    let mut seen = 0;
    for mistake in mistakes_of(TABLE) {
        if mistake.topic != "unknown fields" || mistake.schema {
            continue;
        }
        for version in ["v1alpha1", "v1alpha2"] {
            let arrives = submit(&space, &mistake.object, version).await.unwrap();
            let known = validate_dijob(&arrives).and_then(Valid::without_unknown_fields);
            let found = known.unwrap_err();
            let found: Vec<_> = found.iter().map(ToString::to_string).collect();
            assert_eq!(found, mistake.faults, "{version}: {}", mistake.at);
            seen += 1;
        }
    }
    assert!(seen >= 40, "{seen}");
}
