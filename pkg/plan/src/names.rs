use di_api::{Role, names};
use rand::RngExt;

/// A source of the random suffixes of replica names.
pub trait Suffixes {
    /// The next suffix of [`names::SUFFIX_LEN`] characters.
    fn next_suffix(&mut self) -> String;
}

/// Random suffixes.
#[derive(Clone, Copy, Debug, Default)]
pub struct RandomSuffixes;

/// The alphabet of Kubernetes' generated names: no vowels, which could form words, and no
/// characters that are easily confused.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

impl Suffixes for RandomSuffixes {
    fn next_suffix(&mut self) -> String {
        let mut rng = rand::rng();
        (0..names::SUFFIX_LEN)
            .map(|_| char::from(ALPHABET[rng.random_range(0..ALPHABET.len())]))
            .collect()
    }
}

/// A random name that is not in use.
pub(crate) fn unused_name(
    job: &str,
    role: Role,
    is_taken: impl Fn(&str) -> bool,
    suffixes: &mut dyn Suffixes,
) -> String {
    loop {
        let name = names::replica_name(job, role, &suffixes.next_suffix());
        if !is_taken(&name) {
            return name;
        }
    }
}

/// Length of the longest suffix after [`job_object_name`]: a role and an index.
const MAX_SUFFIX_LEN: usize = "-aggregator-1999".len();
const UID_LEN: usize = 5;

/// Name of the only object of its kind that a job has: the Workload of the coordinator and the
/// declared replicas, or the group of a gang. A new job of the same name has another one.
pub fn job_object_name(job: &str, uid: &str) -> String {
    let prefix = "dijob-";
    // Other names of the job's objects end with a suffix too, so a job name is never this long.
    let max_len = names::MAX_POD_NAME_LEN - MAX_SUFFIX_LEN - prefix.len() - UID_LEN - 1;
    let job = job.get(..max_len).unwrap_or(job);
    let job = job.trim_end_matches(['-', '.']);
    let uid: String = uid
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .take(UID_LEN)
        .collect();
    format!("{prefix}{job}-{uid}")
}
