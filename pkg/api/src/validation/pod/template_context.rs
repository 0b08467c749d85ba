use crate::{dijob::DIJobSpec, role::Role};

/// The role and job that a template belongs to.
#[derive(Clone, Copy)]
pub(crate) struct TemplateContext<'a> {
    pub(crate) role: Role,
    /// The job, which adds volumes and a PriorityClass; `None` for aggregators, because many jobs
    /// share their template.
    pub(crate) job: Option<&'a DIJobSpec>,
}
