use di_api::names;
use http::header::DATE;
use jiff::{Timestamp, fmt::rfc2822};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Resource as _, api::GetParams, client::Body, core::Request};

use super::Finding;
use crate::{Cluster, Error, Result};

const CHECK: &str = "leader";
const LEASE: &str = "di-orchestrator";
const REMEDY: &str = "nothing is started, replaced or cleaned up; see what the log says of the lease: kubectl -n di-system logs -l app.kubernetes.io/name=di-orchestrator -c manager --prefix --tail=-1";

/// Whether somebody leads.
pub(super) async fn look(cluster: &Cluster) -> Result<Vec<Finding>> {
    let request = Request::new(Lease::url_path(&(), Some(names::SYSTEM_NAMESPACE)));
    let request = request.get(LEASE, &GetParams::default());
    let request = request.map_err(|error| Error::Client(kube::Error::BuildRequest(error)))?;
    let answer = cluster.client.send(request.map(Body::from)).await;
    let answer = answer.map_err(|error| cluster.error(error))?;
    // Times are compared within the cluster: this machine's clock may be wrong.
    let date = answer
        .headers()
        .get(DATE)
        .and_then(|date| date.to_str().ok());
    let now = date.and_then(|date| rfc2822::parse(date).ok());
    let now = now.map_or_else(Timestamp::now, |now| now.timestamp());
    let found = answer.status();
    let body = answer.into_body().collect_bytes().await;
    let body = body.map_err(|error| cluster.error(error))?;
    if found == http::StatusCode::NOT_FOUND {
        let none = "nobody has led so far: there is no Lease di-orchestrator";
        return Ok(vec![Finding::error(CHECK, none).remedy(REMEDY)]);
    }
    if !found.is_success() {
        let status = serde_json::from_slice(&body);
        let status = status.map_err(|error| Error::Client(kube::Error::SerdeError(error)))?;
        return Err(Error::Server(status));
    }
    let lease: Lease = serde_json::from_slice(&body)
        .map_err(|error| Error::Client(kube::Error::SerdeError(error)))?;
    Ok(vec![judge(&lease, now)])
}

fn judge(lease: &Lease, now: Timestamp) -> Finding {
    let spec = lease.spec.clone().unwrap_or_default();
    let holder = spec.holder_identity.filter(|holder| !holder.is_empty());
    let (Some(holder), Some(renewed)) = (holder, spec.renew_time) else {
        return Finding::error(CHECK, "nobody holds the Lease di-orchestrator").remedy(REMEDY);
    };
    let age = now.as_second() - renewed.0.as_second();
    let lasts = i64::from(spec.lease_duration_seconds.unwrap_or(15));
    if age > lasts {
        let message = format!("{holder} has not renewed the Lease for {age} s");
        Finding::error(CHECK, message).remedy(REMEDY)
    } else {
        Finding::ok(CHECK, format!("{holder} leads"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::State;

    #[test]
    fn a_leader_renews() {
        let lease = |spec| -> Lease { serde_json::from_value(json!({ "spec": spec })).unwrap() };
        let held = lease(json!({
            "holderIdentity": "di-webhook-x", "leaseDurationSeconds": 15,
            "renewTime": "2026-01-01T00:00:00.000000Z",
        }));
        let at = |time: &str| judge(&held, time.parse().unwrap());
        assert_eq!(at("2026-01-01T00:00:15Z").message, "di-webhook-x leads");
        let gone = at("2026-01-01T00:01:00Z");
        assert_eq!(
            gone.message,
            "di-webhook-x has not renewed the Lease for 60 s"
        );
        assert_eq!(gone.state, State::Error);
        let free = lease(json!({"holderIdentity": ""}));
        assert_eq!(judge(&free, Timestamp::UNIX_EPOCH).state, State::Error);
    }
}
