//! Fields of pod templates that this program does not know. See docs/decisions/0033.

use di_api::validation::Fault;

use crate::review::DryRunReport;

/// The first minor version of Kubernetes that reports unknown fields of a request.
const FIRST_STRICT_MINOR: u32 = 25;

/// Whether an API server of this minor version reports unknown fields. `None` if it is no number.
pub(super) fn reports_unknown_fields(minor: &str) -> Option<bool> {
    let minor = minor.trim_end_matches(|c: char| !c.is_ascii_digit());
    Some(minor.parse::<u32>().ok()? >= FIRST_STRICT_MINOR)
}

impl DryRunReport {
    /// Adds the fields that this program does not know. An API server that reports unknown fields
    /// has accepted those that it did not report; an older one is not newer than this program, so
    /// it does not know them either.
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
            Some(false) => self.faults.extend(unknown),
            None => self.warnings.extend(unknown.iter().map(Fault::to_string)),
        }
        self
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
