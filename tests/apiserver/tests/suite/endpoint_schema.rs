//! The endpoint does what its OpenAPI document says.

use di_apiserver_tests::{Endpoint, Job, Kubelet, Space, schemathesis};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn what_the_document_promises_is_what_schemathesis_gets() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    let endpoint = Endpoint::start(&space, "endpoint").await;
    space.create(&Job::new("job", 1)).await;
    space.until_settled("job").await;
    let document = format!("http://{}/openapi.json", endpoint.address());
    let namespace = space.namespace.clone();
    let told = tokio::task::spawn_blocking(move || schemathesis(&document, &[]));
    told.await.unwrap();
    // A job that is there is met by luck only, so its own answers are looked at here.
    let listed = endpoint.list("job").await;
    let data = &listed.body["data"];
    assert_eq!(data["namespace"], json!(namespace));
    assert_eq!(listed.pods().len(), 1, "nobody else's request reached it");
    manager.stop().await;
}
