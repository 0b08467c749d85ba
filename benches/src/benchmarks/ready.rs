//! B18: until 30 collectors are ready, compared with a Deployment and with bare pods. It needs a cluster with nodes.

use std::{collections::BTreeMap, time::Instant};

use anyhow::{Context, Result};
use di_api::{DIJob, Origin, PlanEntry, Role, names};
use di_plan::BuildSettings;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::{
    Api,
    api::{DeleteParams, ListParams, ObjectMeta, PostParams},
};
use serde_json::json;

use crate::{
    benchmarks::first_step::{clear, remove_namespace, space, until},
    harness::{
        calls::{Call, make_all},
        cluster::Space,
        scale::Scale,
        stats::{At, Findings, Limit},
    },
};

const COLLECTORS: i32 = 30;
const OURS: &str = "DIJob";
const DEPLOYMENT: &str = "Deployment";
const BARE: &str = "bare pods";
/// Creates of bare pods in progress at the same time.
const AT_ONCE: usize = 32;
/// The label by which the pods of a measurement are selected.
const LABEL: &str = "di-bench";

/// Runs it, on the cluster that a command starts, or else on that of KUBECONFIG, with the orchestrator installed.
pub async fn run(scale: &Scale, cluster: Option<&str>, found: &mut Findings) -> Result<()> {
    let space = space(cluster).await?;
    let at = At {
        benchmark: "B18",
        what: "time until all are ready",
        unit: "s",
        case: format!("{COLLECTORS} collectors"),
        x: 0,
    };
    for repetition in 0..=scale.repetitions {
        for subject in [OURS, DEPLOYMENT, BARE] {
            let seconds = measure(&space, subject)
                .await
                .with_context(|| format!("{subject} in namespace {}, which is kept", space.name))?;
            // The images and the namespace are new in the first repetition.
            if repetition > 0 {
                found.add(&at, subject, seconds);
            }
        }
    }
    found.compare(&at, OURS, BARE, Limit::AtMost(1.1));
    found.compare(&at, OURS, DEPLOYMENT, Limit::AtMost(1.1));
    remove_namespace(&space).await
}

/// Seconds from the first request until all pods are ready.
async fn measure(space: &Space, subject: &str) -> Result<f64> {
    let began = Instant::now();
    match subject {
        OURS => {
            space.jobs().create(&PostParams::default(), &job()?).await?;
        }
        DEPLOYMENT => {
            let api: Api<Deployment> = Api::namespaced(space.client.clone(), &space.name);
            api.create(&PostParams::default(), &deployment()?).await?;
        }
        _ => {
            let pods = (0..COLLECTORS).map(|index| {
                let mut pod = collector()?;
                pod.metadata.name = Some(format!("bare-{index}"));
                Call::create(&space.pods_path(), &pod)
            });
            make_all(&space.client, pods.collect::<Result<_>>()?, AT_ONCE).await?;
        }
    }
    let label = ListParams::default().labels(LABEL);
    let all = usize::try_from(COLLECTORS)?;
    until(
        "30 ready collectors; is the orchestrator installed?",
        async || {
            let pods = space.pods().list(&label).await?;
            let ready = pods.iter().filter(|pod| is_ready(pod)).count();
            Ok((ready == all).then_some(()))
        },
    )
    .await?;
    let seconds = began.elapsed().as_secs_f64();
    let deployments: Api<Deployment> = Api::namespaced(space.client.clone(), &space.name);
    deployments
        .delete_collection(&DeleteParams::background(), &ListParams::default())
        .await?;
    clear(space).await?;
    Ok(seconds)
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// A job whose coordinator and collectors only wait.
fn job() -> Result<DIJob> {
    let image = concat!("ghcr.io/opendilab/di-worker:v", env!("CARGO_PKG_VERSION"));
    let template = json!({
        "metadata": {"labels": {LABEL: "collector"}},
        "spec": {"containers": [{"name": names::MAIN_CONTAINER, "image": image, "args": ["hold"]}]},
    });
    let mut coordinator = template.clone();
    coordinator["metadata"] = json!({});
    let job = json!({
        "apiVersion": format!("{}/{}", names::GROUP, names::VERSION),
        "kind": "DIJob",
        "metadata": {"name": "thirty"},
        "spec": {
            "coordinator": {"template": coordinator},
            "collector": {"template": template, "replicas": COLLECTORS},
        },
    });
    serde_json::from_value(job).context("the job of the benchmark cannot be decoded")
}

/// A pod like a collector of the job, without an owner.
fn collector() -> Result<Pod> {
    let entry = PlanEntry::new("collector".to_owned(), Role::Collector, Origin::Declared, 0);
    let pod = di_plan::build_pod(&job()?, &entry, None, &BuildSettings::default());
    let mut pod = pod.context("the job has no collectors")?.decode()?;
    pod.metadata = ObjectMeta {
        labels: Some(labels()),
        ..ObjectMeta::default()
    };
    Ok(pod)
}

fn labels() -> BTreeMap<String, String> {
    BTreeMap::from([(LABEL.to_owned(), "collector".to_owned())])
}

fn deployment() -> Result<Deployment> {
    let mut spec = collector()?.spec.context("the pod has no spec")?;
    // The only restart policy of a Deployment.
    spec.restart_policy = Some("Always".to_owned());
    let deployment = json!({
        "metadata": {"name": "thirty"},
        "spec": {
            "replicas": COLLECTORS,
            "selector": {"matchLabels": labels()},
            "template": {"metadata": {"labels": labels()}, "spec": spec},
        },
    });
    Ok(serde_json::from_value(deployment)?)
}
