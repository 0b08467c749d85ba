//! The address of a replica.

use crate::{Error, Result};

/// A replica URL of the endpoint: `<pod>.<namespace>:<port>`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    /// Pod name; identifies the replica.
    pub pod: String,
    /// The whole URL.
    pub url: String,
}

impl Address {
    /// Parses a URL as DI-engine does: the pod name ends at the last dot of the host.
    pub fn parse(url: &str) -> Result<Self> {
        let parts = url.split_once(':').and_then(|(host, port)| {
            let (pod, namespace) = host.rsplit_once('.')?;
            (!pod.is_empty() && !namespace.is_empty() && port.parse::<u16>().is_ok()).then_some(pod)
        });
        let pod = parts.ok_or_else(|| Error::BadReplicaUrl(url.to_owned()))?;
        Ok(Self {
            pod: pod.to_owned(),
            url: url.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pod_name_ends_at_last_dot_of_host() {
        assert_eq!(
            Address::parse("pole-collector-x7k2p.rl:22270").unwrap().pod,
            "pole-collector-x7k2p"
        );
        assert_eq!(
            Address::parse("my.job-collector-abcde.rl:1").unwrap().pod,
            "my.job-collector-abcde"
        );
    }

    #[test]
    fn malformed_urls_are_rejected() {
        for url in [
            "",
            "pod:1",
            "pod.ns",
            "http://pod.ns:1",
            "pod.ns:port",
            ".ns:1",
            "pod.:1",
            "pod.ns:1:2",
        ] {
            assert!(Address::parse(url).is_err(), "{url} was accepted");
        }
    }
}
