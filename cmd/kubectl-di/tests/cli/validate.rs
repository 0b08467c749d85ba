use di_apiserver_tests::Job;
use serde_json::json;

use crate::plugin::Plugin;

const AGGREGATOR: &str = "
apiVersion: diengine.opendilab.org/v1alpha1
kind: AggregatorConfig
metadata: {name: aggregator-config}
spec: {aggregator: {template: {spec: {containers: [{name: main, image: i}]}}}}
";

#[tokio::test]
async fn every_fault_of_every_document_is_told_as_the_webhook_does() {
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
    let said = plugin.run(&["validate", "-f", "."]).await;
    insta::assert_snapshot!(plugin.lasting(&said));
}

#[tokio::test]
async fn what_is_valid_takes_no_cluster() {
    let plugin = Plugin::new().await;
    let doubtful = Job::new("doubtful", 0).with(|spec| spec["ttlSecondsAfterFinished"] = json!(0));
    let aggregator = AGGREGATOR.replace("name: main", "name: di-container");
    let other = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\n";
    let unused = aggregator.replace("aggregator-config", "aggregators");
    let text = format!(
        "{aggregator}---\n{unused}---\n{}\n---\n{other}",
        doubtful.json()
    );
    plugin.file("jobs.yaml", text);
    let mut command = plugin.command(&["validate", "-f", "jobs.yaml"]);
    let output = command
        .env("KUBECONFIG", "/nowhere")
        .output()
        .await
        .unwrap();
    let said = crate::plugin::Said::of(output);
    insta::assert_snapshot!(plugin.lasting(&said));
}

#[tokio::test]
async fn a_manifest_has_to_be_named() {
    let plugin = Plugin::new().await;
    let said = plugin.run(&["validate"]).await;
    insta::assert_snapshot!(plugin.lasting(&said));
}
