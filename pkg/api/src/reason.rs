use std::fmt;

macro_rules! reasons {
    ($($(#[doc = $meaning:literal])+ $name:ident,)+) => {
        /// Why a condition is as it is, an event came, or a reconcile failed: all words that the orchestrator uses, and those of kubelets and
        /// the scheduler that it passes on.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason {
            $($(#[doc = $meaning])+ $name,)+
        }

        impl Reason {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// As it is written.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                }
            }
        }
    };
}

reasons! {
    /// The coordinator was made.
    CoordinatorCreated,
    /// The coordinator runs.
    CoordinatorRunning,
    /// The coordinator does not run yet.
    CoordinatorPending,
    /// The coordinator failed, or a restart was asked for, and it is started again: the event.
    CoordinatorRestarted,
    /// The same, as long as it takes: the condition.
    CoordinatorRestarting,
    /// Somebody else deleted the coordinator while it ran.
    CoordinatorDeleted,
    /// The coordinator's node does not answer.
    NodeLost,
    /// The coordinator ended with exit code 0.
    CoordinatorSucceeded,
    /// The coordinator failed for good.
    CoordinatorFailed,
    /// The job ran longer than it may.
    DeadlineExceeded,
    /// The job could not be run as it is written.
    InvalidSpec,
    /// The job is held.
    Suspended,
    /// The job is not held any more.
    Resumed,
    /// Every planned replica is ready.
    AllReady,
    /// Not every planned replica is ready, and nothing is known to be wrong.
    NotReady,
    /// The job has ended, and nobody remembers how.
    Ended,
    /// Pods were made.
    SuccessfulCreate,
    /// Pods were deleted.
    SuccessfulDelete,
    /// Another takes the place of a replica.
    ReplicaReplaced,
    /// Pods of the job that nobody had planned were taken into the plan.
    ReplicaAdopted,
    /// There is no `AggregatorConfig` for a learner of several GPUs.
    MissingAggregatorConfig,
    /// There is one that makes no pod.
    InvalidAggregatorConfig,
    /// The namespace's quota has no room.
    QuotaExceeded,
    /// An admission plugin or a missing right.
    Forbidden,
    /// The object cannot be.
    Invalid,
    /// Somebody else's object has the name that is needed.
    NameConflict,
    /// What an earlier job left has the name that is needed, and is about to go.
    PreviousJobTerminating,
    /// Another wrote first.
    Conflict,
    /// The API server did not answer in time.
    Timeout,
    /// The API server refused for another reason, or could not be reached.
    ApiError,
    /// A cache is not fed any more.
    WatchEnded,
    /// Another process leads.
    LeaseLost,
    /// The scheduler finds no node.
    Unschedulable,
    /// A container ends again and again.
    CrashLoopBackOff,
    /// What a container is configured by is missing.
    CreateContainerConfigError,
    /// A container could not be made.
    CreateContainerError,
    /// An image is not on the node, and must not be pulled.
    ErrImageNeverPull,
    /// An image could not be pulled.
    ErrImagePull,
    /// An image could not be pulled again and again.
    ImagePullBackOff,
    /// What is known of an image could not be read.
    ImageInspectError,
    /// An image's name is none.
    InvalidImageName,
    /// An image's registry does not answer.
    RegistryUnavailable,
    /// An image is not signed as it must be.
    SignatureValidationFailed,
    /// A container was made and could not be started.
    RunContainerError,
    /// What a container is to do once it has started failed.
    PostStartHookError,
}

impl Reason {
    /// Why the API server refuses an object, as the condition `ReplicasReady` tells.
    pub const REFUSALS: [Self; 3] = [Self::QuotaExceeded, Self::Forbidden, Self::Invalid];
    /// Why a kubelet says that a container waits, where it does not come by itself.
    pub const STUCK: [Self; 12] = [
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

    /// The one of these that is written so.
    pub fn among(reasons: &[Self], word: &str) -> Option<Self> {
        reasons
            .iter()
            .copied()
            .find(|reason| reason.as_str() == word)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
