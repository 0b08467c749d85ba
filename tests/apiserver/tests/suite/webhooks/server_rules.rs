//! The mistakes that only the API server reports, each with the field that it must name.
//! See docs/decisions/0031.

use di_admission::PolicyDenials;
use di_apiserver_tests::{Space, Webhooks, template};
use futures::{StreamExt, stream};
use kube::core::Status;
use serde_json::{Value, json};

use crate::webhooks::validation_table::{
    AT_ONCE, TABLE, names, submit,
    table::{good_of, object_with, path_of, pointer_of},
};

/// Variants of pods, by the name of a field and the version of Kubernetes that has it.
const VARIANTS: &str = include_str!("pod_variants.json");

/// Whether both paths mean the same field: API servers of 1.20 omit list indices and some levels.
fn is_same_field(found: &str, wanted: &str) -> bool {
    let normalized = |field: &str| {
        field
            // One path of the API server has a space in it, and one is in lower case.
            .replace(' ', "")
            .replace("iscsi.initiatorname", "iscsi.initiatorName")
            .replace(
                "securityContext.shareProcessNamespace",
                "shareProcessNamespace",
            )
            // A limit is also a default request.
            .replace(".requests[", ".limits[")
    };
    let (found, wanted) = (normalized(found), normalized(wanted));
    let wanted = names(&wanted);
    let mut left = wanted.iter();
    names(&found).iter().all(|name| left.any(|own| own == name))
}

/// One row of the table: an object with a mistake.
struct Row {
    object: Value,
    /// The fields that the API server must name; of each, one alternative.
    fields: Vec<Vec<String>>,
    /// The last minor version of Kubernetes with this rule.
    last_minor: Option<u32>,
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
        let fields = row[2..].iter().map(|field| -> Vec<String> {
            let alternatives = field.as_str().unwrap().split(" or ");
            alternatives.map(path_of).collect()
        });
        let until = topic.split_once(", until 1.");
        Row {
            object: object_with(topic, &at, row[1].clone()),
            fields: fields.collect(),
            last_minor: until.map(|(_, minor)| minor.parse().unwrap()),
        }
    });
    rows.collect()
}

fn cause_fields(status: &Status) -> Vec<&str> {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let fields = causes.map(|cause| &*cause.field);
    fields.filter(|field| !field.is_empty()).collect()
}

/// Returns the fields of the row that the rejection does not name.
async fn unnamed_fields(space: &Space, row: &Row) -> Vec<Vec<String>> {
    let Err(status) = submit(space, &row.object, "v1alpha2").await else {
        return row.fields.clone();
    };
    assert_eq!(status.code, 422, "{}: {}", row.object, status.message);
    let found = cause_fields(&status);
    let is_named = |field: &String| found.iter().any(|found| is_same_field(found, field));
    let mut unnamed = row.fields.clone();
    unnamed.retain(|alternatives| !alternatives.iter().any(is_named));
    unnamed
}

#[tokio::test]
async fn mistake_in_pod_is_rejected_at_its_field() {
    let space = Space::new().await;
    let webhooks = Webhooks::start_with_dry_run(&space, PolicyDenials::Warn).await;
    let minor = space.server.minor_version().await;
    let mut rows = rows();
    rows.retain(|row| row.last_minor.is_none_or(|last| minor <= last));
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
    webhooks.stop().await;
}

#[tokio::test]
async fn valid_objects_are_accepted() {
    let space = Space::new().await;
    let webhooks = Webhooks::start_with_dry_run(&space, PolicyDenials::Warn).await;
    for object in good_of(TABLE) {
        if let Err(status) = submit(&space, &object, "v1alpha2").await {
            panic!("{object}: {}", status.message);
        }
    }
    webhooks.stop().await;
}

/// The API server of the suite ignores unknown fields of pods, so the webhook rejects them.
#[tokio::test]
async fn pod_variants_are_accepted_as_by_the_api_server() {
    let space = Space::new().await;
    let webhooks = Webhooks::start_with_dry_run(&space, PolicyDenials::Warn).await;
    let variants: Value = serde_json::from_str(VARIANTS).unwrap();
    for (name, template) in variants.as_object().unwrap() {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "variant"}, "spec": template["spec"],
        });
        let request = http::Request::post(format!(
            "/api/v1/namespaces/{}/pods?dryRun=All",
            space.namespace
        ));
        let request = request.header("Content-Type", "application/json");
        let request = request.body(pod.to_string().into_bytes()).unwrap();
        let by_server = space.client.request_text(request).await.is_ok();
        let job = json!({
            "apiVersion": "diengine.opendilab.org/v1alpha2", "kind": "DIJob",
            "metadata": {"name": "variant"}, "spec": {"coordinator": {"template": template}},
        });
        let answer = submit(&space, &job, "v1alpha2").await;
        let is_unknown = answer
            .as_ref()
            .is_err_and(|status| status.message.contains("unknown field"));
        assert_eq!(
            answer.is_ok() || is_unknown,
            by_server,
            "{name}: {answer:?}"
        );
    }
    webhooks.stop().await;
}

#[tokio::test]
async fn misspelled_pod_field_is_rejected_with_suggestion() {
    let space = Space::new().await;
    let webhooks = Webhooks::start_with_dry_run(&space, PolicyDenials::Warn).await;
    let mut misspelled = template();
    misspelled["spec"]["containers"][0]["imagePullPolcy"] = json!("Never");
    let job = json!({
        "apiVersion": "diengine.opendilab.org/v1alpha2", "kind": "DIJob",
        "metadata": {"name": "misspelled"}, "spec": {"coordinator": {"template": misspelled}},
    });
    let status = submit(&space, &job, "v1alpha2").await.unwrap_err();
    let expected = "spec.coordinator.template.spec.containers[0].imagePullPolcy: Invalid value: unknown field, did you mean imagePullPolicy?";
    assert!(status.message.contains(expected), "{}", status.message);
    webhooks.stop().await;
}
