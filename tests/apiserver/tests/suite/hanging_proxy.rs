//! A proxy in front of a program that a test kills at its second write.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use di_api::DIJobStatus;
use di_apiserver_tests::{Manager, Proxy, ProxyAction, RecordedRequest, Space, eventually};
use di_controller::Settings;
use kube::Client;

/// Limit of the managers for one change.
const MAX_LIVES: usize = 60;

/// Serves the first counted request, and hangs the next ones. Other requests are served.
pub(crate) struct HangingProxy {
    proxy: Proxy,
    counted: Arc<AtomicUsize>,
}

impl HangingProxy {
    pub(crate) fn start(
        upstream: Client,
        is_counted: impl Fn(&RecordedRequest) -> bool + Send + Sync + 'static,
    ) -> Self {
        let proxy = Proxy::start(upstream);
        let counted = Arc::new(AtomicUsize::new(0));
        let count = counted.clone();
        proxy.set_rule(move |request| {
            if is_counted(request) && count.fetch_add(1, Relaxed) > 0 {
                ProxyAction::Hung
            } else {
                ProxyAction::Served
            }
        });
        Self { proxy, counted }
    }

    pub(crate) fn client(&self) -> Client {
        self.proxy.client()
    }

    /// Whether the program waits for the response to its second counted request.
    pub(crate) fn is_hanging(&self) -> bool {
        self.counted.load(Relaxed) > 1
    }
}

/// Runs managers one after the other, each of which is killed at its second write, until the status
/// of a job satisfies `is_done`. Events do not count.
pub(crate) async fn run_short_lives(
    space: &Space,
    settings: &Settings,
    job: &str,
    is_done: impl Fn(&DIJobStatus) -> bool,
) {
    for _ in 0..MAX_LIVES {
        let client = space.server.client_of_manager("manager", &space.namespace);
        let proxy = HangingProxy::start(client, |request| {
            request.write > 0 && !request.path().contains("/events")
        });
        let manager = Manager::start_with(proxy.client(), settings.clone());
        let is_end = eventually("a second write, or the end", async || {
            let found = space.jobs().get(job).await;
            let status = found.map_err(|error| error.to_string())?.status;
            if status.as_ref().is_some_and(&is_done) {
                Ok(true)
            } else if proxy.is_hanging() {
                Ok(false)
            } else {
                Err(format!("{status:?}"))
            }
        })
        .await;
        manager.kill().await;
        if is_end {
            return;
        }
    }
}
