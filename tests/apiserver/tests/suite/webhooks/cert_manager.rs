//! The cert-manager overlay, applied patch by patch to a real API server, as kustomize would.

use di_admission::Settings;
use di_apiserver_tests::Server;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
    discovery::ApiResource,
};
use serde_json::{Value, json};

const MANIFESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../manifests");
/// Fields of the spec of a Certificate:
/// https://cert-manager.io/docs/reference/api-docs/#cert-manager.io/v1.CertificateSpec
const CERTIFICATE: [&str; 22] = [
    "additionalOutputFormats",
    "commonName",
    "dnsNames",
    "duration",
    "emailAddresses",
    "encodeUsagesInRequest",
    "ipAddresses",
    "isCA",
    "issuerRef",
    "keystores",
    "literalSubject",
    "nameConstraints",
    "otherNames",
    "privateKey",
    "renewBefore",
    "renewBeforePercentage",
    "revisionHistoryLimit",
    "secretName",
    "secretTemplate",
    "subject",
    "uris",
    "usages",
];
const PRIVATE_KEY: [&str; 4] = ["algorithm", "encoding", "rotationPolicy", "size"];
const ISSUER_REF: [&str; 3] = ["group", "kind", "name"];
const ISSUER: [&str; 5] = ["acme", "ca", "selfSigned", "vault", "venafi"];

fn read_manifest(path: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(format!("{MANIFESTS}/{path}")).unwrap();
    serde_saphyr::from_multiple(&text).unwrap()
}

fn api(client: &Client, object: &Value) -> Api<DynamicObject> {
    let object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    let kind = GroupVersionKind::try_from(object.types.as_ref().unwrap()).unwrap();
    let kind = ApiResource::from_gvk(&kind);
    match object.namespace() {
        Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &kind),
        None => Api::all_with(client.clone(), &kind),
    }
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

async fn get(client: &Client, object: &Value) -> Option<Value> {
    let found = api(client, object).get_opt(name(object)).await.unwrap();
    found.map(|found| serde_json::to_value(found).unwrap())
}

/// Applies a patch of the overlay to its targets.
async fn apply_patch(client: &Client, installed: &[Value], patch: &Value) {
    let text = match patch["path"].as_str() {
        Some(file) => std::fs::read_to_string(format!("{MANIFESTS}/cert-manager/{file}")).unwrap(),
        None => patch["patch"].as_str().unwrap().to_owned(),
    };
    let change: Value = serde_saphyr::from_str(&text).unwrap();
    let target = &patch["target"];
    if target.is_null() {
        assert!(
            get(client, &change).await.is_some(),
            "nothing to patch: {change}"
        );
        let api = api(client, &change);
        if change["$patch"] == "delete" {
            api.delete(name(&change), &DeleteParams::default())
                .await
                .unwrap();
        } else {
            let patch = Patch::Strategic(&change);
            api.patch(name(&change), &PatchParams::default(), &patch)
                .await
                .unwrap();
        }
        return;
    }
    let meant = |object: &&Value| {
        let version = object["apiVersion"].as_str().unwrap();
        let group = version.split_once('/').map_or("", |(group, _)| group);
        (target["group"].is_null() || target["group"] == group)
            && (target["kind"].is_null() || target["kind"] == object["kind"])
            && target["name"] == name(object)
    };
    let meant: Vec<_> = installed.iter().filter(meant).collect();
    assert!(!meant.is_empty(), "nothing to patch: {target}");
    for object in meant {
        let change = serde_json::from_value(change.clone()).unwrap();
        let patch = Patch::Json::<()>(change);
        let api = api(client, object);
        api.patch(name(object), &PatchParams::default(), &patch)
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn cert_manager_overlay_applies_and_owns_certificate() {
    let server = Server::start().await;
    let client = server.client("installs");
    let installed: Vec<_> = read_manifest("install.yaml")
        .into_iter()
        .filter(Value::is_object)
        .collect();
    let params = PatchParams::apply("tests");
    for object in &installed {
        let patch = Patch::Apply(object);
        api(&client, object)
            .patch(name(object), &params, &patch)
            .await
            .unwrap();
    }
    let overlay = &read_manifest("cert-manager/kustomization.yaml")[0];
    assert_eq!(
        overlay["resources"],
        json!(["../default", "certificate.yaml"])
    );
    for change in overlay["patches"].as_array().unwrap() {
        apply_patch(&client, &installed, change).await;
    }

    let one = |kind: &str, name_: &str| {
        let mut all = installed.iter();
        all.find(|o| o["kind"] == kind && name(o) == name_)
            .unwrap_or_else(|| panic!("no {kind}"))
    };
    let now = async |kind: &str, name: &str| get(&client, one(kind, name)).await;
    let pod = now("Deployment", "di-webhook").await.unwrap()["spec"]["template"]["spec"].take();
    let containers = pod["containers"].as_array().unwrap();
    let manager = containers.iter().find(|c| c["name"] == "manager").unwrap();
    let variable = |name: &str| {
        let env = manager["env"].as_array().unwrap();
        env.iter().find(|variable| variable["name"] == name)
    };
    assert!(variable("POD_NAME").is_some(), "the others stay");
    let folder = &variable("CERTIFICATE_DIR").unwrap()["value"];
    let mount = &manager["volumeMounts"][0];
    assert_eq!(
        (&mount["mountPath"], &mount["readOnly"]),
        (folder, &json!(true))
    );
    assert_eq!(pod["volumes"][0]["name"], mount["name"]);
    assert_eq!(containers.len(), 2);

    for kind in [
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
    ] {
        let configuration = now(kind, "di-webhook").await.unwrap();
        assert_eq!(
            configuration["metadata"]["annotations"]["cert-manager.io/inject-ca-from"],
            "di-system/di-webhook"
        );
    }
    let permissions = now("ClusterRole", "di-orchestrator-webhooks")
        .await
        .unwrap();
    assert_eq!(
        permissions["rules"],
        json!([{"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]}])
    );
    for kind in ["Role", "RoleBinding"] {
        assert!(now(kind, "di-orchestrator-certificate").await.is_none());
    }

    let secret = &pod["volumes"][0]["secret"]["secretName"];
    let objects = read_manifest("cert-manager/certificate.yaml");
    for object in &objects {
        check_fields(object);
    }
    check_chain(&objects, secret);
}

fn check_fields(object: &Value) {
    let spec = &object["spec"];
    let known = |fields: &Value, known: &[&str]| {
        for (field, _) in fields.as_object().unwrap() {
            assert!(known.contains(&field.as_str()), "{field} of {object}");
        }
    };
    assert_eq!(object["apiVersion"], "cert-manager.io/v1");
    assert_eq!(object["metadata"]["namespace"], "di-system");
    if object["kind"] == "Issuer" {
        known(spec, &ISSUER);
        return;
    }
    assert_eq!(object["kind"], "Certificate");
    known(spec, &CERTIFICATE);
    known(&spec["privateKey"], &PRIVATE_KEY);
    known(&spec["issuerRef"], &ISSUER_REF);
}

/// The serving certificate must be signed by a separate CA: a self-signed one would be trusted only
/// after the configurations have it.
fn check_chain(objects: &[Value], secret: &Value) {
    let named = |kind: &str, name_: &Value| {
        let mut all = objects.iter();
        let found = all.find(|o| o["kind"] == kind && &o["metadata"]["name"] == name_);
        &found.unwrap_or_else(|| panic!("no {kind} {name_}"))["spec"]
    };
    // The certificate that the configurations name.
    let served = named("Certificate", &json!("di-webhook"));
    assert_eq!(served["dnsNames"], json!(Settings::default().dns_names()));
    assert_eq!(&served["secretName"], secret);
    assert!(served["isCA"].is_null());

    let signer = &named("Issuer", &served["issuerRef"]["name"])["ca"]["secretName"];
    assert!(signer.is_string() && signer != secret, "{signer}");
    let authority = objects.iter().map(|object| &object["spec"]);
    let authority = authority.filter(|spec| &spec["secretName"] == signer);
    let [authority] = authority.collect::<Vec<_>>()[..] else {
        panic!("one Certificate is kept in {signer}")
    };
    assert_eq!(authority["isCA"], true);
    assert_eq!(
        authority["duration"], "87600h",
        "it outlasts the served one"
    );
    assert_eq!(authority["privateKey"]["rotationPolicy"], "Never");
    let own = named("Issuer", &authority["issuerRef"]["name"]);
    assert_eq!(own, &json!({"selfSigned": {}}));
}
