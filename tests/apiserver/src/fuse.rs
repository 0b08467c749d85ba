use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use http::Method;
use kube::{Client, client::Body};
use tokio::sync::watch;
use tower::service_fn;

/// A client that does not hear the answer of every other write of a status.
pub fn hard_of_hearing(client: Client, namespace: &str) -> Client {
    let written = Arc::new(AtomicUsize::new(0));
    let service = service_fn(move |request: http::Request<Body>| {
        let (client, written) = (client.clone(), written.clone());
        async move {
            let status =
                request.method() == Method::PATCH && request.uri().path().ends_with("/status");
            let lost = status && written.fetch_add(1, Relaxed).is_multiple_of(2);
            let answer = client.send(request).await;
            if lost {
                return Err(kube::Error::Service("the answer is lost".into()));
            }
            answer
        }
    });
    Client::new(service, namespace)
}

/// A client whose writes come through up to a number, as if its process then died: they all reach the server, but the answer that would be
/// the last never comes back, and no write follows. Also returns what becomes true at that moment.
pub fn fused(client: Client, namespace: &str, writes: usize) -> (Client, watch::Receiver<bool>) {
    let sent = Arc::new(AtomicUsize::new(0));
    let answered = Arc::new(AtomicUsize::new(0));
    let (burnt, burning) = watch::channel(false);
    let burnt = Arc::new(burnt);
    let service = service_fn(move |request: http::Request<Body>| {
        let (client, burnt) = (client.clone(), burnt.clone());
        let (sent, answered) = (sent.clone(), answered.clone());
        async move {
            if request.method() == Method::GET {
                return client.send(request).await;
            }
            if sent.fetch_add(1, Relaxed) < writes {
                let answer = client.send(request).await;
                // Several are under way at the same time; of one that is broken off, the audit log would not tell what became of it.
                if answered.fetch_add(1, Relaxed) + 1 < writes {
                    return answer;
                }
                burnt.send_replace(true);
            }
            std::future::pending().await
        }
    });
    (Client::new(service, namespace), burning)
}
