//! The connection of a client, and calls from Python to it.

use std::{
    ffi::CString,
    mem,
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use di_client::{Cluster, ConnectOptions, Error, Result};
use pyo3::{
    create_exception,
    exceptions::{PyException, PyTimeoutError, PyUserWarning},
    prelude::*,
};
use tokio::{
    runtime::{Builder, Runtime},
    time::timeout,
};

create_exception!(
    di_orchestrator,
    DIError,
    PyException,
    "An operation failed. The text is the message of ``kubectl di``."
);

/// Interval of checks for signals, so that Ctrl-C interrupts a call.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(200);

/// A cluster, and the thread that serves the connections to it.
pub(crate) struct Connection {
    runtime: Runtime,
    pub(crate) cluster: Cluster,
    warnings: Warnings,
}

impl Connection {
    /// Connects without sending a request.
    pub(crate) fn open(py: Python<'_>, options: &ConnectOptions) -> PyResult<Self> {
        // An error means that a provider is installed already. See docs/decisions/0006.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let warnings = Warnings::default();
        let received = warnings.clone();
        let on_warning = move |text: &str| received.add(text);
        let cluster = block_on(py, &runtime, async || {
            Cluster::connect(options, on_warning).await
        })?;
        Ok(Self {
            runtime,
            cluster,
            warnings,
        })
    }

    /// Runs a call, and issues the warnings that it caused.
    pub(crate) fn run<T: Send>(
        &self,
        py: Python<'_>,
        call: impl AsyncFnOnce() -> Result<T> + Send,
    ) -> PyResult<T> {
        let result = block_on(py, &self.runtime, call);
        for text in self.warnings.take() {
            // The first level is the method of `DIClient`, the second its caller.
            let (category, text) = (py.get_type::<PyUserWarning>(), CString::new(text)?);
            PyErr::warn(py, &category, &text, 2)?;
        }
        result
    }

    /// Adds a warning to those of the running call.
    pub(crate) fn add_warning(&self, text: &str) {
        self.warnings.add(text);
    }
}

/// Warnings of the running call.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    fn add(&self, text: &str) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(text.to_owned());
    }

    fn take(&self) -> Vec<String> {
        mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Runs a call while other threads of Python continue.
// The method itself is not general enough for `attach`.
#[expect(clippy::redundant_closure_for_method_calls)]
fn block_on<T: Send>(
    py: Python<'_>,
    runtime: &Runtime,
    call: impl AsyncFnOnce() -> Result<T> + Send,
) -> PyResult<T> {
    py.detach(|| {
        let mut call = pin!(call());
        loop {
            match runtime.block_on(async { timeout(SIGNAL_INTERVAL, &mut call).await }) {
                Ok(result) => return result.map_err(to_py_error),
                // Outside of the runtime, since the handler of a signal may make calls itself.
                Err(_) => Python::attach(|py| py.check_signals())?,
            }
        }
    })
}

fn to_py_error(error: Error) -> PyErr {
    let message = error.to_string();
    match error {
        Error::Timeout(_) => PyTimeoutError::new_err(message),
        _ => DIError::new_err(message),
    }
}
