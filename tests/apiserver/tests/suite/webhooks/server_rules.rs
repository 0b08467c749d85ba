//! The mistakes that only the API server reports, each with the field that it must name.
//! See docs/decisions/0031.

use std::collections::BTreeMap;

use di_api::{AggregatorConfig, DIJob, PlanEntry, Role};
use di_apiserver_tests::{Space, dry_run};
use di_plan::BuildSettings;
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, core::Status};
use serde_json::{Value, json};

use crate::webhooks::validation_table::{
    AT_ONCE, TABLE, is_path_prefix, names, submit,
    table::{self, good_of, object_with, path_of, pointer_of},
};

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

/// One row of the table: an object with a mistake.
struct Row {
    object: Value,
    /// The fields that the API server must name.
    fields: Vec<String>,
}

fn rows() -> Vec<Row> {
    let topics: Value = serde_saphyr::from_str(include_str!("server_rules.yaml")).unwrap();
    let rows = topics.as_object().unwrap().iter();
    let rows = rows.flat_map(|(topic, rows)| {
        let rows = rows.as_array().unwrap().iter();
        rows.map(move |row| (topic, row.as_array().unwrap()))
    });
    let rows = rows.map(|(topic, row)| {
        let at = pointer_of(row[0].as_str().unwrap());
        let fields = row[2..]
            .iter()
            .map(|field| path_of(field.as_str().unwrap()));
        Row {
            object: object_with(topic, &at, row[1].clone()),
            fields: fields.collect(),
        }
    });
    rows.collect()
}

fn cause_fields(status: &Status) -> Vec<&str> {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let fields = causes.map(|cause| &*cause.field);
    fields.filter(|field| !field.is_empty()).collect()
}

/// Returns the fields of the row that the API server does not name, in a create of the object or
/// of its pods.
async fn unnamed_fields(space: &Space, row: &Row) -> Vec<String> {
    let mut unnamed = row.fields.clone();
    let pods = space.pods();
    if let Err(status) = submit(space, &row.object, "v1alpha2").await {
        assert_eq!(status.code, 422, "{}: {}", row.object, status.message);
        let found = cause_fields(&status);
        unnamed.retain(|field| !found.iter().any(|found| is_path_prefix(found, field)));
        return unnamed;
    }
    for (template, pod) in pods_of(&row.object) {
        let Some(status) = rejection(&pods, &pod).await else {
            continue;
        };
        assert_eq!(status.code, 422, "{}: {}", row.object, status.message);
        let found: Vec<_> = cause_fields(&status)
            .into_iter()
            .map(user_variable_path)
            .collect();
        unnamed.retain(|field| {
            !found
                .iter()
                .any(|found| is_same_field(found, &template, field))
        });
    }
    unnamed
}

#[tokio::test]
async fn mistake_in_pod_is_rejected_by_api_server_at_its_field() {
    let space = Space::new().await;
    let rows = rows();
    assert!(rows.len() >= 200, "{}", rows.len());
    let answers = stream::iter(&rows).map(|row| {
        let space = &space;
        async move {
            let unnamed = unnamed_fields(space, row).await;
            (!unnamed.is_empty()).then(|| format!("{unnamed:?} of {}", row.object))
        }
    });
    let unnamed: Vec<_> = answers.buffer_unordered(AT_ONCE).collect().await;
    let unnamed: Vec<_> = unnamed.into_iter().flatten().collect();
    assert!(unnamed.is_empty(), "{}", unnamed.join("\n"));
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
