//! Fields of pod templates that this program does not know. See docs/decisions/0033.

use di_api::validation::Fault;
use serde_json::Value;

use crate::review::DryRunReport;

/// The first minor version of Kubernetes that reports unknown fields of a request.
const FIRST_STRICT_MINOR: u32 = 25;

/// Whether an API server of this minor version reports unknown fields. `None` if it is no number.
pub(super) fn reports_unknown_fields(minor: &str) -> Option<bool> {
    let minor = minor.trim_end_matches(|c: char| !c.is_ascii_digit());
    Some(minor.parse::<u32>().ok()? >= FIRST_STRICT_MINOR)
}

/// Returns the fields of a pod that the pod in the response does not have: the API server does not
/// know them, or they are empty.
pub(super) fn find_ignored_fields(
    sent: &[u8],
    created: &str,
) -> Result<Vec<String>, serde_json::Error> {
    let (sent, created) = (
        serde_json::from_slice(sent)?,
        serde_json::from_str(created)?,
    );
    let mut ignored = Vec::new();
    add_ignored_fields(&sent, &created, "", &mut ignored);
    Ok(ignored)
}

fn add_ignored_fields(sent: &Value, created: &Value, path: &str, ignored: &mut Vec<String>) {
    let fields: Vec<(String, &Value, Option<&Value>)> = match sent {
        Value::Object(fields) => {
            let dot = if path.is_empty() { "" } else { "." };
            let fields = fields.iter();
            fields
                .map(|(name, value)| (format!("{path}{dot}{name}"), value, created.get(name)))
                .collect()
        }
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items
                .map(|(i, value)| (format!("{path}[{i}]"), value, created.get(i)))
                .collect()
        }
        _ => return,
    };
    for (path, value, created) in fields {
        match created {
            Some(created) => add_ignored_fields(value, created, &path, ignored),
            None => ignored.push(path),
        }
    }
}

impl DryRunReport {
    /// Adds the fields that this program does not know. An API server that reports unknown fields
    /// has accepted those that it did not report. An older one ignores them.
    pub(super) fn add_unknown_fields(mut self, unknown: Vec<Fault>, strict: Option<bool>) -> Self {
        match strict {
            Some(true) => {
                // Our messages suggest the field that was meant.
                for fault in &mut self.faults {
                    if let Some(ours) = unknown.iter().find(|ours| ours.field == fault.field) {
                        *fault = ours.clone();
                    }
                }
            }
            Some(false) => {
                let unknown = unknown
                    .into_iter()
                    .filter(|fault| !self.keeps_field(&fault.field));
                let unknown: Vec<_> = unknown.collect();
                self.faults.extend(unknown);
            }
            None => self.warnings.extend(unknown.iter().map(Fault::to_string)),
        }
        self
    }

    /// Whether the API server creates a pod with this field of the object.
    fn keeps_field(&self, field: &str) -> bool {
        self.accepted.iter().any(|(template, ignored)| {
            let is_of_pod = field.starts_with(template) || field.starts_with("spec.volumes[");
            is_of_pod && !ignored.iter().any(|other| other == field)
        })
    }
}

#[cfg(test)]
mod tests {
    use di_api::validation::FaultKind;

    use super::*;

    fn fault(kind: FaultKind, field: &str, detail: &str) -> Fault {
        Fault {
            kind,
            field: field.to_owned(),
            detail: detail.to_owned(),
        }
    }

    #[test]
    fn api_servers_from_1_25_on_report_unknown_fields() {
        for (minor, expected) in [
            ("20", Some(false)),
            ("24+", Some(false)),
            ("25", Some(true)),
            ("36+", Some(true)),
            ("", None),
        ] {
            assert_eq!(reports_unknown_fields(minor), expected, "{minor}");
        }
    }

    #[test]
    fn fields_that_the_response_lacks_are_ignored() {
        let sent = br#"{"spec": {"a": 1, "b": {"c": [{"d": 1, "e": 2}]}}, "f": {}}"#;
        let created = r#"{"spec": {"a": 2, "b": {"c": [{"d": 1}, {}], "new": 3}}}"#;
        let ignored = find_ignored_fields(sent, created).unwrap();
        assert_eq!(ignored, ["f", "spec.b.c[0].e"]);
        assert!(find_ignored_fields(sent, "no JSON").is_err());
    }

    #[test]
    fn api_server_decides_about_unknown_fields() {
        let unknown =
            || ["a", "b"].map(|field| fault(FaultKind::UnknownPodField, field, "did you mean c?"));
        let reported = DryRunReport {
            faults: vec![fault(FaultKind::Invalid, "a", "unknown field")],
            ..DryRunReport::default()
        };
        let [a, b] = unknown();
        let strict = reported
            .clone()
            .add_unknown_fields(unknown().to_vec(), Some(true));
        assert_eq!((strict.faults, strict.warnings.len()), (vec![a.clone()], 0));
        let old = DryRunReport::default().add_unknown_fields(unknown().to_vec(), Some(false));
        assert_eq!((old.faults, old.warnings.len()), (vec![a, b], 0));
        let accepted = DryRunReport {
            accepted: vec![
                ("a".to_owned(), Vec::new()),
                ("b".to_owned(), vec!["b".to_owned()]),
            ],
            ..DryRunReport::default()
        };
        let [_, b] = unknown();
        let kept = accepted.add_unknown_fields(unknown().to_vec(), Some(false));
        assert_eq!(kept.faults, [b]);
        let silent = DryRunReport::default().add_unknown_fields(unknown().to_vec(), None);
        assert_eq!(
            (silent.faults.len(), silent.warnings),
            (
                0,
                vec![
                    "a: did you mean c?".to_owned(),
                    "b: did you mean c?".to_owned(),
                ]
            )
        );
    }
}
