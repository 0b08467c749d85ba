//! The time that webhooks add to a create, through an API server.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use axum::{Router, body::Bytes, http::header, routing::post};
use di_api::DIJob;
use k8s_openapi::{
    ByteString,
    api::{
        admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
        core::v1::Namespace,
    },
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::handlers::{ALLOWED, ASKED, OURS, UNREAD, at, certificate, listen, specs, webhook};
use crate::harness::{
    cluster::Cluster,
    scale::Scale,
    stats::{Findings, Limit, quantile},
};

const ADDED: &str = "median that is added to a create";
const WHOLE: &str = "median of a create";
const NONE: &str = "no webhook";
/// By which a namespace says who is asked about its objects.
const LABEL: &str = "asked";
/// Length of a UID.
const UID: usize = ASKED.len();
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs it: creates that change nothing, in turn in three namespaces.
pub(super) async fn run(scale: &Scale, found: &mut Findings) -> Result<()> {
    let cluster = Cluster::start().await?;
    let client = cluster.client();
    let (bundle, certificates) = certificate()?;
    let authorities = serde_json::to_value(ByteString(bundle.ca))?;
    let mut jobs = Vec::new();
    for (subject, asked, router) in [
        (NONE, "none", None),
        (UNREAD, "unread", Some(empty())),
        (OURS, "webhook", Some(webhook(client.clone()))),
    ] {
        let space = cluster.space().await?;
        label(&client, &space.name, asked).await?;
        let api: Api<DIJob> = Api::namespaced(client.clone(), &space.name);
        if let Some(router) = router {
            let to = listen(router, &certificates).await?;
            configure(&client, asked, to, &authorities).await?;
        }
        jobs.push((subject, api));
    }
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    until_asked(&jobs[2].1, &params).await?;
    for (case, spec) in specs() {
        let job: DIJob = serde_json::from_value(json!({
            "apiVersion": "diengine.opendilab.org/v1alpha2", "kind": "DIJob", "metadata": {"name": "cartpole"}, "spec": spec,
        }))?;
        let (added, whole) = (
            at(ADDED, "ms", case.to_owned(), 1),
            at(WHOLE, "ms", case.to_owned(), 1),
        );
        for repetition in 0..=scale.repetitions {
            let mut times = [const { Vec::new() }; 3];
            for _ in 0..scale.creates {
                for ((_, api), times) in jobs.iter().zip(&mut times) {
                    let began = Instant::now();
                    api.create(&params, &job).await?;
                    times.push(began.elapsed().as_secs_f64() * 1e3);
                }
            }
            if repetition == 0 {
                continue;
            }
            let medians = times.map(|mut times| {
                times.sort_by(f64::total_cmp);
                quantile(&times, 0.5)
            });
            for ((subject, _), median) in jobs.iter().zip(medians) {
                found.add(&whole, subject, median);
                if *subject != NONE {
                    found.add(&added, subject, median - medians[0]);
                }
            }
        }
        found.compare(&added, OURS, UNREAD, Limit::AtMost(1.5));
    }
    Ok(())
}

/// Allows whatever it is asked, of which it reads no more than the API server insists on: the first `uid` is the request's.
fn empty() -> Router {
    let answer = || {
        post(|body: Bytes| async move {
            let key = br#""uid":""#;
            let begin = body.windows(key.len()).position(|part| part == key);
            let uid = begin.and_then(|begin| body.get(begin + key.len()..begin + key.len() + UID));
            let uid = String::from_utf8_lossy(uid.unwrap_or_default()).into_owned();
            let answer = ALLOWED.replace(ASKED, &uid);
            ([(header::CONTENT_TYPE, "application/json")], answer)
        })
    };
    Router::new()
        .route("/validate", answer())
        .route("/mutate", answer())
}

/// Labels a namespace with who is asked about its objects.
pub(super) async fn label(client: &Client, namespace: &str, asked: &str) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let label = json!({"metadata": {"labels": {LABEL: asked}}});
    let params = PatchParams::default();
    namespaces
        .patch(namespace, &params, &Patch::Merge(&label))
        .await?;
    Ok(())
}

/// Has the API server ask `to` about the jobs of namespaces with this label.
pub(super) async fn configure(
    client: &Client,
    asked: &str,
    to: SocketAddr,
    authorities: &Value,
) -> Result<()> {
    let webhook = |path: &str| {
        let url = format!("https://localhost:{}{path}", to.port());
        json!([{
            "name": format!("{asked}.diengine.opendilab.org"),
            "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": url, "caBundle": authorities},
            "sideEffects": "None",
            "namespaceSelector": {"matchLabels": {LABEL: asked}},
            "rules": [{
                "apiGroups": ["diengine.opendilab.org"], "apiVersions": ["v1alpha1", "v1alpha2"],
                "operations": ["CREATE", "UPDATE"], "resources": ["dijobs"],
            }],
        }])
    };
    let metadata = json!({"name": asked});
    let mutating: MutatingWebhookConfiguration =
        serde_json::from_value(json!({"metadata": metadata, "webhooks": webhook("/mutate")}))?;
    let validating: ValidatingWebhookConfiguration =
        serde_json::from_value(json!({"metadata": metadata, "webhooks": webhook("/validate")}))?;
    let params = PostParams::default();
    Api::all(client.clone()).create(&params, &mutating).await?;
    Api::all(client.clone())
        .create(&params, &validating)
        .await?;
    Ok(())
}

/// Waits until the API server has heard of the configurations, ours being the last.
pub(super) async fn until_asked(jobs: &Api<DIJob>, params: &PostParams) -> Result<()> {
    let bad = json!({"coordinator": {"template": {"spec": {"containers": []}}}});
    let bad: DIJob = serde_json::from_value(json!({"metadata": {"name": "bad"}, "spec": bad}))?;
    let began = Instant::now();
    loop {
        match jobs.create(params, &bad).await {
            Err(kube::Error::Api(status))
                if status.code == 422 && status.message.contains("di-container") =>
            {
                return Ok(());
            }
            answer => {
                let waited = began.elapsed();
                ensure!(waited < PATIENCE, "the webhooks are not called: {answer:?}");
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
