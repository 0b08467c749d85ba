use anyhow::{Result, bail, ensure};
use clap::{Args, ValueEnum};
use di_api::{CleanPodPolicy, ReplicaResources};
use di_client::{Document, JobOptions};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::flags::{parsers::parse_count, resources::parse_quantity};

/// The flags that replace a manifest.
#[derive(Debug, Default, PartialEq, Args)]
#[command(next_help_heading = "Flags instead of a manifest")]
pub struct JobFlags {
    /// Name of the job, if no manifest is given
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Image of every pod
    #[arg(long)]
    image: Option<String>,
    /// The image pull policy for the containers
    #[arg(long, value_enum, value_name = "POLICY")]
    image_pull_policy: Option<ImagePullPolicyArg>,
    /// Number of declared collectors. With 0, the coordinator can request collectors; without the
    /// flag, the job can have none
    #[arg(long, value_name = "N", value_parser = parse_count, allow_negative_numbers = true)]
    collectors: Option<i32>,
    /// Number of declared learners. With 0, the coordinator can request learners; without the flag,
    /// the job can have none
    #[arg(long, value_name = "N", value_parser = parse_count, allow_negative_numbers = true)]
    learners: Option<i32>,
    /// CPUs of the coordinator, if different from --cpus
    #[arg(long, value_name = "QUANTITY", value_parser = parse_quantity)]
    coordinator_cpus: Option<Quantity>,
    /// Memory of the coordinator, if different from --memory
    #[arg(long, value_name = "QUANTITY", value_parser = parse_quantity)]
    coordinator_memory: Option<Quantity>,
    /// CPUs of each collector, if different from --cpus
    #[arg(long, value_name = "QUANTITY", value_parser = parse_quantity)]
    collector_cpus: Option<Quantity>,
    /// Memory of each collector, if different from --memory
    #[arg(long, value_name = "QUANTITY", value_parser = parse_quantity)]
    collector_memory: Option<Quantity>,
    /// CPUs of each learner, if different from --cpus
    #[arg(long, value_name = "QUANTITY", value_parser = parse_quantity)]
    learner_cpus: Option<Quantity>,
    /// Memory of each learner, if different from --memory
    #[arg(long, value_name = "QUANTITY", value_parser = parse_quantity)]
    learner_memory: Option<Quantity>,
    /// Environment variables to set in every container, can be repeated
    #[arg(short, long, value_name = "KEY=VALUE", value_parser = parse_pair)]
    env: Vec<(String, String)>,
    /// Labels of the job
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_pair, value_delimiter = ',')]
    labels: Vec<(String, String)>,
    /// Annotations of the job
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_pair, value_delimiter = ',')]
    annotations: Vec<(String, String)>,
    /// Node labels that every pod requires
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_pair, value_delimiter = ',')]
    node_selector: Vec<(String, String)>,
    /// Group that the job belongs to
    #[arg(long)]
    group: Option<String>,
    /// Priority class of every pod
    #[arg(long, value_name = "NAME")]
    priority_class: Option<String>,
    /// Which pods are deleted once the job has ended
    #[arg(long, value_enum, value_name = "POLICY", ignore_case = true)]
    clean_pod_policy: Option<CleanPodPolicyArg>,
    /// Service account of every pod
    #[arg(long, value_name = "NAME")]
    service_account: Option<String>,
    /// How often a failed coordinator is restarted before the job fails
    #[arg(long, value_name = "N", value_parser = parse_count, allow_negative_numbers = true)]
    backoff_limit: Option<i32>,
    /// Seconds that the job may run before it fails
    #[arg(long, value_name = "N", value_parser = parse_count, allow_negative_numbers = true)]
    active_deadline_seconds: Option<i32>,
    /// Seconds after which an ended job is deleted; without the flag it is kept
    #[arg(long, value_name = "N", value_parser = parse_count, allow_negative_numbers = true)]
    ttl_seconds_after_finished: Option<i32>,
    /// Create the job suspended; kubectl di resume starts it
    #[arg(long)]
    suspend: bool,
    /// Command of every container instead of the entry point of its image. The variables
    /// DI_REPLICA_INDEX and COORDINATOR_PORT, COLLECTOR_PORT or LEARNER_PORT identify the replica
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum CleanPodPolicyArg {
    #[value(name = "None")]
    None,
    #[value(name = "Running")]
    Running,
    #[value(name = "All")]
    All,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum ImagePullPolicyArg {
    #[value(name = "Always")]
    Always,
    #[value(name = "IfNotPresent")]
    IfNotPresent,
    #[value(name = "Never")]
    Never,
}

fn parse_pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("expected KEY=VALUE".to_owned()),
    }
}

impl JobFlags {
    /// Whether any of these flags is given.
    pub fn is_given(&self) -> bool {
        *self != Self::default()
    }

    /// The job that the flags describe; none if no flag is given.
    pub fn to_document(&self, resources: &ReplicaResources) -> Result<Option<Document>> {
        let Some(name) = &self.name else {
            ensure!(
                resources.is_empty() && !self.is_given(),
                "flags that replace a manifest need a NAME: kubectl di create NAME --image=IMAGE"
            );
            return Ok(None);
        };
        let Some(image) = &self.image else {
            bail!(
                "required flag(s) \"image\" not set; to read a manifest: kubectl di create -f {name}"
            );
        };
        if resources.gpus.is_some() && self.learners.is_none() {
            bail!("--gpus applies only to learners: add --learners=N");
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
                "resources are set for {role}s, but the job has none: add --{role}s=N"
            );
        }
        let resources_of = |cpus: &Option<Quantity>, memory: &Option<Quantity>| ReplicaResources {
            cpus: cpus.clone().or_else(|| resources.cpus.clone()),
            memory: memory.clone().or_else(|| resources.memory.clone()),
            gpus: None,
        };
        let outline = JobOptions {
            name: name.clone(),
            image: image.clone(),
            image_pull_policy: self.image_pull_policy.map(|policy| format!("{policy:?}")),
            command: self.command.clone(),
            collectors: self.collectors,
            learners: self.learners,
            coordinator_resources: resources_of(&self.coordinator_cpus, &self.coordinator_memory),
            collector_resources: resources_of(&self.collector_cpus, &self.collector_memory),
            learner_resources: ReplicaResources {
                gpus: resources.gpus.clone(),
                ..resources_of(&self.learner_cpus, &self.learner_memory)
            },
            node_selector: self.node_selector.clone(),
            env: self.env.clone(),
            labels: self.labels.clone(),
            annotations: self.annotations.clone(),
            group: self.group.clone(),
            priority_class: self.priority_class.clone(),
            clean_pod_policy: self.clean_pod_policy.map(|policy| match policy {
                CleanPodPolicyArg::None => CleanPodPolicy::None,
                CleanPodPolicyArg::Running => CleanPodPolicy::Running,
                CleanPodPolicyArg::All => CleanPodPolicy::All,
            }),
            service_account: self.service_account.clone(),
            backoff_limit: self.backoff_limit,
            active_deadline_seconds: self.active_deadline_seconds.map(i64::from),
            ttl_seconds_after_finished: self.ttl_seconds_after_finished,
            suspend: self.suspend,
        };
        Ok(Some(outline.to_document()))
    }
}
