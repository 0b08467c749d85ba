use di_client::Job;

use crate::output::{colour::Tone, rows::one_line};

use super::cells::Cell;

/// The value of the field `Gang`, such as `5 of 9 placed, waiting for nvidia.com/gpu`. None if the
/// job has no gang and no problem with one.
pub fn gang_cell(job: &Job) -> Option<Cell> {
    let gang = job.status.scheduling.as_ref();
    if gang.is_some_and(|gang| gang.placed) {
        return Some(("placed".to_owned(), Some(Tone::Good)));
    }
    let text = match (job.gang_condition(), gang) {
        (Some(problem), _) => {
            let message = one_line(&problem.message);
            message
                .strip_prefix("gang: ")
                .unwrap_or(&message)
                .to_owned()
        }
        // The condition has a more serious problem.
        (None, Some(gang)) => format!("{} pods, not placed", gang.min_member),
        (None, None) => return None,
    };
    Some((text, Some(Tone::Warning)))
}
