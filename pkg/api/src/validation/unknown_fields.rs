use super::{
    fault::{Fault, FaultKind},
    path::Path,
};

/// Fields of every object of the two kinds.
const ROOT_FIELDS: [&str; 5] = ["apiVersion", "kind", "metadata", "spec", "status"];
/// Minimum similarity of two names, from 0 to 1, for a "did you mean" hint.
const MIN_SIMILARITY: f64 = 0.88;

/// Returns the fault of a field that is not among the known `fields` of its parent.
///
/// Fields of `status` and `metadata` are ignored: the API server prunes or validates them. The
/// value is not shown, because it may be a secret, such as that of an environment variable.
pub(super) fn unknown_field_fault(path: &Path<'_>, fields: &[&str]) -> Option<Fault> {
    let name = path.name();
    let (fields, is_known) = match path.parent() {
        None => (&ROOT_FIELDS[..], ROOT_FIELDS.contains(&name)),
        Some(_) => (fields, ["metadata", "status"].contains(&path.root())),
    };
    if is_known {
        return None;
    }
    let hint = most_similar(name, fields).map(|known| format!(", did you mean {known}?"));
    let hint = hint.unwrap_or_default();
    Some(Fault {
        kind: FaultKind::Invalid,
        field: path.into(),
        detail: format!("Invalid value: unknown field{hint}"),
    })
}

/// Returns the known name that is most similar to `name`, if any is similar enough.
pub fn most_similar<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let normalize = |name: &str| name.replace(['_', '-'], "").to_lowercase();
    let normalized = normalize(name);
    known
        .iter()
        .map(|known| {
            let similarity = strsim::jaro_winkler(&normalized, &normalize(known));
            (similarity, *known)
        })
        .filter(|(similarity, _)| *similarity >= MIN_SIMILARITY)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, known)| known)
}
