use serde_json::json;

use crate::plugin::Plugin;

#[tokio::test]
async fn jobs_in_all_namespaces_are_selected_by_label() {
    let (here, there) = (Plugin::new().await, Plugin::new().await);
    let label = format!("chosen-in={}", here.space.namespace);
    for plugin in [&here, &there] {
        let labels = format!("--labels={label}");
        let result = plugin.run(&["create", "j", "--image=i", &labels]).await;
        assert_eq!(result.code, Some(0), "{result}");
    }
    for verb in [
        &["suspend"][..],
        &["wait", "--for=jsonpath={.spec.suspend}=true"],
        &["delete"],
    ] {
        let result = here.run(&[verb, &["-A", "-l", &label]].concat()).await;
        assert_eq!(result.code, Some(0), "{verb:?}: {result}");
        assert_eq!(result.stdout.lines().count(), 2, "{verb:?}: {result}");
    }
    for plugin in [&here, &there] {
        let result = plugin.run(&["get", "j"]).await;
        assert!(result.stderr.contains("not found"), "{result}");
    }
}

#[tokio::test]
async fn wait_selects_jobs_by_manifest() {
    let (here, there) = (Plugin::new().await, Plugin::new().await);
    there.run(&["create", "j", "--image=i"]).await;
    let manifest = json!({
        "apiVersion": "diengine.opendilab.org/v1alpha2",
        "kind": "DIJob",
        "metadata": {"name": "j", "namespace": there.space.namespace},
    });
    let file = here.file("j.json", &manifest);
    let file = file.to_str().unwrap();
    let words = ["wait", "-f", file, "--for=jsonpath={.metadata.name}=j"];
    let result = here.run(&words).await;
    assert_eq!(result.code, Some(0), "{result}");
    let result = here.run(&["wait", "j", "-f", file, "--for=create"]).await;
    assert!(result.stderr.contains("cannot be combined"), "{result}");
}
