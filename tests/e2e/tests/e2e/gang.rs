//! Jobs whose pods start together. A stand-in schedules them; with `DI_REAL_COSCHEDULING=1`, the
//! coscheduling plugin itself.

use di_api::{DIJob, DIJobStatus, GangSpec, Phase, PodTemplate, SchedulingSpec};
use di_e2e::{
    Namespace, SYSTEM, client, eventually, idle_job, kubectl_di, main_container, owned_pods,
    status, wait_for_phase,
};
use di_gang_stand_in::{GangScheduler, SCHEDULER_NAME, install};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;
use tokio::sync::OnceCell;

use crate::{
    lifecycle::{end_pod, wait_for_running_pods},
    queueing::find_worker,
    restart::kill_pods,
};

/// Whether coscheduling runs in the cluster, so that the tests need no stand-in.
fn is_coscheduling_installed() -> bool {
    std::env::var_os("DI_REAL_COSCHEDULING").is_some_and(|value| value == "1")
}

/// Installs the API of PodGroups, and selects the gang scheduler. `tests/e2e/run` does the same for
/// all suites, so that the orchestrator does not restart here.
async fn prepare_cluster() {
    static PREPARED: OnceCell<()> = OnceCell::const_new();
    PREPARED
        .get_or_init(async || {
            let system = Namespace {
                client: client().await,
                name: SYSTEM.to_owned(),
            };
            let mut flag = "--gang-scheduler=coscheduling".to_owned();
            if !is_coscheduling_installed() {
                // Before the orchestrator: it looks for the API at its start, and then once a minute.
                install(&system.client).await;
                flag = format!("{flag}:{SCHEDULER_NAME}");
            }
            let set = kubectl_di(&system, &["install", &flag]).await;
            assert_eq!(set.code, Some(0), "{set:?}");
        })
        .await;
}

/// Selects the gang scheduler, and schedules the pods of a namespace until the result is dropped.
pub(crate) async fn start_gangs(ns: &Namespace) -> Option<GangScheduler> {
    prepare_cluster().await;
    start_scheduler(ns)
}

/// Schedules pods until the result is dropped.
pub(crate) fn start_scheduler(ns: &Namespace) -> Option<GangScheduler> {
    (!is_coscheduling_installed()).then(|| GangScheduler::start(ns.client.clone(), &ns.name))
}

/// Kills the scheduler, and waits until another one runs.
pub(crate) async fn kill_scheduler(ns: &Namespace, scheduler: &mut Option<GangScheduler>) {
    if is_coscheduling_installed() {
        kill_pods(&ns.client, "scheduler-plugins", &ListParams::default()).await;
    } else {
        drop(scheduler.take());
        *scheduler = start_scheduler(ns);
    }
}

/// GPUs of a node that only the pods of one test request. No program uses them.
pub(crate) struct Gpus {
    ns: Namespace,
    nodes: Api<Node>,
    node: String,
    resource: String,
}

impl Gpus {
    pub(crate) async fn create(ns: &Namespace, number: usize) -> Self {
        prepare_cluster().await;
        let nodes: Api<Node> = Api::all(ns.client.clone());
        let gpus = Self {
            node: find_worker(&nodes).await,
            resource: format!("di-e2e/{}", ns.name),
            ns: ns.clone(),
            nodes,
        };
        gpus.set(Some(number)).await;
        gpus
    }

    /// Sets the number of GPUs, or removes the resource.
    pub(crate) async fn set(&self, number: Option<usize>) {
        let gpus = json!({(self.resource.as_str()): number.map(|number| number.to_string())});
        let status = Patch::Merge(json!({"status": {"capacity": gpus, "allocatable": gpus}}));
        let params = PatchParams::default();
        let written = self.nodes.patch_status(&self.node, &params, &status).await;
        written.unwrap();
    }

    pub(crate) fn request(&self, template: &mut PodTemplate, number: usize) {
        let limits = json!({(self.resource.as_str()): number.to_string()});
        main_container(template)["resources"]["limits"] = limits;
    }

    /// A job that needs three GPUs, two of them in one pod.
    fn job(&self, name: &str) -> DIJob {
        let mut job = idle_job(name, 1, 1);
        self.request(&mut job.spec.collector.as_mut().unwrap().template, 1);
        self.request(&mut job.spec.learner.as_mut().unwrap().template, 2);
        job
    }

    async fn end_job(&self, job: &str) {
        end_pod(&self.ns, &format!("{job}-coordinator"), "0").await;
        wait_for_phase(&self.ns, job, Phase::Succeeded).await;
    }
}

/// The gang of a job. Without a number, all declared collectors are in it.
pub(crate) fn gang(min_collectors: Option<i32>) -> SchedulingSpec {
    SchedulingSpec {
        gang: Some(GangSpec {
            min_collectors,
            min_learners: None,
        }),
        ..SchedulingSpec::default()
    }
}

fn has_node(pod: &Pod) -> bool {
    pod.spec.as_ref().unwrap().node_name.is_some()
}

/// Waits until a job has exactly the pods of its gang, and none of them has a node.
pub(crate) async fn wait_for_gang(ns: &Namespace, job: &str, size: i32) {
    let is_waiting = |status: &DIJobStatus| {
        let gang = status.scheduling.as_ref();
        status.reason.as_deref() == Some("GangWaiting")
            && gang.is_some_and(|gang| gang.min_member == size && !gang.placed)
    };
    eventually("waiting", || status(ns, job), is_waiting).await;
    let is_gang =
        |pods: &Vec<Pod>| i32::try_from(pods.len()) == Ok(size) && !pods.iter().any(has_node);
    eventually("the gang", || owned_pods(ns, job), is_gang).await;
}

/// The reason for gangs. The default scheduler places the pods.
#[tokio::test]
async fn jobs_without_gang_block_each_other() {
    Namespace::with("no-gang", |ns| async move {
        let gpus = Gpus::create(&ns, 3).await;
        let jobs = ["first", "second"];
        for name in jobs {
            let mut job = gpus.job(name);
            job.spec.learner.as_mut().unwrap().replicas = 0;
            ns.submit(&job).await;
        }
        for job in jobs {
            wait_for_running_pods(&ns, job, 2).await;
        }

        // One GPU is left, and each learner needs two: neither job can continue.
        let learner = Patch::Merge(json!({"spec": {"learner": {"replicas": 1}}}));
        let (api, params) = (ns.api::<DIJob>(), PatchParams::default());
        for job in jobs {
            api.patch(job, &params, &learner).await.unwrap();
        }
        let is_stuck = |status: &DIJobStatus| {
            status.phase == Some(Phase::Running)
                && status.reason.as_deref() == Some("Unschedulable")
                && status.collectors_ready.as_deref() == Some("1/1")
                && status.learners_ready.as_deref() == Some("0/1")
        };
        for job in jobs {
            eventually("half-started", || status(&ns, job), is_stuck).await;
        }
        assert!(is_stuck(&status(&ns, "first").await));
        gpus.end_job("first").await;
        wait_for_running_pods(&ns, "second", 3).await;
        gpus.end_job("second").await;
        gpus.set(None).await;
    })
    .await;
}

#[tokio::test]
async fn jobs_with_gang_run_one_after_the_other() {
    Namespace::with("gang", |ns| async move {
        let gpus = Gpus::create(&ns, 3).await;
        let _scheduler = start_scheduler(&ns);
        let jobs = ["first", "second"];
        for name in jobs {
            let mut job = gpus.job(name);
            job.spec.scheduling = Some(gang(None));
            ns.submit(&job).await;
        }
        let find_placed = || async {
            for job in jobs {
                let gang = status(&ns, job).await.scheduling;
                if gang.is_some_and(|gang| gang.placed) {
                    return Some(job);
                }
            }
            None
        };
        let placed = eventually("placed", find_placed, Option::is_some).await;
        let placed = placed.unwrap();
        wait_for_running_pods(&ns, placed, 3).await;
        let waiting = jobs[usize::from(placed == jobs[0])];
        let describe = || async {
            let printed = kubectl_di(&ns, &["describe", waiting]).await.stdout;
            let mut lines = printed.lines();
            let line = lines.find(|line| line.starts_with("Gang:"));
            line.unwrap_or_default().to_owned()
        };
        let shown = format!("0 of 3 placed, waiting for {}", gpus.resource);
        eventually("described", describe, |line| line.contains(&shown)).await;
        let pods = owned_pods(&ns, waiting).await;
        assert!(!pods.iter().any(has_node), "{pods:?}");

        gpus.end_job(placed).await;
        wait_for_running_pods(&ns, waiting, 3).await;
        gpus.end_job(waiting).await;
        gpus.set(None).await;
    })
    .await;
}

#[tokio::test]
async fn overflow_starts_after_the_gang_as_it_fits() {
    Namespace::with("overflow", |ns| async move {
        let gpus = Gpus::create(&ns, 0).await;
        let _scheduler = start_scheduler(&ns);
        let mut job = idle_job("job", 3, 0);
        gpus.request(&mut job.spec.collector.as_mut().unwrap().template, 1);
        job.spec.scheduling = Some(gang(Some(1)));
        ns.submit(&job).await;
        wait_for_gang(&ns, "job", 2).await;
        let larger = Patch::Merge(json!({"spec": {"scheduling": gang(Some(2))}}));
        let (jobs, params) = (ns.api::<DIJob>(), PatchParams::default());
        jobs.patch("job", &params, &larger).await.unwrap();
        wait_for_gang(&ns, "job", 3).await;

        gpus.set(Some(2)).await;
        let is_partial = |status: &DIJobStatus| status.collectors_ready.as_deref() == Some("2/3");
        let seen = eventually("started", || status(&ns, "job"), is_partial).await;
        assert!(seen.scheduling.is_some_and(|gang| gang.placed));
        gpus.set(Some(3)).await;
        wait_for_running_pods(&ns, "job", 4).await;
        gpus.end_job("job").await;
        gpus.set(None).await;
    })
    .await;
}
