//! Printing: formats, tables, errors and progress.

pub mod age;
pub mod colour;
mod errors;
pub mod failures;
pub mod format;
mod objects;
pub mod printer;
pub mod progress_bar;
pub mod rows;
mod stdout;
pub mod table;

pub use errors::{report_error, warn_planned_only};
pub use objects::{
    kind_and_name, print_json, print_yaml, quoted_name, to_list, to_trimmed_list,
    without_managed_fields,
};
pub use stdout::{stdout_closed, stdout_closed_or_timeout};
