use std::{fmt, str::FromStr};

/// A local port and the port of the replica that it is forwarded to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ports {
    /// The local port; 0 means a random one, none the same as the remote port.
    pub local: Option<u16>,
    /// The port of the pod.
    pub remote: Port,
}

/// A port of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Port {
    /// A port number.
    Number(u16),
    /// The name of a container port.
    Named(String),
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Named(name) => name.fmt(f),
        }
    }
}

impl FromStr for Ports {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (local, remote) = match text.split_once(':') {
            Some(("", remote)) => (Some("0"), remote),
            Some((local, remote)) => (Some(local), remote),
            None => (None, text),
        };
        let local = local.map(|local| {
            let message = |_| format!("error parsing local port {local:?}: expected 0 to 65535");
            local.parse().map_err(message)
        });
        Ok(Self {
            local: local.transpose()?,
            remote: remote.parse()?,
        })
    }
}

impl FromStr for Port {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // A port name has at least one letter.
        let is_name = text.bytes().any(|byte| byte.is_ascii_lowercase())
            && text
                .bytes()
                .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'));
        if is_name {
            return Ok(Self::Named(text.to_owned()));
        }
        let number = text.parse().ok().filter(|port| *port > 0);
        number
            .map(Self::Number)
            .ok_or_else(|| "remote port must be 1 to 65535 or a port name".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_parsed_like_in_kubectl() {
        let parse = |text: &str| {
            text.parse::<Ports>()
                .map(|ports| (ports.local, ports.remote))
        };
        let number = |local, remote| Ok((local, Port::Number(remote)));
        let named = |local| Ok((local, Port::Named("di-port".to_owned())));
        assert_eq!(parse("5000"), number(None, 5000));
        assert_eq!(parse("8888:5000"), number(Some(8888), 5000));
        assert_eq!(parse(":5000"), number(Some(0), 5000));
        assert_eq!(parse("0:5000"), number(Some(0), 5000));
        assert_eq!(parse("8888:di-port"), named(Some(8888)));
        assert_eq!(parse(":di-port"), named(Some(0)));
        assert_eq!(parse("di-port"), named(None));
        for wrong in [
            "x:1",
            "1:0",
            "1:2:3",
            "70000",
            "",
            "1:",
            "1:Di_port",
            "1:a:b",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
