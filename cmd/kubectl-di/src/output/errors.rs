/// Prints an error to stderr in the format of kubectl.
pub fn report_error(error: &anyhow::Error) {
    match error.downcast_ref::<di_client::Error>() {
        Some(di_client::Error::Server(_) | di_client::Error::Invalid { .. }) => {
            eprintln!("{error}");
        }
        // The messages of these errors include their causes.
        Some(_) => eprintln!("error: {error}"),
        None => eprintln!("error: {error:#}"),
    }
}

/// Warns that pods cannot be read, so that only the plan is printed.
pub fn warn_planned_only(why: &di_client::Error) {
    eprintln!("Warning: pods cannot be read, so only the plan is shown: {why}");
}
