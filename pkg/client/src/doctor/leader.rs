use di_api::names;
use http::header::DATE;
use jiff::{Timestamp, fmt::rfc2822};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Resource as _, api::GetParams, client::Body, core::Request};

use super::finding::Finding;
use crate::{Cluster, Error, Result};

const CHECK: &str = "leader";
const LEASE: &str = "di-orchestrator";
const REMEDY: &str = "no job is reconciled; look for lease errors in the log: kubectl -n di-system logs -l app.kubernetes.io/name=di-orchestrator -c manager --prefix --tail=-1";

/// Checks that a manager renews the leader election Lease.
pub(super) async fn check_leader(cluster: &Cluster) -> Result<Vec<Finding>> {
    let request = Request::new(Lease::url_path(&(), Some(names::SYSTEM_NAMESPACE)));
    let request = request.get(LEASE, &GetParams::default());
    let request = request.map_err(|error| Error::Client(kube::Error::BuildRequest(error)))?;
    let response = cluster.client.send(request.map(Body::from)).await;
    let response = response.map_err(|error| cluster.convert_error(error))?;
    // Compare with the Date header of the API server: the local clock may be wrong.
    let date = response
        .headers()
        .get(DATE)
        .and_then(|date| date.to_str().ok());
    let now = date.and_then(|date| rfc2822::parse(date).ok());
    let now = now.map_or_else(Timestamp::now, |now| now.timestamp());
    let status_code = response.status();
    let body = response.into_body().collect_bytes().await;
    let body = body.map_err(|error| cluster.convert_error(error))?;
    if status_code == http::StatusCode::NOT_FOUND {
        let none = "no manager has become leader: Lease di-orchestrator does not exist";
        return Ok(vec![Finding::error(CHECK, none).with_remedy(REMEDY)]);
    }
    if !status_code.is_success() {
        let status = serde_json::from_slice(&body);
        let status = status.map_err(|error| Error::Client(kube::Error::SerdeError(error)))?;
        return Err(Error::Server(status));
    }
    let lease: Lease = serde_json::from_slice(&body)
        .map_err(|error| Error::Client(kube::Error::SerdeError(error)))?;
    Ok(vec![lease_finding(&lease, now)])
}

fn lease_finding(lease: &Lease, now: Timestamp) -> Finding {
    let spec = lease.spec.clone().unwrap_or_default();
    let holder = spec.holder_identity.filter(|holder| !holder.is_empty());
    let (Some(holder), Some(renewed)) = (holder, spec.renew_time) else {
        return Finding::error(CHECK, "Lease di-orchestrator has no holder").with_remedy(REMEDY);
    };
    let age = now.as_second() - renewed.0.as_second();
    let duration = i64::from(spec.lease_duration_seconds.unwrap_or(15));
    if age > duration {
        let message = format!("{holder} has not renewed Lease di-orchestrator for {age} s");
        Finding::error(CHECK, message).with_remedy(REMEDY)
    } else {
        Finding::ok(CHECK, format!("{holder} is the leader"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::FindingState;

    #[test]
    fn expired_lease_is_an_error() {
        let lease = |spec| -> Lease { serde_json::from_value(json!({ "spec": spec })).unwrap() };
        let active = lease(json!({
            "holderIdentity": "di-webhook-x", "leaseDurationSeconds": 15,
            "renewTime": "2026-01-01T00:00:00.000000Z",
        }));
        let at = |time: &str| lease_finding(&active, time.parse().unwrap());
        assert_eq!(
            at("2026-01-01T00:00:15Z").message,
            "di-webhook-x is the leader"
        );
        let expired = at("2026-01-01T00:01:00Z");
        assert_eq!(
            expired.message,
            "di-webhook-x has not renewed Lease di-orchestrator for 60 s"
        );
        assert_eq!(expired.state, FindingState::Error);
        let free = lease(json!({"holderIdentity": ""}));
        assert_eq!(
            lease_finding(&free, Timestamp::UNIX_EPOCH).state,
            FindingState::Error
        );
    }
}
