use serde_json::json;

use crate::plugin::Plugin;

#[tokio::test]
async fn jobs_of_all_namespaces_are_chosen_by_label() {
    let (here, there) = (Plugin::new().await, Plugin::new().await);
    let label = format!("chosen-in={}", here.space.namespace);
    for plugin in [&here, &there] {
        let labels = format!("--labels={label}");
        let said = plugin.run(&["create", "j", "--image=i", &labels]).await;
        assert_eq!(said.code, Some(0), "{said}");
    }
    for verb in [
        &["suspend"][..],
        &["wait", "--for=jsonpath={.spec.suspend}=true"],
        &["delete"],
    ] {
        let said = here.run(&[verb, &["-A", "-l", &label]].concat()).await;
        assert_eq!(said.code, Some(0), "{verb:?}: {said}");
        assert_eq!(said.stdout.lines().count(), 2, "{verb:?}: {said}");
    }
    for plugin in [&here, &there] {
        let said = plugin.run(&["get", "j"]).await;
        assert!(said.stderr.contains("not found"), "{said}");
    }
}

#[tokio::test]
async fn manifests_tell_which_jobs_are_waited_for() {
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
    let said = here.run(&words).await;
    assert_eq!(said.code, Some(0), "{said}");
    let said = here.run(&["wait", "j", "-f", file, "--for=create"]).await;
    assert!(said.stderr.contains("cannot be combined"), "{said}");
}
