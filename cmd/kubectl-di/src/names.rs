use di_api::{Role, names};
use di_client::Choice;

/// A job's name; its kind may stand before it, as in what `-o name` prints.
pub fn job_name(text: &str) -> Result<String, String> {
    let name = without_kind(text);
    if name.contains('/') {
        return Err("expected the name of a job".to_owned());
    }
    Ok(name.to_owned())
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
            Some((job, replica)) => (job, Some(replica.to_owned())),
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

fn without_kind(text: &str) -> &str {
    let kinds =
        ["dijob", "dijobs"].map(|kind| (kind.to_owned(), format!("{kind}.{}", names::GROUP)));
    let kinds = kinds.iter().flat_map(|(short, long)| [short, long]);
    let mut stripped = kinds.filter_map(|kind| text.strip_prefix(kind.as_str())?.strip_prefix('/'));
    stripped.next().unwrap_or(text)
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
        assert_eq!(read("j/"), Err("expected NAME or NAME/REPLICA".to_owned()));
        assert_eq!(job_name("dijobs/j"), Ok("j".to_owned()));
        assert!(job_name("pod/j").is_err());
    }
}
