use anyhow::{Result, bail, ensure};
use clap::{Args, ValueEnum};
use di_api::{CleanPodPolicy, ReplicaResources};
use di_client::{Document, Outline};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::{args::count_from_zero, resources::some};

/// The flags that stand for a manifest.
#[derive(Debug, Default, PartialEq, Args)]
#[command(next_help_heading = "Flags instead of a manifest")]
pub struct OutlineFlags {
    /// Name of the job, where there is no manifest
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Image of every pod
    #[arg(long)]
    image: Option<String>,
    /// When kubelets pull it
    #[arg(long, value_enum, value_name = "POLICY")]
    image_pull_policy: Option<PullPolicy>,
    /// Collectors from the start; 0 leaves them to the coordinator to ask for, and without the flag there can be none
    #[arg(long, value_name = "N", value_parser = count_from_zero, allow_negative_numbers = true)]
    collectors: Option<i32>,
    /// Learners from the start; as with collectors
    #[arg(long, value_name = "N", value_parser = count_from_zero, allow_negative_numbers = true)]
    learners: Option<i32>,
    /// CPUs of the coordinator, where they are others than --cpus
    #[arg(long, value_name = "QUANTITY", value_parser = some)]
    coordinator_cpus: Option<Quantity>,
    /// Memory of the coordinator, where it is another than --memory
    #[arg(long, value_name = "QUANTITY", value_parser = some)]
    coordinator_memory: Option<Quantity>,
    /// CPUs of each collector, where they are others than --cpus
    #[arg(long, value_name = "QUANTITY", value_parser = some)]
    collector_cpus: Option<Quantity>,
    /// Memory of each collector, where it is another than --memory
    #[arg(long, value_name = "QUANTITY", value_parser = some)]
    collector_memory: Option<Quantity>,
    /// CPUs of each learner, where they are others than --cpus
    #[arg(long, value_name = "QUANTITY", value_parser = some)]
    learner_cpus: Option<Quantity>,
    /// Memory of each learner, where it is another than --memory
    #[arg(long, value_name = "QUANTITY", value_parser = some)]
    learner_memory: Option<Quantity>,
    /// Environment variable of every pod; may be repeated
    #[arg(short, long, value_name = "KEY=VALUE", value_parser = pair)]
    env: Vec<(String, String)>,
    /// Labels of the job
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair, value_delimiter = ',')]
    labels: Vec<(String, String)>,
    /// Annotations of the job
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair, value_delimiter = ',')]
    annotations: Vec<(String, String)>,
    /// Labels of the nodes that every pod may run on
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair, value_delimiter = ',')]
    node_selector: Vec<(String, String)>,
    /// Collection of jobs that it belongs to
    #[arg(long)]
    group: Option<String>,
    /// Priority class of every pod
    #[arg(long, value_name = "NAME")]
    priority_class: Option<String>,
    /// Which pods are deleted once the job has ended
    #[arg(long, value_enum, value_name = "POLICY", ignore_case = true)]
    clean_pod_policy: Option<Policy>,
    /// Service account of every pod
    #[arg(long, value_name = "NAME")]
    service_account: Option<String>,
    /// How often a failed coordinator is started again
    #[arg(long, value_name = "N", value_parser = count_from_zero, allow_negative_numbers = true)]
    backoff_limit: Option<i32>,
    /// How long it may run, in seconds; then it has failed
    #[arg(long, value_name = "N", value_parser = count_from_zero, allow_negative_numbers = true)]
    active_deadline_seconds: Option<i32>,
    /// How long it stays after its end, in seconds; for ever without the flag
    #[arg(long, value_name = "N", value_parser = count_from_zero, allow_negative_numbers = true)]
    ttl_seconds_after_finished: Option<i32>,
    /// Create it held; kubectl di resume starts it
    #[arg(long)]
    suspend: bool,
    /// What every container runs instead of what its image says; DI_REPLICA_INDEX and COORDINATOR_PORT, COLLECTOR_PORT or LEARNER_PORT
    /// tell it what it is
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Policy {
    #[value(name = "None")]
    None,
    #[value(name = "Running")]
    Running,
    #[value(name = "All")]
    All,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum PullPolicy {
    #[value(name = "Always")]
    Always,
    #[value(name = "IfNotPresent")]
    IfNotPresent,
    #[value(name = "Never")]
    Never,
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("expected KEY=VALUE".to_owned()),
    }
}

impl OutlineFlags {
    /// Whether anything but resources was told.
    pub fn is_given(&self) -> bool {
        *self != Self::default()
    }

    /// The job that they stand for, if they do.
    pub fn document(&self, resources: &ReplicaResources) -> Result<Option<Document>> {
        let Some(name) = &self.name else {
            ensure!(
                resources.is_empty() && !self.is_given(),
                "flags that stand for a manifest need a NAME: kubectl di create NAME --image=IMAGE"
            );
            return Ok(None);
        };
        let Some(image) = &self.image else {
            bail!(
                "required flag(s) \"image\" not set; to read a manifest: kubectl di create -f {name}"
            );
        };
        if resources.gpus.is_some() && self.learners.is_none() {
            bail!("--gpus are those of learners: add --learners=N");
        }
        for (role, count, of_role) in [
            (
                "collector",
                self.collectors,
                [&self.collector_cpus, &self.collector_memory],
            ),
            (
                "learner",
                self.learners,
                [&self.learner_cpus, &self.learner_memory],
            ),
        ] {
            ensure!(
                count.is_some() || of_role.iter().all(|quantity| quantity.is_none()),
                "there are no {role}s that resources could be for: add --{role}s=N"
            );
        }
        let of = |cpus: &Option<Quantity>, memory: &Option<Quantity>| ReplicaResources {
            cpus: cpus.clone().or_else(|| resources.cpus.clone()),
            memory: memory.clone().or_else(|| resources.memory.clone()),
            gpus: None,
        };
        let outline = Outline {
            name: name.clone(),
            image: image.clone(),
            image_pull_policy: self.image_pull_policy.map(|policy| format!("{policy:?}")),
            command: self.command.clone(),
            collectors: self.collectors,
            learners: self.learners,
            coordinator_resources: of(&self.coordinator_cpus, &self.coordinator_memory),
            collector_resources: of(&self.collector_cpus, &self.collector_memory),
            learner_resources: ReplicaResources {
                gpus: resources.gpus.clone(),
                ..of(&self.learner_cpus, &self.learner_memory)
            },
            node_selector: self.node_selector.clone(),
            env: self.env.clone(),
            labels: self.labels.clone(),
            annotations: self.annotations.clone(),
            group: self.group.clone(),
            priority_class: self.priority_class.clone(),
            clean_pod_policy: self.clean_pod_policy.map(|policy| match policy {
                Policy::None => CleanPodPolicy::None,
                Policy::Running => CleanPodPolicy::Running,
                Policy::All => CleanPodPolicy::All,
            }),
            service_account: self.service_account.clone(),
            backoff_limit: self.backoff_limit,
            active_deadline_seconds: self.active_deadline_seconds.map(i64::from),
            ttl_seconds_after_finished: self.ttl_seconds_after_finished,
            suspend: self.suspend,
        };
        Ok(Some(outline.document()))
    }
}
