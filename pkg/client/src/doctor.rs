//! What is wrong with an orchestrator, or with what one may do, and what helps.

mod aggregators;
mod certificates;
mod definitions;
mod deployment;
mod endpoint;
mod leader;
mod namespace;
mod rights;
mod webhooks;

use futures::{FutureExt, future::BoxFuture};

use crate::{Cluster, Error, Flavour, Orchestrator, Result, installed, versions};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// As it should be.
    Ok,
    /// It could not be looked at.
    Unknown,
    /// It may be meant so.
    Warning,
    /// Something does not work.
    Error,
}

/// What was found by one look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at.
    pub check: &'static str,
    /// How bad it is.
    pub state: State,
    /// What was found.
    pub message: String,
    /// What helps.
    pub remedy: Option<String>,
}

impl Finding {
    fn ok(check: &'static str, message: impl Into<String>) -> Self {
        Self::new(check, State::Ok, message)
    }

    fn warning(check: &'static str, message: impl Into<String>) -> Self {
        Self::new(check, State::Warning, message)
    }

    fn error(check: &'static str, message: impl Into<String>) -> Self {
        Self::new(check, State::Error, message)
    }

    fn new(check: &'static str, state: State, message: impl Into<String>) -> Self {
        Self {
            check,
            state,
            message: message.into(),
            remedy: None,
        }
    }

    #[must_use]
    fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// Of a look that failed: what one may not see is not broken.
    fn failed(check: &'static str, error: &Error) -> Self {
        match error {
            Error::Server(status) if status.is_forbidden() => {
                Self::new(check, State::Unknown, status.message.clone())
                    .remedy("ask somebody who may look, or for the right to do so")
            }
            error => Self::error(check, error.to_string())
                .remedy("try again; if that stays so, the API server's own log says more"),
        }
    }
}

type Looked<'a> = BoxFuture<'a, (&'static str, Result<Vec<Finding>>)>;

/// Looks at everything at the same time. `plugin` is the version of the program that asks.
pub async fn examine(cluster: &Cluster, plugin: &str) -> Vec<Finding> {
    let kubernetes = match versions::kubernetes(cluster).await {
        Ok(version) => version,
        // Nothing else can be told then.
        Err(error) => {
            let finding = Finding::error("kubernetes", error.to_string());
            return vec![match error {
                // These say themselves what helps.
                Error::Unreachable { .. } | Error::Kubeconfig(_) => finding,
                _ => finding.remedy(
                    "check which cluster is asked, and whether it is up: kubectl cluster-info",
                ),
            }];
        }
    };
    let orchestrator = installed(cluster).await;
    let there = orchestrator.as_ref().ok();
    let whole = match there {
        Some(Orchestrator::Installed(installed)) => installed.flavour == Flavour::Whole,
        // What cannot be seen may well be there.
        Some(Orchestrator::Hidden) => true,
        Some(Orchestrator::NotInstalled) | None => false,
    };
    let is_there = !matches!(there, Some(Orchestrator::NotInstalled));
    let missing = namespace::missing(cluster).await;
    let namespace = match &missing {
        Some(_) => "default",
        None => &cluster.namespace().name,
    };
    let mut looks: Vec<Looked<'_>> = vec![
        named("definitions", definitions::look(cluster)),
        named("webhooks", webhooks::look(cluster, namespace, is_there)),
        named("certificates", certificates::look(cluster)),
    ];
    if whole {
        looks.push(named("leader", leader::look(cluster)));
        looks.push(named("endpoint", endpoint::look(cluster)));
        looks.push(named("aggregators", aggregators::look(cluster)));
    }
    if missing.is_none() {
        looks.push(named("rights", rights::look(cluster)));
    }
    let mut findings = vec![deployment::kubernetes(&kubernetes)];
    findings.extend(missing);
    findings.extend(match orchestrator {
        Ok(orchestrator) => deployment::look(&orchestrator, plugin),
        Err(error) => vec![Finding::failed("orchestrator", &error)],
    });
    for (check, looked) in futures::future::join_all(looks).await {
        match looked {
            Ok(found) => findings.extend(found),
            Err(error) => findings.push(Finding::failed(check, &error)),
        }
    }
    findings
}

fn named<'a>(
    check: &'static str,
    look: impl Future<Output = Result<Vec<Finding>>> + Send + 'a,
) -> Looked<'a> {
    look.map(move |looked| (check, looked)).boxed()
}
