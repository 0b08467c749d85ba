use di_api::{Role, names};
use di_client::Choice;

/// A job's name; its kind may stand before it, as in what `-o name` prints.
pub fn job_name(text: &str) -> Result<String, String> {
    match without_kind(text).split_once('/') {
        Some(_) => Err("expected NAME or dijob/NAME".to_owned()),
        None if without_kind(text).is_empty() => Err("a name must not be empty".to_owned()),
        None => Ok(without_kind(text).to_owned()),
    }
}

/// A replica's name; its kind may stand before it, as in what `-o name` prints.
pub fn replica_name(text: &str) -> Result<String, String> {
    match without_pod(text) {
        "" => Err("a name must not be empty".to_owned()),
        name => Ok(name.to_owned()),
    }
}

fn without_pod(text: &str) -> &str {
    let kinds = ["pod/", "pods/"];
    let name = kinds.iter().find_map(|kind| text.strip_prefix(kind));
    name.unwrap_or(text)
}

/// A job, and perhaps one of its replicas: `cartpole`, or `cartpole/collector-x7k2p`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobAndReplica {
    /// The job's name.
    pub job: String,
    /// The replica's, whole or without the job's.
    pub replica: Option<String>,
}

impl std::str::FromStr for JobAndReplica {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (job, replica) = match without_kind(text).split_once('/') {
            Some((job, replica)) => (job, Some(without_pod(replica).to_owned())),
            None => (without_kind(text), None),
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
    /// Which replica is meant; the coordinator unless told otherwise.
    pub fn choice(&self, role: Option<Role>, index: Option<i32>) -> Choice {
        match (&self.replica, role) {
            (Some(name), _) => Choice::Named(name.clone()),
            (None, role) => Choice::Role(role.unwrap_or(Role::Coordinator), index),
        }
    }
}

/// Whether a word says that jobs are meant, as in `kubectl get dijobs`.
pub fn is_kind(text: &str) -> bool {
    let kind = text
        .strip_suffix(names::GROUP)
        .and_then(|kind| kind.strip_suffix('.'));
    matches!(kind.unwrap_or(text), "dijob" | "dijobs")
}

/// What stands behind the kind of jobs, if that is there.
pub fn without_kind(text: &str) -> &str {
    match text.split_once('/') {
        Some((kind, name)) if is_kind(kind) => name,
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_and_replicas_are_told_apart() {
        let read = |text: &str| {
            let read: JobAndReplica = text.parse()?;
            Ok::<_, String>((read.job, read.replica.unwrap_or_default()))
        };
        let pair = |a: &str, b: &str| Ok((a.to_owned(), b.to_owned()));
        assert_eq!(read("j"), pair("j", ""));
        assert_eq!(read("j/collector-abcde"), pair("j", "collector-abcde"));
        assert_eq!(read("dijob/j"), pair("j", ""));
        assert_eq!(read("dijob.diengine.opendilab.org/j/x"), pair("j", "x"));
        assert_eq!(read("j/pod/j-collector-x"), pair("j", "j-collector-x"));
        assert_eq!(read("dijob/j/pods/x"), pair("j", "x"));
        assert!(read("j/pod/").is_err());
        assert_eq!(
            replica_name("pod/j-collector-x"),
            Ok("j-collector-x".to_owned())
        );
        assert!(replica_name("pod/").is_err());
        assert_eq!(read("j/"), Err("expected NAME or NAME/REPLICA".to_owned()));
        assert_eq!(job_name("dijobs/j"), Ok("j".to_owned()));
        assert_eq!(
            job_name("pod/j"),
            Err("expected NAME or dijob/NAME".to_owned())
        );
        assert!(job_name("dijob/").is_err());
    }
}
