use std::time::Duration;

/// Limits of the connections of a server. The defaults are the limits of the webhooks.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of connections. Further ones wait.
    pub connections: usize,
    /// Maximum number of connections of one address. Further ones are closed. All API servers of a
    /// cluster can have the same address.
    pub per_address: usize,
    /// Time limit of a client for the TLS handshake, the first byte after it, and the response to
    /// a ping.
    pub handshake_timeout: Duration,
    /// Time limit of a client for the next request head on an HTTP/1 connection.
    ///
    /// API servers close idle connections after 90 s. A server that does so earlier breaks the
    /// requests that are sent at that moment, and Go does not repeat a POST.
    pub head_timeout: Duration,
    /// Maximum age of a connection, so that the load is balanced again after a rollout. It also
    /// ends connections of clients that do not read responses.
    pub max_age: Duration,
    /// Time for the running requests of a connection that is too old.
    pub close_timeout: Duration,
    /// Time for all running requests after the server has stopped.
    pub drain_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            per_address: 64,
            handshake_timeout: Duration::from_secs(10),
            head_timeout: Duration::from_secs(120),
            max_age: Duration::from_secs(600),
            close_timeout: Duration::from_secs(10),
            drain_timeout: Duration::from_secs(10),
        }
    }
}
