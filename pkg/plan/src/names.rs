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
