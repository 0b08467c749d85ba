use di_api::validation::{most_similar, truncate_text};
use serde_json::{Map, Value};

/// Fields of a body.
const BODY_FIELDS: [&str; 4] = ["namespace", "coordinator", "collectors", "learners"];
/// Fields of the replicas of one role. A removal ignores the resources.
const ROLE_FIELDS: [&str; 6] = ["replicas", "cpus", "cpu", "gpus", "gpu", "memory"];

/// Maximum number of fields that a message names.
const MAX_NAMED_FIELDS: usize = 5;
/// Maximum length of a named field.
const MAX_FIELD_BYTES: usize = 64;

/// Describes the fields of a body that the endpoint does not know, each with the most similar known
/// one. `None` if it knows all.
pub(super) fn describe_unknown_fields(body: &Map<String, Value>) -> Option<String> {
    let roles = ["collectors", "learners"].into_iter();
    let roles = roles.filter_map(|role| Some((format!("{role}."), body.get(role)?.as_object()?)));
    let mut unknown: Vec<String> = describe_unknown(body, "", &BODY_FIELDS).collect();
    unknown.extend(roles.flat_map(|(prefix, role)| {
        describe_unknown(role, &prefix, &ROLE_FIELDS).collect::<Vec<_>>()
    }));
    let more = unknown.len().saturating_sub(MAX_NAMED_FIELDS);
    unknown.truncate(MAX_NAMED_FIELDS);
    match (unknown.is_empty(), more) {
        (true, _) => None,
        (false, 0) => Some(unknown.join("; ")),
        (false, more) => Some(format!("{}; and {more} more", unknown.join("; "))),
    }
}

fn describe_unknown<'a>(
    object: &'a Map<String, Value>,
    prefix: &'a str,
    known: &'a [&str],
) -> impl Iterator<Item = String> + 'a {
    let unknown = object.keys().filter(|name| !known.contains(&name.as_str()));
    unknown.map(move |name| {
        let hint = most_similar(name, known);
        let hint = hint.map_or_else(String::new, |known| format!(", did you mean {known}?"));
        let name = truncate_text(name, MAX_FIELD_BYTES);
        format!("unknown field {prefix}{name}{hint}")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unknown_fields_are_described_with_nearest_name() {
        let describe = |body: Value| describe_unknown_fields(body.as_object().unwrap());
        for (body, expected) in [
            (
                json!({"namespace": "a", "coordinator": "b", "collectors": {"replicas": 1, "cpu": 1}, "learners": null}),
                None,
            ),
            (
                json!({"collector": {"replicas": 1}}),
                Some("unknown field collector, did you mean collectors?"),
            ),
            (
                json!({"learners": {"replica": 1}, "x": 1}),
                Some("unknown field x; unknown field learners.replica, did you mean replicas?"),
            ),
            (json!({"collectors": ["a pod"]}), None),
        ] {
            assert_eq!(describe(body.clone()).as_deref(), expected, "{body}");
        }
        let many: Map<_, _> = (0..9)
            .map(|i| ("x".repeat(99) + &i.to_string(), json!(1)))
            .collect();
        let described = describe_unknown_fields(&many).unwrap();
        assert!(
            described.len() < 500 && described.ends_with("; and 4 more"),
            "{described}"
        );
    }
}
