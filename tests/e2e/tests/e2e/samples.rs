//! The samples: the API server accepts each one, and those without dependencies run.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use di_api::{DIJob, Phase};
use di_e2e::{Namespace, dry_run, eventually, is_solved, logs, owned_pods, status, wait_for_phase};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, PostParams, TypeMeta},
    core::GroupVersionKind,
};
use serde::Deserialize;

/// Returns the objects that the kustomization of the samples lists.
fn samples() -> Vec<(PathBuf, DynamicObject)> {
    #[derive(Deserialize)]
    struct Kustomization {
        resources: BTreeSet<String>,
    }
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/samples");
    let read = |file: &str| std::fs::read_to_string(dir.join(file)).unwrap();
    let Kustomization { mut resources } =
        serde_saphyr::from_str(&read("kustomization.yaml")).unwrap();
    let samples = resources.iter().map(|file| {
        let object = serde_saphyr::from_str(&read(file)).unwrap();
        (dir.join(file), object)
    });
    let samples = samples.collect();
    resources.insert("kustomization.yaml".to_owned());
    let files = std::fs::read_dir(&dir).unwrap();
    let files = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    assert_eq!(files.collect::<BTreeSet<_>>(), resources, "files");
    samples
}

fn sample(file: &str) -> DynamicObject {
    let mut samples = samples().into_iter();
    let (_, sample) = samples.find(|(path, _)| path.ends_with(file)).unwrap();
    sample
}

fn resource(types: &TypeMeta) -> ApiResource {
    let kind = GroupVersionKind::try_from(types).unwrap();
    ApiResource::from_gvk(&kind)
}

#[tokio::test]
async fn samples_are_accepted_unchanged() {
    Namespace::with("samples", |ns| async move {
        for (path, sample) in samples() {
            let namespace = sample.metadata.namespace.as_deref().unwrap_or(&ns.name);
            let resource = resource(sample.types.as_ref().unwrap());
            let api: Api<DynamicObject> =
                Api::namespaced_with(ns.client.clone(), namespace, &resource);
            let accepted = api.create(&dry_run(), &sample).await;
            assert!(accepted.is_ok(), "{}: {accepted:?}", path.display());
        }
    })
    .await;
}

#[tokio::test]
async fn serial_sample_trains_without_replicas() {
    Namespace::with("serial", |ns| async move {
        let job: DIJob = sample("serial.yaml").try_parse().unwrap();
        ns.submit(&job).await;
        wait_for_phase(&ns, "cartpole-serial", Phase::Succeeded).await;
        assert_eq!(owned_pods(&ns, "cartpole-serial").await.len(), 1);
        let log = logs(&ns, "cartpole-serial-coordinator").await;
        assert!(is_solved(&log), "{log}");
    })
    .await;
}

/// The coordinator logs each seed before it counts it, and ends after all.
#[tokio::test]
async fn seed_sweep_ends_after_every_seed() {
    Namespace::with("sweep", |ns| async move {
        let job: DIJob = sample("seed-sweep.yaml").try_parse().unwrap();
        let replicas = job.spec.collector.as_ref().unwrap().replicas;
        ns.submit(&job).await;
        wait_for_phase(&ns, "seed-sweep", Phase::Succeeded).await;
        let log = logs(&ns, "seed-sweep-coordinator").await;
        for seed in 0..replicas {
            assert!(log.contains(&format!("seed {seed}: solved")), "{log}");
        }
    })
    .await;
}

/// The sample was written for v1alpha1. It has an empty string that the v1alpha2 schema must
/// accept.
#[tokio::test]
async fn di_engine_sample_starts_in_newest_version() {
    Namespace::with("di-engine", |ns| async move {
        let mut sample = sample("di-engine-cartpole.yaml");
        sample.types = Some(TypeMeta::resource::<DIJob>());
        let types = sample.types.as_ref().unwrap();
        let api: Api<DynamicObject> =
            Api::namespaced_with(ns.client.clone(), &ns.name, &resource(types));
        api.create(&PostParams::default(), &sample).await.unwrap();
        eventually(
            "a phase",
            || status(&ns, "cartpole-dqn"),
            |s| s.phase.is_some(),
        )
        .await;
    })
    .await;
}
