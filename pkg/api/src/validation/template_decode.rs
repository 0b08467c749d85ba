use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde_json::Value;

use super::{
    fault::{Fault, FaultKind, Faults},
    path::{Path, SPEC},
    strict_decode::{Findings, decode_strictly},
    tolerant_decode::{FieldMask, decode_tolerantly, drop_nulls},
};
use crate::{dijob::DIJobSpec, pod_template::PodTemplate, role::Role};

/// The templates of a job, with the fields that this program knows.
pub(super) struct DecodedTemplates {
    templates: Vec<(Role, PodTemplateSpec)>,
    /// Those of the leaders of units that have another one.
    leaders: Vec<(Role, PodTemplateSpec)>,
    /// The fields that could not be decoded.
    pub(super) masked: FieldMask,
}

impl DecodedTemplates {
    /// Decodes all templates of a job. Reports unknown fields and wrong types.
    pub(super) fn of_job(spec: &DIJobSpec, faults: &mut Faults) -> Self {
        let mut masked = FieldMask::default();
        let decode = |role: Role| {
            let part = SPEC.child(role.label());
            let field = part.child("template");
            let written = spec.declared(role)?.template;
            Some((role, decode_template(written, &field, &mut masked, faults)))
        };
        let templates = Role::DECLARED.into_iter().filter_map(decode).collect();
        let decode_leader = |role: Role| {
            let part = SPEC.child(role.label());
            let unit = part.child("unit");
            let field = unit.child("leaderTemplate");
            let written = spec.unit(role)?.leader_template.as_ref()?;
            Some((role, decode_template(written, &field, &mut masked, faults)))
        };
        let leaders = Role::DECLARED.into_iter().filter_map(decode_leader);
        let leaders = leaders.collect();
        Self {
            templates,
            leaders,
            masked,
        }
    }

    /// The template of the leaders of a role, if it is not that of the role.
    pub(super) fn leader(&self, role: Role) -> Option<&PodTemplateSpec> {
        let mut leaders = self.leaders.iter();
        let (_, template) = leaders.find(|(of, _)| *of == role)?;
        Some(template)
    }

    pub(super) fn get(&self, role: Role) -> Option<&PodTemplateSpec> {
        let mut templates = self.templates.iter();
        let (_, template) = templates.find(|(of, _)| *of == role)?;
        Some(template)
    }
}

/// Decodes a template. Fields of a wrong type are reported, added to `masked` and left out.
pub(super) fn decode_template(
    written: &PodTemplate,
    field: &Path<'_>,
    masked: &mut FieldMask,
    faults: &mut Faults,
) -> PodTemplateSpec {
    let mut findings = Findings::default();
    if let Ok(template) = decode_strictly(&written.0, Some(*field), &mut findings) {
        faults.extend(unknown_pod_fields(findings.unknown));
        return template;
    }
    let mut readable = Value::Object(written.0.clone());
    drop_nulls(&mut readable);
    let result = decode_tolerantly(readable, Some(*field));
    faults.extend(unknown_pod_fields(result.unknown));
    faults.extend(result.wrong);
    let (template, mask) = result.decoded.unwrap_or_default();
    masked.extend(mask);
    template
}

fn unknown_pod_fields(faults: Vec<Fault>) -> impl Iterator<Item = Fault> {
    faults.into_iter().map(|fault| Fault {
        kind: FaultKind::UnknownPodField,
        ..fault
    })
}
