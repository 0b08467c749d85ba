//! `validate --server`: a dry-run create.

use std::{io::Write, process::ExitCode};

use anyhow::Result;
use di_client::{Cluster, Document, create_object, prepare_objects};

use crate::output::{kind_and_name, report_error};

/// Creates all documents with a dry run and the user's permissions.
pub async fn submit(
    cluster: &Cluster,
    documents: Vec<Document>,
    out: &mut impl Write,
) -> Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    for one in prepare_objects(Some(cluster), cluster.namespace(), documents).await? {
        match create_object(cluster, &one, true).await {
            Ok(object) => writeln!(out, "{} created (server dry run)", kind_and_name(&object))?,
            Err(error) => {
                report_error(&error.into());
                code = ExitCode::FAILURE;
            }
        }
    }
    Ok(code)
}
