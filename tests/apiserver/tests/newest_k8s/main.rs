//! The CRDs with the CEL rules of `manifests/cel` on an API server with CEL. The server must accept
//! the rules and their cost, and reject exactly the objects that the validator rejects.
//! See docs/decisions/0011.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

use di_apiserver_tests::{Server, dry_run, eventually};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::{GroupVersionKind, Status},
};
use serde_json::{Value, json};
use table::{Mistake, PHASES, changes, good_of, job, mistakes_of, set};

#[path = "../../../../pkg/api/tests/table/mod.rs"]
mod table;

const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../pkg/api/tests/table");
const RULES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../manifests/cel");

/// Installs the CRDs with their rules, patched like kustomize does.
async fn install(client: &Client) {
    let api = Api::all(client.clone());
    for definition in di_api::crds() {
        let plural = definition.spec.names.plural.clone();
        let text = std::fs::read_to_string(format!("{RULES}/{plural}.yaml")).unwrap();
        let patch: json_patch::Patch = serde_saphyr::from_str(&text).unwrap();
        let mut definition = serde_json::to_value(definition).unwrap();
        json_patch::patch(&mut definition, &patch).unwrap();
        let definition: CustomResourceDefinition = serde_json::from_value(definition).unwrap();
        api.create(&PostParams::default(), &definition)
            .await
            .unwrap();
        eventually("the kind is served", async || {
            let list = objects(client, &plural).list(&ListParams::default()).await;
            list.map_err(|error| error.to_string())
        })
        .await;
    }
}

fn objects(client: &Client, plural: &str) -> Api<DynamicObject> {
    let kind = match plural {
        "dijobs" => "DIJob",
        _ => "AggregatorConfig",
    };
    let kind = GroupVersionKind::gvk(di_api::names::GROUP, "v1alpha2", kind);
    let resource = ApiResource::from_gvk_with_plural(&kind, plural);
    Api::namespaced_with(client.clone(), "default", &resource)
}

/// Returns an object of the table in v1alpha2 and the default namespace.
fn placed(object: &Value) -> (String, DynamicObject) {
    let mut object = object.clone();
    set(
        &mut object,
        "/apiVersion",
        json!("diengine.opendilab.org/v1alpha2"),
    );
    set(&mut object, "/metadata/namespace", json!("default"));
    let plural = format!("{}s", object["kind"].as_str().unwrap().to_lowercase());
    (plural, serde_json::from_value(object).unwrap())
}

async fn submit(client: &Client, object: &Value) -> Result<(), Box<Status>> {
    let (plural, object) = placed(object);
    refusal(objects(client, &plural).create(&dry_run(), &object).await)
}

fn refusal(answer: kube::Result<DynamicObject>) -> Result<(), Box<Status>> {
    match answer {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err(status),
        Err(error) => panic!("{error}"),
    }
}

/// Whether a CEL rule covers this mistake.
fn is_ruled(mistake: &Mistake) -> bool {
    let ruled = |fault: &String| {
        let of_name =
            fault.starts_with("metadata.name") || fault.starts_with("metadata.generateName");
        // Rules cannot read the leaderTemplate of a unit, since its schema is open.
        let is_readable = !fault.contains("leaderTemplate");
        of_name || (is_readable && fault.contains("must be named di-container"))
    };
    mistake.faults.iter().any(ruled)
}

/// Whether the rejection has the message of a CEL rule.
fn is_of_rule(rejection: &String) -> bool {
    let messages = [
        "must be no more than 45 lower case letters",
        "must have one named di-container",
    ];
    messages.iter().any(|message| rejection.contains(message))
}

async fn valid_objects_are_accepted(client: &Client) {
    for object in good_of(TABLE) {
        let answer = submit(client, &object).await;
        assert!(answer.is_ok(), "{object}: {answer:?}");
    }
}

async fn invalid_objects_are_rejected_by_schema_or_rule(client: &Client) {
    let mut by_rule = 0;
    let mut wrong = Vec::new();
    for mistake in mistakes_of(TABLE) {
        let answer = submit(client, &mistake.object).await;
        let message = answer.as_ref().err().map(|status| &status.message);
        // The table follows API servers of 1.20, which reject some empty strings that newer ones
        // accept.
        let depends = mistake.value.to_string().contains("\"\"");
        if answer.is_err() != (mistake.schema || is_ruled(&mistake)) && !depends {
            wrong.push(format!("{} = {}: {message:?}", mistake.at, mistake.value));
        }
        by_rule += usize::from(message.is_some_and(is_of_rule));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(by_rule >= 5, "{by_rule}");
}

/// Creates a job in this phase.
async fn make(jobs: &Api<DynamicObject>, name: &str, phase: &str) -> DynamicObject {
    let mut object = job();
    set(&mut object, "/metadata/name", json!(name));
    let (_, object) = placed(&object);
    let made = jobs.create(&PostParams::default(), &object).await.unwrap();
    if phase.is_empty() {
        return made;
    }
    let status = json!({"status": {"phase": phase}});
    let params = PatchParams::default();
    let status = Patch::Merge(&status);
    jobs.patch_status(name, &params, &status).await.unwrap()
}

async fn updates_are_rejected_like_the_validator(client: &Client) {
    let jobs = objects(client, "dijobs");
    let params = PatchParams::default();
    for phase in PHASES {
        let name = format!("job-{}", phase.to_lowercase());
        let name = name.trim_end_matches('-');
        let old = serde_json::to_value(make(&jobs, name, phase).await).unwrap();
        for (at, value, field) in changes() {
            let mut new = old.clone();
            set(&mut new, at, value);
            let ours = di_api::validation::validate_dijob_update(&old, &new);
            let at = format!("{phase}, {at}");
            let dry = PatchParams {
                dry_run: true,
                ..params.clone()
            };
            let answer = refusal(jobs.patch(name, &dry, &Patch::Merge(&new)).await);
            let message = answer.err().map(|status| status.message);
            assert_eq!(ours.is_err(), message.is_some(), "{at}: {message:?}");
            assert!(
                message.is_none_or(|message| message.contains(field)),
                "{at}"
            );
        }
        // No webhook is called for the scale subresource.
        let scale = json!({"spec": {"replicas": 7}});
        let answer = jobs.patch_scale(name, &params, &Patch::Merge(&scale)).await;
        assert!(answer.is_ok(), "{phase}: {answer:?}");
    }
}

async fn apply(client: &Client, manager: &str, spec: &Value) -> kube::Result<DynamicObject> {
    let job = json!({
        "apiVersion": "diengine.opendilab.org/v1alpha2", "kind": "DIJob",
        "metadata": {"name": "shared"}, "spec": spec,
    });
    let params = PatchParams::apply(manager);
    objects(client, "dijobs")
        .patch("shared", &params, &Patch::Apply(&job))
        .await
}

/// Servers before 1.27 do not merge them. See docs/decisions/0032.
async fn server_side_apply_merges_lists_of_two_managers(client: &Client) {
    let of_user = json!({
        "volumes": [{"name": "data", "emptyDir": {}}],
        "coordinator": {"template": {"spec": {
            "containers": [{
                "name": "di-container", "image": "ding",
                "env": [{"name": "USER_VALUE", "value": "1"}],
                "ports": [{"containerPort": 22270, "protocol": "TCP"}],
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            }],
            "volumes": [{"name": "cache", "emptyDir": {}}],
        }}},
    });
    let of_platform = json!({
        "volumes": [{"name": "certificates", "emptyDir": {}}],
        "coordinator": {"template": {"spec": {
            "containers": [
                {
                    "name": "di-container",
                    "env": [{"name": "PLATFORM_VALUE", "value": "2"}],
                    "ports": [{"containerPort": 22270, "protocol": "UDP"}],
                    "volumeMounts": [{"name": "certificates", "mountPath": "/certificates"}],
                },
                {"name": "sidecar", "image": "proxy"},
            ],
            "volumes": [{"name": "scratch", "emptyDir": {}}],
        }}},
    });
    apply(client, "user", &of_user).await.unwrap();
    apply(client, "platform", &of_platform).await.unwrap();
    // The same manifest again removes nothing of the other manager.
    let merged = apply(client, "user", &of_user).await.unwrap();

    let spec = &merged.data["spec"];
    let pod = &spec["coordinator"]["template"]["spec"];
    let main = &pod["containers"][0];
    let values = |list: &Value, key: &str| {
        let items = list.as_array().unwrap().iter();
        Value::from_iter(items.map(|item| item[key].clone()))
    };
    assert_eq!(
        values(&spec["volumes"], "name"),
        json!(["data", "certificates"])
    );
    assert_eq!(values(&pod["volumes"], "name"), json!(["cache", "scratch"]));
    assert_eq!(
        values(&pod["containers"], "name"),
        json!(["di-container", "sidecar"])
    );
    assert_eq!(
        values(&main["env"], "name"),
        json!(["USER_VALUE", "PLATFORM_VALUE"])
    );
    assert_eq!(values(&main["ports"], "protocol"), json!(["TCP", "UDP"]));
    assert_eq!(
        values(&main["volumeMounts"], "mountPath"),
        json!(["/data", "/certificates"])
    );
}

#[tokio::test]
async fn cel_rules_match_validator_on_newest_kubernetes() {
    let server = Server::start().await;
    let client = server.start_newest_crd_server().await;
    install(&client).await;
    valid_objects_are_accepted(&client).await;
    invalid_objects_are_rejected_by_schema_or_rule(&client).await;
    updates_are_rejected_like_the_validator(&client).await;
    server_side_apply_merges_lists_of_two_managers(&client).await;
}
