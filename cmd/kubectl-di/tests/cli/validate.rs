use di_apiserver_tests::Job;
use kube::api::ListParams;
use serde_json::json;

use crate::plugin::Plugin;

const AGGREGATOR: &str = "
apiVersion: diengine.opendilab.org/v1alpha1
kind: AggregatorConfig
metadata: {name: aggregator-config}
spec: {aggregator: {template: {spec: {containers: [{name: main, image: i}]}}}}
";

#[tokio::test]
async fn validate_reports_all_faults_like_the_webhook() {
    let plugin = Plugin::new().await;
    let bad = Job::new("bad", 0).with(|spec| {
        spec["backoffLimit"] = json!(-1);
        spec["cleanPodPolciy"] = json!("All");
        spec["coordinator"]["template"]["spec"]["containers"][0]["name"] = json!("main");
    });
    plugin.file("bad.yaml", bad.json());
    plugin.file("aggregator.yaml", AGGREGATOR);
    let nervex = "apiVersion: nervex.sensetime.com/v1alpha1\nkind: NerveXJob\nmetadata: {name: old}\nspec: {cleanPodPolicy: Most}\n";
    plugin.file("nervex.yaml", nervex);
    plugin.file(
        "odd.yaml",
        "apiVersion: diengine.opendilab.org/v9\nkind: DIJob\n---\nkind: DIJob\n",
    );
    plugin.file("good.yaml", Job::new("good", 0).json());
    let result = plugin.run(&["validate", "-f", "."]).await;
    insta::assert_snapshot!(plugin.normalize(&result));
}

#[tokio::test]
async fn validate_needs_no_cluster() {
    let plugin = Plugin::new().await;
    let with_warning =
        Job::new("doubtful", 0).with(|spec| spec["ttlSecondsAfterFinished"] = json!(0));
    let aggregator = AGGREGATOR.replace("name: main", "name: di-container");
    let other = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\n";
    let unused = aggregator.replace("aggregator-config", "aggregators");
    let text = format!(
        "{aggregator}---\n{unused}---\n{}\n---\n{other}",
        with_warning.json()
    );
    plugin.file("jobs.yaml", text);
    let mut command = plugin.command(&["validate", "-f", "jobs.yaml"]);
    let output = command
        .env("KUBECONFIG", "/nowhere")
        .output()
        .await
        .unwrap();
    let result = crate::plugin::CallResult::of(output);
    insta::assert_snapshot!(plugin.normalize(&result));
}

#[tokio::test]
async fn validate_requires_a_manifest() {
    let plugin = Plugin::new().await;
    let result = plugin.run(&["validate"]).await;
    insta::assert_snapshot!(plugin.normalize(&result));
}

#[tokio::test]
async fn validate_with_server_reports_its_answer_and_stores_nothing() {
    let plugin = Plugin::new().await;
    // Only the API server checks the syntax of labels.
    let mut labelled = Job::new("labelled", 0).json();
    labelled["metadata"]["labels"] = json!({"two words": "x"});
    let good = Job::new("good", 0).json();
    plugin.file("jobs.yaml", format!("{labelled}\n{good}\n"));
    let result = plugin.run(&["validate", "-f", "jobs.yaml"]).await;
    assert_eq!(result.code, Some(0), "{result}");
    let result = plugin
        .run(&["validate", "-f", "jobs.yaml", "--server"])
        .await;
    assert_eq!(
        result.stdout,
        "dijob.diengine.opendilab.org/good created (server dry run)\n"
    );
    assert!(result.stderr.contains("metadata.labels"), "{result}");
    assert_eq!(result.code, Some(1));
    let jobs = plugin.space.jobs().list(&ListParams::default()).await;
    assert_eq!(jobs.unwrap().items.len(), 0);
}
