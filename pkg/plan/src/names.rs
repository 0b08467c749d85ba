use di_api::{Role, names};
use rand::RngExt;

/// Where the random parts of names come from.
pub trait Suffixes {
    /// The next one, [`names::SUFFIX_LEN`] characters long.
    fn suffix(&mut self) -> String;
}

/// Suffixes drawn at random.
#[derive(Clone, Copy, Debug, Default)]
pub struct RandomSuffixes;

/// As in Kubernetes' own generated names: no vowels, so no words, and no characters that look alike.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

impl Suffixes for RandomSuffixes {
    fn suffix(&mut self) -> String {
        let mut rng = rand::rng();
        (0..names::SUFFIX_LEN)
            .map(|_| char::from(ALPHABET[rng.random_range(0..ALPHABET.len())]))
            .collect()
    }
}

/// A name that is not taken.
pub(crate) fn fresh(
    job: &str,
    role: Role,
    is_taken: impl Fn(&str) -> bool,
    suffixes: &mut dyn Suffixes,
) -> String {
    loop {
        let name = names::replica(job, role, &suffixes.suffix());
        if !is_taken(&name) {
            return name;
        }
    }
}
