use std::path::PathBuf;

use di_worker_lib::{
    Result,
    protocol::shutdown::Shutdown,
    storage::{Storage, blocking::run_blocking},
};

/// Opens the storage; none if a signal arrives meanwhile.
pub async fn open_storage(storage: PathBuf, shutdown: &mut Shutdown) -> Result<Option<Storage>> {
    tokio::select! {
        opened = run_blocking(move || Storage::open(&storage)) => opened.map(Some),
        () = shutdown.wait_requested() => Ok(None),
    }
}
