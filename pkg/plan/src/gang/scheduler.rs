use std::{fmt, str::FromStr};

use di_api::{DIJob, PodTemplate, Role, names};

/// `schedulerName` of coscheduling in its own manifests.
const COSCHEDULING_NAME: &str = "scheduler-plugins-scheduler";

/// A scheduler that can place a gang.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GangScheduler {
    /// [Volcano](https://volcano.sh).
    Volcano,
    /// The coscheduling plugin of [scheduler-plugins](https://scheduler-plugins.sigs.k8s.io).
    Coscheduling {
        /// `schedulerName` of the scheduler that runs the plugin.
        scheduler_name: String,
    },
    /// [Apache YuniKorn](https://yunikorn.apache.org).
    Yunikorn,
    /// [KAI](https://github.com/kai-scheduler/KAI-Scheduler).
    Kai,
    /// The default scheduler of Kubernetes, from 1.37.
    Kubernetes,
}

/// API of the groups of a scheduler. Their kind is always PodGroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupKind {
    /// API group.
    pub group: &'static str,
    /// Version.
    pub version: &'static str,
}

impl GroupKind {
    /// The kind of every group.
    pub const KIND: &'static str = "PodGroup";
    /// The plural in URLs.
    pub const PLURAL: &'static str = "podgroups";

    /// `apiVersion` of the groups.
    pub fn api_version(self) -> String {
        format!("{}/{}", self.group, self.version)
    }
}

impl GangScheduler {
    /// `schedulerName` of the pods; `None` for the default scheduler.
    pub fn scheduler_name(&self) -> Option<&str> {
        match self {
            Self::Volcano => Some("volcano"),
            Self::Coscheduling { scheduler_name } => Some(scheduler_name),
            Self::Yunikorn => Some("yunikorn"),
            Self::Kai => Some("kai-scheduler"),
            Self::Kubernetes => None,
        }
    }

    /// API of the groups; `None` if the pods alone describe the gang.
    pub fn group_kind(&self) -> Option<GroupKind> {
        let (group, version) = match self {
            Self::Volcano => ("scheduling.volcano.sh", "v1beta1"),
            Self::Coscheduling { .. } => ("scheduling.x-k8s.io", "v1alpha1"),
            Self::Yunikorn => return None,
            Self::Kai => ("scheduling.run.ai", "v2alpha2"),
            Self::Kubernetes => ("scheduling.k8s.io", "v1beta1"),
        };
        Some(GroupKind { group, version })
    }
}

impl FromStr for GangScheduler {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let coscheduling = |name: &str| Self::Coscheduling {
            scheduler_name: name.to_owned(),
        };
        match text {
            "volcano" => Ok(Self::Volcano),
            "coscheduling" => Ok(coscheduling(COSCHEDULING_NAME)),
            "yunikorn" => Ok(Self::Yunikorn),
            "kai" => Ok(Self::Kai),
            "kubernetes" => Ok(Self::Kubernetes),
            _ => match text.strip_prefix("coscheduling:") {
                Some(name) if !name.is_empty() => Ok(coscheduling(name)),
                _ => Err(format!(
                    "unknown gang scheduler {text:?}; supported values: volcano, coscheduling, coscheduling:NAME, yunikorn, kai, kubernetes"
                )),
            },
        }
    }
}

impl fmt::Display for GangScheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Volcano => f.write_str("volcano"),
            Self::Coscheduling { scheduler_name } if scheduler_name == COSCHEDULING_NAME => {
                f.write_str("coscheduling")
            }
            Self::Coscheduling { scheduler_name } => write!(f, "coscheduling:{scheduler_name}"),
            Self::Yunikorn => f.write_str("yunikorn"),
            Self::Kai => f.write_str("kai"),
            Self::Kubernetes => f.write_str("kubernetes"),
        }
    }
}

/// Why the gang that a job asks for cannot be placed. `None` if it can, or the job asks for none. A
/// job that has a gang already keeps it, so the message is about new pods.
///
/// `aggregator` is the template of aggregators, if it is known and the job has aggregators.
pub fn gang_problem(
    job: &DIJob,
    scheduler: Option<&GangScheduler>,
    aggregator: Option<&PodTemplate>,
) -> Option<String> {
    let scheduling = job.spec.scheduling.as_ref()?;
    scheduling.gang.as_ref()?;
    let Some(scheduler) = scheduler else {
        return Some(
            "spec.scheduling.gang does not apply to new pods: the orchestrator runs without --gang-scheduler"
                .to_owned(),
        );
    };
    if *scheduler == GangScheduler::Kai && scheduling.queue.is_empty() {
        return Some(
            "spec.scheduling.gang does not apply to new pods: KAI needs a queue; set spec.scheduling.queue"
                .to_owned(),
        );
    }
    let needed = scheduler.scheduler_name().unwrap_or("default-scheduler");
    let templates = Role::DECLARED.into_iter().flat_map(|role| {
        let declared = job
            .spec
            .declared(role)
            .map(|part| (part.template, "template"));
        let unit = job.spec.unit(role);
        let leader = unit.and_then(|unit| unit.leader_template.as_ref());
        let leader = leader.map(|template| (template, "unit.leaderTemplate"));
        let all = declared.into_iter().chain(leader);
        all.map(move |(template, field)| (role, template, field))
    });
    let aggregator = aggregator.map(|template| (Role::Aggregator, template, "template"));
    templates.chain(aggregator).find_map(|(role, template, field)| {
        let own = template.part("spec")["schedulerName"].as_str()?;
        (!own.is_empty() && own != needed).then(|| {
            let object = match role {
                Role::Aggregator => format!(" of AggregatorConfig {}", names::AGGREGATOR_CONFIG),
                _ => String::new(),
            };
            format!(
                "spec.scheduling.gang does not apply to new pods: spec.{role}.{field}.spec.schedulerName{object} is {own}, and the gang scheduler is {needed}"
            )
        })
    })
}
