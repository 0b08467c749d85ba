//! Counts objects that are created and deleted, through watches.

use std::{collections::BTreeSet, time::Instant};

use anyhow::{Context, Result, bail};
use futures::{StreamExt, pin_mut};
use kube::{
    Api, Resource, ResourceExt,
    api::{ListParams, WatchEvent, WatchParams},
};
use tokio::{sync::watch, task::JoinSet, time::timeout};

use crate::harness::{scale::PATIENCE, stats::quantile};

/// How long a watch lasts, in seconds: the server may silently end a slow watch of services
/// (<https://github.com/kubernetes/kubernetes/issues/102464>).
const WATCH_SECONDS: u32 = 2;

/// Names of objects that a watch saw come and go.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Those that came.
    pub added: BTreeSet<String>,
    /// Those that went.
    pub deleted: BTreeSet<String>,
    /// When each of them came or went, in their order.
    pub times: Vec<Instant>,
}

impl Changes {
    /// How long all of them took from `began` on, and 99 % of them, in milliseconds.
    pub fn took(&self, began: Instant) -> (f64, f64) {
        let milliseconds = |at: &Instant| (*at - began).as_secs_f64() * 1e3;
        let times: Vec<f64> = self.times.iter().map(milliseconds).collect();
        (quantile(&times, 1.0), quantile(&times, 0.99))
    }
}

/// Counts what comes and goes: etcd has what a watch shows.
pub struct Count {
    seen: watch::Receiver<Changes>,
    _task: JoinSet<()>,
}

impl Count {
    /// Counts from now on.
    pub async fn of<K>(api: &Api<K>, selector: &str) -> Result<Self>
    where
        K: Resource<DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned
            + Send
            + 'static,
    {
        let list = api
            .list_metadata(&ListParams::default().labels(selector).limit(1))
            .await?;
        let version = list
            .metadata
            .resource_version
            .context("a list without version")?;
        let params = WatchParams::default()
            .labels(selector)
            .timeout(WATCH_SECONDS);
        let (sender, seen) = watch::channel(Changes::default());
        let (api, mut task) = (api.clone(), JoinSet::new());
        task.spawn(async move {
            if let Err(error) = note(&api, &params, version, &sender).await {
                eprintln!("A watch ended: {error:#}");
            }
        });
        Ok(Self { seen, _task: task })
    }

    /// The objects that were created and deleted so far.
    pub fn seen(&self) -> Changes {
        self.seen.borrow().clone()
    }

    /// Waits until enough has come and gone.
    pub async fn until(&self, enough: impl FnMut(&Changes) -> bool) -> Result<Changes> {
        let mut seen = self.seen.clone();
        let reached = timeout(PATIENCE, seen.wait_for(enough)).await;
        let Ok(reached) = reached else {
            let seen = self.seen.borrow();
            bail!(
                "saw only {} come and {} go",
                seen.added.len(),
                seen.deleted.len()
            );
        };
        Ok(reached.context("the watch ended")?.clone())
    }
}

/// Notes what comes and goes after `version`, on one watch after the other, until one fails.
async fn note<K>(
    api: &Api<K>,
    params: &WatchParams,
    mut version: String,
    changes: &watch::Sender<Changes>,
) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    loop {
        let events = api.watch_metadata(params, &version).await?;
        pin_mut!(events);
        while let Some(event) = events.next().await {
            let event = event?;
            version = match &event {
                WatchEvent::Added(object)
                | WatchEvent::Modified(object)
                | WatchEvent::Deleted(object) => object.resource_version().unwrap_or_default(),
                WatchEvent::Bookmark(mark) => mark.metadata.resource_version.clone(),
                WatchEvent::Error(status) => bail!("{}", status.message),
            };
            changes.send_modify(|changes| {
                let is_new = match event {
                    WatchEvent::Added(object) => changes.added.insert(object.name_any()),
                    WatchEvent::Deleted(object) => changes.deleted.insert(object.name_any()),
                    _ => false,
                };
                if is_new {
                    changes.times.push(Instant::now());
                }
            });
        }
    }
}
