//! B17: from a job to its first training step, compared with the bare start of the same pods. It needs a cluster with nodes.

use std::{
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use di_api::{DIJob, Origin, PlanEntry, PodTemplate, Role, names};
use di_plan::BuildSettings;
use futures::future::try_join_all;
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Namespace, Pod},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client, Config, ResourceExt,
    api::{DeleteParams, ListParams, LogParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
    runtime::wait::{await_condition, conditions::is_pod_running},
};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::harness::{
    cluster::Space,
    scale::{PATIENCE, Scale},
    stats::{At, Findings, Limit},
};

const OURS: &str = "job, until the first training step";
const BARE: &str = "its pods alone, until all run";
/// The job that is submitted.
const SAMPLE: &str = include_str!("../../../manifests/samples/cartpole.yaml");
/// The replicas that its coordinator requests.
const REPLICAS: [(Role, i32); 2] = [(Role::Collector, 2), (Role::Learner, 1)];
/// The log line of the learner's first training.
const STEP: &str = "trained model 1 on";
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Runs it, on the cluster that a command brings up, or else on that of KUBECONFIG, with the orchestrator installed.
pub async fn run(scale: &Scale, cluster: Option<&str>, found: &mut Findings) -> Result<()> {
    let space = space(cluster).await?;
    let measured = measure(&space, scale, found).await;
    measured.with_context(|| format!("what stood in the namespace {} is kept", space.name))?;
    remove_namespace(&space).await
}

/// Deletes the namespace of a measurement.
pub async fn remove_namespace(space: &Space) -> Result<()> {
    let all: Api<Namespace> = Api::all(space.client.clone());
    all.delete(&space.name, &DeleteParams::background()).await?;
    Ok(())
}

/// The cluster whose kubeconfig a command names at last.
async fn brought_up(command: &str) -> Result<Config> {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).stderr(Stdio::inherit());
    let output = shell.output().context("cannot start a shell")?;
    ensure!(output.status.success(), "{command}: {}", output.status);
    let printed = String::from_utf8(output.stdout)?;
    let path = printed.lines().last();
    let kubeconfig = Kubeconfig::read_from(path.context("no kubeconfig is named")?)?;
    Ok(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
}

/// A new namespace on the cluster that a command starts, or else on that of KUBECONFIG.
pub async fn space(cluster: Option<&str>) -> Result<Space> {
    rustls::crypto::ring::default_provider()
        .install_default()
        .ok();
    let config = if let Some(command) = cluster {
        let brought_up = brought_up(command).await;
        brought_up.context("no cluster came up")?
    } else {
        let there = Config::infer().await;
        there.context("no cluster: make deploy, and eval \"$(kind/env)\"")?
    };
    let client = Client::try_from(config)?;
    let mut namespace = Namespace::default();
    namespace.metadata.generate_name = Some("bench-".to_owned());
    let all: Api<Namespace> = Api::all(client.clone());
    let made = all.create(&PostParams::default(), &namespace).await?;
    Ok(Space {
        client,
        name: made.name_any(),
    })
}

async fn measure(space: &Space, scale: &Scale, found: &mut Findings) -> Result<()> {
    let cases = [
        ("requested by the coordinator", "asked", false),
        ("declared in the job", "declared", true),
    ];
    let at = |case: &str| At {
        benchmark: "B17",
        what: "time from the request on",
        unit: "s",
        case: format!("2 collectors and 1 learner, {case}"),
        x: 0,
    };
    for repetition in 0..=scale.repetitions {
        for (case, short, declared) in cases {
            let job = training(&format!("{short}-{repetition}"), declared)?;
            let stepped = first_step(space, &job).await?;
            clear(space).await?;
            let started = bare_start(space, &job).await?;
            clear(space).await?;
            // In the first, the namespace is new.
            if repetition > 0 {
                found.add(&at(case), OURS, stepped);
                found.add(&at(case), BARE, started);
            }
        }
    }
    for (case, _, _) in cases {
        found.compare(&at(case), OURS, BARE, Limit::AtMost(3.0));
    }
    Ok(())
}

/// The sample, which waits after its first step.
fn training(name: &str, declared: bool) -> Result<DIJob> {
    let mut job: DIJob = serde_saphyr::from_str(SAMPLE)?;
    job.metadata.name = Some(name.to_owned());
    let flags = main_of(&mut job.spec.coordinator.template)?["args"].as_array_mut();
    let flags = flags.context("no flags")?;
    let pace = flags.iter().position(|flag| flag == "--pace");
    let pace = pace.and_then(|at| flags.get_mut(at + 1));
    *pace.context("no pace")? = "1h".into();
    if declared {
        flags.push("--declared".into());
        let collector = job.spec.collector.as_mut().context("no collectors")?;
        collector.replicas = REPLICAS[0].1;
        let learner = job.spec.learner.as_mut().context("no learners")?;
        learner.replicas = REPLICAS[1].1;
    }
    Ok(job)
}

fn main_of(template: &mut PodTemplate) -> Result<&mut Value> {
    let spec = template.0.get_mut("spec").context("no pod spec")?;
    let containers = spec["containers"].as_array_mut().into_iter().flatten();
    let mut main = containers.filter(|container| container["name"] == names::MAIN_CONTAINER);
    main.next().context("no main container")
}

/// Pods of the same templates without an owner, which do nothing.
fn bare(job: &DIJob) -> Result<Vec<Pod>> {
    let mut job = job.clone();
    let spec = &mut job.spec;
    let collector = spec.collector.iter_mut().map(|part| &mut part.template);
    let learner = spec.learner.iter_mut().map(|part| &mut part.template);
    let coordinator = [&mut spec.coordinator.template];
    for template in coordinator.into_iter().chain(collector).chain(learner) {
        main_of(template)?["args"] = json!(["hold"]);
    }
    let roles = [(Role::Coordinator, 1)].into_iter().chain(REPLICAS);
    let entries = roles.flat_map(|(role, count)| {
        (0..count).map(move |i| {
            let name = format!("bare-{}-{i}", role.label());
            PlanEntry::new(name, role, Origin::Declared, i)
        })
    });
    let pods = entries.map(|entry| {
        let pod = di_plan::build_pod(&job, &entry, None, &BuildSettings::default());
        let mut pod = pod.context("no template")?.decode()?;
        pod.metadata = ObjectMeta {
            name: Some(entry.name),
            ..ObjectMeta::default()
        };
        Ok(pod)
    });
    pods.collect()
}

/// Seconds from the request on until the learner has trained for the first time, by the clock of its node.
async fn first_step(space: &Space, job: &DIJob) -> Result<f64> {
    let (pods, name) = (space.pods(), job.name_any());
    let began = Timestamp::now();
    space.jobs().create(&PostParams::default(), job).await?;
    let (of_job, of_role) = (names::labels::JOB, names::labels::ROLE);
    let learners = format!("{of_job}={name},{of_role}={}", Role::Learner.label());
    let learners = ListParams::default().labels(&learners);
    let stamped = LogParams {
        timestamps: true,
        ..LogParams::default()
    };
    let stepped = until("training step; is the orchestrator there?", async || {
        for learner in pods.list(&learners).await? {
            // While it starts, there is none.
            let log = pods.logs(&learner.name_any(), &stamped).await;
            if let Some(at) = log.ok().and_then(|log| when(&log)) {
                return Ok(Some(at));
            }
        }
        Ok(None)
    });
    Ok(stepped.await?.duration_since(began).as_secs_f64())
}

/// When the first step was logged.
fn when(log: &str) -> Option<Timestamp> {
    let line = log.lines().find(|line| line.contains(STEP))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Seconds from the requests on until all pods were seen running.
async fn bare_start(space: &Space, job: &DIJob) -> Result<f64> {
    let pods = bare(job)?;
    let began = Instant::now();
    try_join_all(pods.iter().map(|pod| async {
        let (api, name) = (space.pods(), pod.name_any());
        api.create(&PostParams::default(), pod).await?;
        let running = await_condition(api, &name, is_pod_running());
        let running = timeout(PATIENCE, running).await;
        running.with_context(|| format!("{name} does not run"))??;
        anyhow::Ok(())
    }))
    .await?;
    Ok(began.elapsed().as_secs_f64())
}

/// Removes all jobs and pods, and waits until they are gone.
pub async fn clear(space: &Space) -> Result<()> {
    let (how, all) = (DeleteParams::background(), ListParams::default());
    space.jobs().delete_collection(&how, &all).await?;
    space.pods().delete_collection(&how, &all).await?;
    until("end of all pods", async || {
        let left = space.pods().list_metadata(&all).await?;
        Ok(left.items.is_empty().then_some(()))
    })
    .await
}

/// Looks until something is found, or fails after [`PATIENCE`].
pub async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
    let began = Instant::now();
    loop {
        if let Some(found) = look().await? {
            return Ok(found);
        }
        ensure!(began.elapsed() < PATIENCE, "within {PATIENCE:?} no {what}");
        sleep(LOOK_EVERY).await;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a panic is how a test fails
mod tests {
    use super::*;

    fn flags(job: &mut DIJob) -> String {
        let main = main_of(&mut job.spec.coordinator.template).unwrap();
        let args: Vec<String> = serde_json::from_value(main["args"].clone()).unwrap();
        args.join(" ")
    }

    #[test]
    fn the_sample_waits_after_its_first_step() {
        let mut asked = training("asked-0", false).unwrap();
        assert_eq!(
            flags(&mut asked),
            "coordinator --collectors 2 --learners 1 --pace 1h"
        );
        let mut declared = training("declared-0", true).unwrap();
        assert!(flags(&mut declared).ends_with("--pace 1h --declared"));
        let replicas = |job: &DIJob| {
            let (collector, learner) = (&job.spec.collector, &job.spec.learner);
            let collectors = collector.as_ref().unwrap().replicas;
            [collectors, learner.as_ref().unwrap().replicas]
        };
        assert_eq!(replicas(&declared), [2, 1]);
        assert_eq!(replicas(&asked), [0, 0]);
    }

    #[test]
    fn bare_pods_are_those_of_the_job_without_what_they_do() {
        let pods = bare(&training("asked-0", false).unwrap()).unwrap();
        let names: Vec<_> = pods.iter().map(ResourceExt::name_any).collect();
        let expected = ["coordinator-0", "collector-0", "collector-1", "learner-0"];
        assert_eq!(names, expected.map(|name| format!("bare-{name}")));
        for pod in pods {
            assert!(pod.labels().is_empty() && pod.owner_references().is_empty());
            let spec = pod.spec.unwrap();
            assert_eq!(
                spec.containers[0].args.as_deref(),
                Some(&["hold".to_owned()][..])
            );
            assert_eq!(spec.volumes.unwrap().len(), 1);
        }
    }

    #[test]
    fn the_first_step_has_the_time_of_its_line() {
        let log = "2026-01-02T03:04:05.600000001Z INFO waits for tasks\n\
                   2026-01-02T03:04:06.700000001Z INFO trained model 1 on 2048 frames: policy loss 0.1\n\
                   2026-01-02T03:04:07.800000001Z INFO trained model 2 on 2048 frames: policy loss 0.1\n";
        let at = when(log).unwrap();
        assert_eq!(at, "2026-01-02T03:04:06.700000001Z".parse().unwrap());
        assert_eq!(when("2026-01-02T03:04:05Z INFO waits for tasks\n"), None);
    }
}
