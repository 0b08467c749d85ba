//! A proxy in front of a program that a test kills at its second write.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use di_apiserver_tests::{Proxy, ProxyAction, RecordedRequest};
use kube::Client;

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
