//! The table of invalid jobs: API server, CRD schema and validator must agree.

use std::collections::BTreeMap;

use di_api::{
    AggregatorConfig, DIJob, PlanEntry, Role,
    validation::{validate_aggregator_config, validate_dijob},
};
use di_apiserver_tests::{Space, dry_run};
use di_plan::BuildSettings;
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
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
/// Variables that the builder puts before the user's in a coordinator pod.
const OUR_VARIABLES: usize = 6;

/// Returns the object as a job if it can be decoded. The template of an AggregatorConfig becomes
/// the coordinator's, since both are built into pods alike.
fn as_job(object: &Value) -> Option<DIJob> {
    if object["kind"] == "DIJob" {
        return serde_json::from_value(object.clone()).ok();
    }
    let config: AggregatorConfig = serde_json::from_value(object.clone()).ok()?;
    let mut job: DIJob = serde_json::from_value(table::job()).unwrap();
    job.spec.coordinator.template = config.spec.aggregator.template;
    job.spec.collector = None;
    Some(job)
}

/// Returns the pods of an object, by the path of their template.
fn pods_of(object: &Value) -> BTreeMap<String, Pod> {
    let Some(mut job) = as_job(object) else {
        return BTreeMap::new();
    };
    job.metadata.namespace = Some("rl".to_owned());
    job.metadata.name = Some("job".to_owned());
    let is_config = object["kind"] == "AggregatorConfig";
    let roles = [Role::Coordinator, Role::Collector, Role::Learner];
    let pods = roles.into_iter().filter_map(|role| {
        let entry: PlanEntry = serde_json::from_value(json!({
            "name": format!("job-{role}"), "type": role, "origin": "Declared", "index": 0,
        }))
        .unwrap();
        let pod = di_plan::build_pod(&job, &entry, None, &BuildSettings::default())?;
        let mut pod = pod.decode().ok()?;
        pod.metadata.owner_references = None;
        pod.metadata.namespace = None;
        // The test server has no ServiceAccount admission plugin.
        let spec = pod.spec.as_mut().unwrap();
        spec.service_account_name
            .get_or_insert_with(|| "default".to_owned());
        let place = if is_config {
            "spec.aggregator.template".to_owned()
        } else {
            format!("spec.{role}.template")
        };
        Some((place, pod))
    });
    pods.collect()
}

fn fault_fields(object: &Value) -> Vec<String> {
    let faults = match object["kind"].as_str().unwrap() {
        "DIJob" => validate_dijob(object).err(),
        _ => validate_aggregator_config(object).err(),
    };
    let faults = faults.into_iter().flatten();
    faults.map(|fault| fault.field).collect()
}

/// Returns the names in a path without list indices.
fn names(path: &str) -> Vec<&str> {
    let parts = path.split(['.', '[', ']']).filter(|part| !part.is_empty());
    let mut names: Vec<_> = parts
        .filter(|part| part.parse::<usize>().is_err())
        .collect();
    names.dedup();
    names
}

/// Whether both paths mean the same field: API servers of 1.20 omit list indices and some levels.
fn is_same_field(server: &str, template: &str, ours: &str) -> bool {
    // One path of the API server has a space in it.
    let server = &server.replace(' ', "");
    let exceptions = [(
        "spec.securityContext.shareProcessNamespace",
        "spec.shareProcessNamespace",
    )];
    let server = exceptions
        .iter()
        .find(|(theirs, _)| *theirs == server)
        .map_or(server.as_str(), |e| e.1);
    // Volumes of the job are also volumes of the pod.
    let shared = ours
        .strip_prefix("spec.volumes")
        .map(|rest| format!("spec.volumes{rest}"));
    let own = ours
        .strip_prefix(template)
        .map(|rest| rest.trim_start_matches('.').to_owned());
    let Some(ours) = own.or(shared) else {
        // The priority class is a field of the job.
        return ours == server;
    };
    // The API server spells this field in lower case.
    let server = server.replace("iscsi.initiatorname", "iscsi.initiatorName");
    // A limit is also a default request.
    let server = server.replace(".requests[", ".limits[");
    let ours = ours.replace(".requests[", ".limits[");
    let ours = names(&ours);
    let mut left = ours.iter();
    names(&server)
        .iter()
        .all(|name| left.any(|own| own == name))
}

/// Returns the path of a user's variable without the offset of the builder's variables.
fn user_variable_path(server: &str) -> String {
    let Some((before, rest)) = server.split_once(".env[") else {
        return server.to_owned();
    };
    let (index, after) = rest.split_once(']').unwrap();
    let index = index.parse::<usize>().unwrap();
    format!(
        "{before}.env[{}]{after}",
        index.saturating_sub(OUR_VARIABLES)
    )
}

async fn rejection(api: &Api<Pod>, pod: &Pod) -> Option<Box<Status>> {
    match api.create(&dry_run(), pod).await {
        Ok(_) => None,
        Err(kube::Error::Api(status)) => Some(status),
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn pod_rejected_by_api_server_is_rejected_by_validator() {
    let space = Space::new().await;
    let api = space.pods();
    let judged = stream::iter(mistakes_of(TABLE)).map(|mistake| {
        let api = &api;
        async move {
            let ours = fault_fields(&mistake.object);
            let mut wrong = Vec::new();
            let mut agreed = 0;
            for (template, pod) in pods_of(&mistake.object) {
                let Some(status) = rejection(api, &pod).await else {
                    continue;
                };
                let causes = status.details.iter().flat_map(|details| &details.causes);
                let mut fields: Vec<_> = causes
                    .map(|cause| user_variable_path(&cause.field))
                    .collect();
                fields.dedup();
                agreed += 1;
                // Without causes the pod was undecodable, or names an object that is not in this
                // cluster.
                let is_known =
                    |field: &String| ours.iter().any(|own| is_same_field(field, &template, own));
                if ours.is_empty() || !fields.iter().all(is_known) {
                    wrong.push(format!(
                        "{} = {}\n  server: {}\n  ours: {ours:?}",
                        mistake.at, mistake.value, status.message
                    ));
                }
            }
            (agreed, wrong)
        }
    });
    let judged: Vec<_> = judged.buffer_unordered(AT_ONCE).collect().await;
    let refused: usize = judged.iter().map(|(agreed, _)| agreed).sum();
    let wrong: Vec<_> = judged.into_iter().flat_map(|(_, wrong)| wrong).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(
        refused >= 100,
        "only {refused} pods were refused: is the server asked at all?"
    );
}

#[tokio::test]
async fn valid_jobs_make_pods_that_api_server_accepts() {
    let space = Space::new().await;
    let api = space.pods();
    for object in good_of(TABLE) {
        for (template, pod) in pods_of(&object) {
            if let Some(status) = rejection(&api, &pod).await {
                panic!("{template} of {object}: {}", status.message);
            }
        }
    }
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
fn is_path_prefix(definition: &str, table: &str) -> bool {
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
            let found = validate_dijob(&arrives).unwrap_err();
            let found: Vec<_> = found.iter().map(ToString::to_string).collect();
            assert_eq!(found, mistake.faults, "{version}: {}", mistake.at);
            seen += 1;
        }
    }
    assert!(seen >= 40, "{seen}");
}
