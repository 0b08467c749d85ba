use di_api::{Role, names};
use di_client::PodChoice;

/// Parses the name of a job, with or without its kind, as printed by `-o name`.
pub fn parse_job_name(text: &str) -> Result<String, String> {
    match strip_kind_prefix(text).split_once('/') {
        Some(_) => Err("expected NAME or dijob/NAME".to_owned()),
        None if strip_kind_prefix(text).is_empty() => Err("a name must not be empty".to_owned()),
        None => Ok(strip_kind_prefix(text).to_owned()),
    }
}

/// Parses the name of a replica, with or without its kind, as printed by `-o name`.
pub fn parse_replica_name(text: &str) -> Result<String, String> {
    match strip_pod_prefix(text) {
        "" => Err("a name must not be empty".to_owned()),
        name => Ok(name.to_owned()),
    }
}

fn strip_pod_prefix(text: &str) -> &str {
    let kinds = ["pod/", "pods/"];
    let name = kinds.iter().find_map(|kind| text.strip_prefix(kind));
    name.unwrap_or(text)
}

/// A job or one of its replicas: `cartpole`, or `cartpole/collector-x7k2p`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobAndReplica {
    /// The name of the job.
    pub job: String,
    /// The name of the replica, with or without the name of the job as prefix.
    pub replica: Option<String>,
}

impl std::str::FromStr for JobAndReplica {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (job, replica) = match strip_kind_prefix(text).split_once('/') {
            Some((job, replica)) => (job, Some(strip_pod_prefix(replica).to_owned())),
            None => (strip_kind_prefix(text), None),
        };
        if job.is_empty()
            || replica
                .as_ref()
                .is_some_and(|r| r.is_empty() || r.contains('/'))
        {
            return Err("expected NAME or NAME/REPLICA".to_owned());
        }
        Ok(Self {
            job: job.to_owned(),
            replica,
        })
    }
}

impl JobAndReplica {
    /// The selected replica; the coordinator by default.
    pub fn to_choice(&self, role: Option<Role>, index: Option<i32>) -> PodChoice {
        match (&self.replica, role) {
            (Some(name), _) => PodChoice::Named(name.clone()),
            (None, role) => PodChoice::Role(role.unwrap_or(Role::Coordinator), index),
        }
    }
}

/// Whether a word is the kind of jobs, as in `kubectl get dijobs`.
pub fn is_dijob_kind(text: &str) -> bool {
    let kind = text
        .strip_suffix(names::GROUP)
        .and_then(|kind| kind.strip_suffix('.'));
    matches!(kind.unwrap_or(text), "dijob" | "dijobs")
}

/// Removes `dijob/` or a similar prefix.
pub fn strip_kind_prefix(text: &str) -> &str {
    match text.split_once('/') {
        Some((kind, name)) if is_dijob_kind(kind) => name,
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_and_replica_are_parsed_with_and_without_kind() {
        let parse = |text: &str| {
            let parsed: JobAndReplica = text.parse()?;
            Ok::<_, String>((parsed.job, parsed.replica.unwrap_or_default()))
        };
        let pair = |a: &str, b: &str| Ok((a.to_owned(), b.to_owned()));
        assert_eq!(parse("j"), pair("j", ""));
        assert_eq!(parse("j/collector-abcde"), pair("j", "collector-abcde"));
        assert_eq!(parse("dijob/j"), pair("j", ""));
        assert_eq!(parse("dijob.diengine.opendilab.org/j/x"), pair("j", "x"));
        assert_eq!(parse("j/pod/j-collector-x"), pair("j", "j-collector-x"));
        assert_eq!(parse("dijob/j/pods/x"), pair("j", "x"));
        assert!(parse("j/pod/").is_err());
        assert_eq!(
            parse_replica_name("pod/j-collector-x"),
            Ok("j-collector-x".to_owned())
        );
        assert!(parse_replica_name("pod/").is_err());
        assert_eq!(parse("j/"), Err("expected NAME or NAME/REPLICA".to_owned()));
        assert_eq!(parse_job_name("dijobs/j"), Ok("j".to_owned()));
        assert_eq!(
            parse_job_name("pod/j"),
            Err("expected NAME or dijob/NAME".to_owned())
        );
        assert!(parse_job_name("dijob/").is_err());
    }
}
