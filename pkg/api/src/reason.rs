use std::fmt;

macro_rules! reasons {
    ($($(#[doc = $meaning:literal])+ $name:ident,)+) => {
        /// The reasons of conditions, events and failed reconciles: those of the orchestrator, and
        /// those of kubelets and the scheduler that it passes on.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason {
            $($(#[doc = $meaning])+ $name,)+
        }

        impl Reason {
            /// All reasons.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// The reason as it appears in conditions, events and metrics.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                }
            }
        }
    };
}

reasons! {
    /// The orchestrator created the coordinator pod.
    CoordinatorCreated,
    /// The coordinator is running.
    CoordinatorRunning,
    /// The coordinator pod exists but is not running yet.
    CoordinatorPending,
    /// Event: the coordinator is restarted, because it failed or a user requested a restart.
    CoordinatorRestarted,
    /// Condition: the restart of the coordinator is in progress.
    CoordinatorRestarting,
    /// Another client deleted the running coordinator pod.
    CoordinatorDeleted,
    /// The node of the coordinator does not respond.
    NodeLost,
    /// The coordinator exited with code 0.
    CoordinatorSucceeded,
    /// The coordinator failed and is not restarted.
    CoordinatorFailed,
    /// A failure rule has failed the job.
    FailureRule,
    /// The job ran longer than `spec.activeDeadlineSeconds`.
    DeadlineExceeded,
    /// The spec of the job is invalid.
    InvalidSpec,
    /// The job is suspended.
    Suspended,
    /// The job is no longer suspended.
    Resumed,
    /// Kueue has not admitted the job, or a replica with quota of its own, yet.
    QueueWaiting,
    /// Kueue preempted the job, which waits for quota again.
    QueuePreempted,
    /// Kueue stopped the job for another reason, and it waits for quota again.
    QueueEvicted,
    /// An administrator has deactivated the Workload of the job.
    QueueDeactivated,
    /// The job has the label of a queue, and the cluster does not serve the API of Kueue.
    QueueNotServed,
    /// The orchestrator lacks permissions for Workloads of Kueue.
    QueueForbidden,
    /// The job has more pod sets than a Workload of this version of Kueue may have.
    QueueTooManyShapes,
    /// What Kueue adds to the pods contradicts their template.
    FlavorConflict,
    /// Kueue has admitted the job.
    QueueAdmitted,
    /// Event: a replica has got quota of its own.
    ReplicaAdmitted,
    /// No scheduler can place the gang that the job asks for now. A gang that exists is kept, else
    /// the job runs without one.
    NoGangScheduler,
    /// The orchestrator lacks permissions for the groups of the gang scheduler.
    GangForbidden,
    /// A group of another owner has the name of the job's group.
    GangNameTaken,
    /// Pods of the gang have no node yet.
    GangWaiting,
    /// The coordinator and every planned replica are ready.
    AllReady,
    /// The coordinator or some planned replicas are not ready, and no error is known.
    NotReady,
    /// The job has ended, and the cause is not recorded.
    Ended,
    /// The orchestrator created pods.
    SuccessfulCreate,
    /// The orchestrator deleted pods.
    SuccessfulDelete,
    /// A new replica replaces a lost one.
    ReplicaReplaced,
    /// Pods of the job without a plan entry were adopted into the plan.
    ReplicaAdopted,
    /// A learner with several GPUs needs an `AggregatorConfig`, and none exists.
    MissingAggregatorConfig,
    /// The `AggregatorConfig` is invalid.
    InvalidAggregatorConfig,
    /// The API server rejected an object because it exceeds the namespace's resource quota.
    QuotaExceeded,
    /// The API server rejected a request: an admission plugin denied it, or a permission is
    /// missing.
    Forbidden,
    /// The API server rejected an object as invalid.
    Invalid,
    /// An object that does not belong to the job has a name that the job needs.
    NameConflict,
    /// A pod or service of a deleted job of the same name is still terminating.
    PreviousJobTerminating,
    /// A deleted pod still exists because of finalizers, and the job needs its name.
    FinalizersRemain,
    /// Another client changed the object first; the write is retried.
    Conflict,
    /// The API server did not respond in time.
    Timeout,
    /// The API server rejected a request for another reason, or is unreachable.
    ApiError,
    /// A watch ended, so its cache is no longer updated.
    WatchEnded,
    /// Another process took the leader election lease.
    LeaseLost,
    /// The scheduler finds no node for the pod.
    Unschedulable,
    /// A container exits repeatedly, and the kubelet delays its restart.
    CrashLoopBackOff,
    /// A ConfigMap, Secret or key that the container needs does not exist.
    CreateContainerConfigError,
    /// The kubelet could not create the container.
    CreateContainerError,
    /// The image is not on the node, and its pull policy is Never.
    ErrImageNeverPull,
    /// The kubelet could not pull the image.
    ErrImagePull,
    /// The kubelet repeatedly could not pull the image, and delays the next attempt.
    ImagePullBackOff,
    /// The kubelet could not inspect the image.
    ImageInspectError,
    /// The image reference is malformed.
    InvalidImageName,
    /// The image registry is unreachable.
    RegistryUnavailable,
    /// The signature of the image is invalid.
    SignatureValidationFailed,
    /// The container was created but could not be started.
    RunContainerError,
    /// The `postStart` hook of the container failed.
    PostStartHookError,
}

impl Reason {
    /// Why the API server rejects a pod; the condition `ReplicasReady` shows these.
    pub const REJECTIONS: [Self; 3] = [Self::QuotaExceeded, Self::Forbidden, Self::Invalid];
    /// Waiting reasons of a container that rarely starts without a change by the user.
    pub const STUCK_CONTAINER: [Self; 12] = [
        Self::CrashLoopBackOff,
        Self::CreateContainerConfigError,
        Self::CreateContainerError,
        Self::ErrImageNeverPull,
        Self::ErrImagePull,
        Self::ImagePullBackOff,
        Self::ImageInspectError,
        Self::InvalidImageName,
        Self::RegistryUnavailable,
        Self::SignatureValidationFailed,
        Self::RunContainerError,
        Self::PostStartHookError,
    ];

    /// Returns the reason in `reasons` whose string is `text`.
    pub fn find_in(reasons: &[Self], text: &str) -> Option<Self> {
        reasons
            .iter()
            .copied()
            .find(|reason| reason.as_str() == text)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
