/// An error that stops the endpoint.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The address cannot be bound.
    #[error("the replica endpoint cannot listen on {address}")]
    Listen {
        /// The address.
        address: std::net::SocketAddr,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// A watch ended. Watches normally run until the process exits.
    #[error("the watch of jobs or pods of the replica endpoint ended unexpectedly")]
    WatchEnded,
    /// A limit is 0.
    #[error("the limit of {0} is 0, so no request could be served: set it to 1 or more")]
    LimitIsZero(&'static str),
    /// The waits of a request leave no time to serve it.
    #[error(
        "the waits of a request (cache sync, kubelet, scheduler) are {waits:?} in total, but its timeout is {request:?}: shorten the waits or raise the timeout"
    )]
    WaitsExceedTimeout {
        /// Sum of the waits.
        waits: std::time::Duration,
        /// Timeout of a request.
        request: std::time::Duration,
    },
}
