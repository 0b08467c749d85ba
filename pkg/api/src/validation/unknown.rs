use super::{Fault, FaultKind, Path};

/// Fields of every object of ours.
const TOP: [&str; 5] = ["apiVersion", "kind", "metadata", "spec", "status"];
/// How alike two names must be, of 1, for one to be taken for the other.
const ALIKE: f64 = 0.88;

/// What is wrong with a field that stands where only `fields` are known. Status and metadata are the API server's.
///
/// Its value is not shown: nobody knows what it would be, and that of a variable is a secret.
pub(super) fn fault(path: &Path<'_>, fields: &[&str]) -> Option<Fault> {
    let name = path.name();
    let (fields, is_known) = match path.parent() {
        None => (&TOP[..], TOP.contains(&name)),
        Some(_) => (fields, ["metadata", "status"].contains(&path.root())),
    };
    if is_known {
        return None;
    }
    let meant = nearest(name, fields).map(|nearest| format!(", did you mean {nearest}?"));
    let meant = meant.unwrap_or_default();
    Some(Fault {
        kind: FaultKind::Invalid,
        field: path.into(),
        detail: format!("Invalid value: unknown field{meant}"),
    })
}

/// The known name that `name` was meant to be, if any is near.
fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let plain = |name: &str| name.replace(['_', '-'], "").to_lowercase();
    let written = plain(name);
    known
        .iter()
        .map(|known| (strsim::jaro_winkler(&written, &plain(known)), *known))
        .filter(|(likeness, _)| *likeness >= ALIKE)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, known)| known)
}
