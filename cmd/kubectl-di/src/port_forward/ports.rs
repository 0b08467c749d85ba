use std::str::FromStr;

/// A port here, and the replica's port that it leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// Here; 0 means any that is free.
    pub local: u16,
    /// In the pod.
    pub remote: u16,
}

impl FromStr for Ports {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (local, remote) = match text.split_once(':') {
            Some(("", remote)) => ("0", remote),
            Some(pair) => pair,
            None => (text, text),
        };
        let local = local
            .parse()
            .map_err(|_| format!("error parsing local port {local:?}: expected 0 to 65535"))?;
        let remote = remote.parse().ok().filter(|port| *port > 0);
        let remote = remote.ok_or("remote port must be 1 to 65535")?;
        Ok(Self { local, remote })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_written_as_for_kubectl() {
        let read = |text: &str| {
            text.parse::<Ports>()
                .map(|ports| (ports.local, ports.remote))
        };
        assert_eq!(read("5000"), Ok((5000, 5000)));
        assert_eq!(read("8888:5000"), Ok((8888, 5000)));
        assert_eq!(read(":5000"), Ok((0, 5000)));
        assert_eq!(read("0:5000"), Ok((0, 5000)));
        for wrong in ["x:1", "1:0", "1:2:3", "70000", ""] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
