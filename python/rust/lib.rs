//! The native module of the Python package: the operations of `DIClient` by the library of the
//! plugin.
//!
//! Objects pass to Python as JSON text. `python/src/di_orchestrator/client.py` has the class for
//! users.

mod connection;
mod logs;

use std::{path::PathBuf, sync::Arc, time::Duration};

use di_client::{
    ConnectOptions, Counts, Deadline, DryRun, Error, EventFilter, Job, JobQuery, ObjectRef,
    PreparedObject, ReplicaGroupRef, Result, ScaleRequest, WaitCondition, WaitState,
    convert_document, create_object, delete_leftover, describe_wait, is_own_kind, list_events,
    manifest, prepare_objects, restart_coordinator, scale_replicas, wait_for_job,
};
use pyo3::prelude::*;
use serde_json::Value;

use connection::{Connection, DIError};
use logs::LogLines;

#[pymodule]
mod _native {
    #[pymodule_export]
    use super::Client;
    #[pymodule_export]
    use super::DIError;
}

/// The operations of `DIClient`.
#[pyclass(frozen, module = "di_orchestrator._native")]
struct Client(Arc<Connection>);

#[pymethods]
impl Client {
    #[new]
    #[pyo3(signature = (kubeconfig, context, namespace))]
    fn new(
        py: Python<'_>,
        kubeconfig: Option<PathBuf>,
        context: Option<String>,
        namespace: Option<String>,
    ) -> PyResult<Self> {
        let options = ConnectOptions {
            kubeconfig,
            context,
            namespace,
            ..ConnectOptions::default()
        };
        let connection = Connection::open(py, &options.without_empty())?;
        Ok(Self(Arc::new(connection)))
    }

    fn create_job(&self, py: Python<'_>, source: String, is_path: bool) -> PyResult<String> {
        self.0
            .run(py, async || create_job(&self.0, &source, is_path).await)
    }

    fn list_jobs(&self, py: Python<'_>) -> PyResult<String> {
        let query = JobQuery::default();
        self.0.run(py, async || {
            let list = di_client::list_jobs(&self.0.cluster, &query).await?;
            Ok(to_json_list(list.jobs.into_iter().map(|job| job.object)))
        })
    }

    fn get_job(&self, py: Python<'_>, name: String) -> PyResult<String> {
        self.0.run(py, async || {
            let job = di_client::get_job(&self.0.cluster, &name).await?;
            Ok(job.object.to_string())
        })
    }

    fn get_job_logs(
        &self,
        py: Python<'_>,
        name: String,
        role: String,
        follow: bool,
    ) -> PyResult<LogLines> {
        self.0.run(py, async || {
            LogLines::open(&self.0, &name, &role, follow).await
        })
    }

    fn get_job_events(&self, py: Python<'_>, name: String) -> PyResult<String> {
        self.0.run(py, async || {
            let job = di_client::get_job(&self.0.cluster, &name).await?;
            let mut filter = EventFilter::for_job(&job);
            let list = list_events(&self.0.cluster, &mut filter).await?;
            Ok(to_json_list(
                list.events.into_iter().map(|event| event.object),
            ))
        })
    }

    #[pyo3(signature = (name, phases, timeout_seconds))]
    fn wait_for_job_status(
        &self,
        py: Python<'_>,
        name: String,
        phases: Vec<String>,
        timeout_seconds: Option<f64>,
    ) -> PyResult<String> {
        if phases.is_empty() {
            return Err(DIError::new_err("must specify at least one phase"));
        }
        let conditions = phases
            .iter()
            .map(|phase| WaitCondition::parse(&format!("phase={phase}")))
            .collect::<Result<Vec<_>, String>>()
            .map_err(DIError::new_err)?;
        let timeout = timeout_seconds.map(Duration::try_from_secs_f64).transpose();
        let timeout = timeout.map_err(|error| DIError::new_err(error.to_string()))?;
        self.0.run(py, async || {
            let awaited: Vec<_> = conditions.iter().map(WaitCondition::describe).collect();
            let awaited = awaited.join(" or ");
            let met = wait_for_job(
                &self.0.cluster,
                &name,
                Deadline::after(timeout),
                |job: &Job| check_any(&conditions, job),
                describe_wait(&awaited),
            );
            Ok(met.await?.object.to_string())
        })
    }

    #[pyo3(signature = (name, collectors, learners))]
    fn scale(
        &self,
        py: Python<'_>,
        name: String,
        collectors: Option<i32>,
        learners: Option<i32>,
    ) -> PyResult<()> {
        if collectors.is_none() && learners.is_none() {
            return Err(DIError::new_err("must specify collectors or learners"));
        }
        let request = ScaleRequest::To {
            counts: Counts {
                collectors,
                learners,
            },
            selector: ReplicaGroupRef::default(),
        };
        self.0.run(py, async || {
            scale_replicas(&self.0.cluster, &name, &request, DryRun::None).await?;
            Ok(())
        })
    }

    fn set_suspended(&self, py: Python<'_>, name: String, suspend: bool) -> PyResult<()> {
        self.0.run(py, async || {
            di_client::set_suspended(&self.0.cluster, &name, suspend, DryRun::None).await?;
            Ok(())
        })
    }

    fn restart(&self, py: Python<'_>, name: String) -> PyResult<()> {
        self.0.run(py, async || {
            restart_coordinator(&self.0.cluster, &name, DryRun::None).await?;
            Ok(())
        })
    }

    fn delete_job(&self, py: Python<'_>, name: String) -> PyResult<()> {
        self.0.run(py, async || {
            let job = di_client::get_job(&self.0.cluster, &name).await?;
            delete_leftover(&self.0.cluster, &ObjectRef::from(&job), false).await?;
            Ok(())
        })
    }
}

/// Creates the objects of a manifest, one of which must be a job. Returns the name of the job.
async fn create_job(connection: &Connection, source: &str, is_path: bool) -> Result<String> {
    let manifest = if is_path {
        manifest::read_manifests(source, false)?
    } else {
        manifest::parse("manifest", source)?
    };
    let mut documents = manifest.documents;
    let notes: Vec<_> = documents.iter_mut().filter_map(convert_document).collect();
    for text in manifest.warnings.iter().chain(&notes) {
        connection.add_warning(text);
    }
    let cluster = &connection.cluster;
    let objects = prepare_objects(Some(cluster), cluster.namespace(), documents).await?;
    let jobs = objects.iter().filter(|one| is_job(one)).count();
    if jobs != 1 {
        return Err(Error::Refused(format!(
            "create_job supports exactly one job; found {jobs}"
        )));
    }
    let mut name = String::new();
    for one in &objects {
        let created = create_object(cluster, one, false).await?;
        if is_job(one) {
            let created = created["metadata"]["name"].as_str();
            created.unwrap_or_default().clone_into(&mut name);
        }
    }
    Ok(name)
}

fn is_job(prepared: &PreparedObject) -> bool {
    is_own_kind(&prepared.object) && prepared.object["kind"] == "DIJob"
}

/// Whether a job meets one of the conditions. An ended job that meets none never will.
fn check_any(conditions: &[WaitCondition], job: &Job) -> WaitState {
    let states = conditions.iter().map(|condition| condition.check_job(job));
    let best = states.min_by_key(|state| *state != WaitState::Met);
    best.unwrap_or(WaitState::Pending)
}

fn to_json_list(objects: impl Iterator<Item = Value>) -> String {
    objects.collect::<Value>().to_string()
}
