//! Rotation of the webhook certificate while the API server calls the webhooks continuously.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use di_admission::{ServingCert, Settings};
use di_apiserver_tests::{Job, Space, Webhooks, eventually};
use jiff::Timestamp;
use k8s_openapi::{
    ByteString,
    api::{
        admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
        core::v1::Secret,
        rbac::v1::ClusterRoleBinding,
    },
};
use kube::{
    Api,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// Several clients that send reviews continuously.
struct ReviewLoad {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    callers: JoinSet<()>,
}

impl ReviewLoad {
    fn start(space: &Space) -> Self {
        let (stop, answered) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicUsize::new(0)),
        );
        let mut callers = JoinSet::new();
        for i in 0..4 {
            let (stop, answered) = (stop.clone(), answered.clone());
            let jobs = space.jobs();
            let job = Job::new(&format!("load-{i}"), 1).build();
            callers.spawn(async move {
                let params = PostParams {
                    dry_run: true,
                    ..PostParams::default()
                };
                while !stop.load(Relaxed) {
                    // Validation fails closed, so a failed review fails the request.
                    jobs.create(&params, &job).await.unwrap();
                    answered.fetch_add(1, Relaxed);
                }
            });
        }
        Self {
            stop,
            answered,
            callers,
        }
    }

    /// Waits for this number of further responses.
    async fn wait_for_more(&self, answers: usize) {
        let wanted = self.answered.load(Relaxed) + answers;
        eventually("more reviews are answered", async || {
            let seen = self.answered.load(Relaxed);
            if seen >= wanted {
                Ok(())
            } else {
                Err(format!("{seen} of {wanted}"))
            }
        })
        .await;
    }

    async fn stop(mut self) -> usize {
        self.stop.store(true, Relaxed);
        while let Some(caller) = self.callers.join_next().await {
            caller.unwrap();
        }
        self.answered.load(Relaxed)
    }
}

/// A change that damages the data of a Secret.
type Damage = fn(&mut BTreeMap<String, ByteString>);

fn certificate(secret: &Secret) -> Vec<u8> {
    secret.data.as_ref().unwrap()["tls.crt"].0.clone()
}

/// Waits until the Secret has a certificate other than `last`.
async fn wait_for_new_certificate(webhooks: &Webhooks, last: &[u8]) -> Vec<u8> {
    eventually("another certificate", async || {
        match webhooks.secret().await {
            Some(secret)
                if secret
                    .data
                    .as_ref()
                    .is_some_and(|data| data.contains_key("tls.crt"))
                    && certificate(&secret) != last =>
            {
                Ok(certificate(&secret))
            }
            _ => Err("the same".to_owned()),
        }
    })
    .await
}

/// Waits until every replica serves the certificate of the Secret, and reviews still succeed. A
/// replica waits some seconds after the CA is injected.
async fn wait_until_served(webhooks: &Webhooks, load: &ReviewLoad) {
    eventually(
        "all replicas serve the certificate of the Secret",
        async || {
            let secret = webhooks.secret().await.ok_or("no Secret")?;
            let part = |name: &str| &secret.data.as_ref().unwrap()[name].0;
            let leaf = CertificateDer::from_pem_slice(part("tls.crt"));
            let leaf = leaf.map_err(|error| error.to_string())?;
            let served = webhooks.served_certificates(part("ca.crt")).await?;
            if served.iter().all(|other| **other == *leaf) {
                Ok(())
            } else {
                // Each check is a handshake with every replica.
                tokio::time::sleep(Duration::from_millis(300)).await;
                Err("another".to_owned())
            }
        },
    )
    .await;
    load.wait_for_more(20).await;
}

#[tokio::test]
async fn certificate_rotation_fails_no_request() {
    let space = Space::new().await;
    let mut webhooks = Webhooks::install(&space, Duration::from_secs(60)).await;
    webhooks.add().await;
    webhooks.add().await;
    webhooks.until_called().await;
    let load = ReviewLoad::start(&space);
    let mut last = certificate(&webhooks.secret().await.unwrap());
    for _ in 0..2 {
        last = wait_for_new_certificate(&webhooks, &last).await;
        wait_until_served(&webhooks, &load).await;
        assert!(webhooks.is_ready());
    }
    assert!(load.stop().await >= 40);
    webhooks.stop().await;
}

#[tokio::test]
async fn damaged_secret_is_recreated_and_fails_no_request() {
    let space = Space::new().await;
    let mut webhooks = Webhooks::install(&space, Duration::from_secs(3600)).await;
    webhooks.add().await;
    webhooks.add().await;
    webhooks.until_called().await;
    let load = ReviewLoad::start(&space);
    let secrets = webhooks.secrets();
    let name = "di-webhook-cert";
    let mut last = certificate(&webhooks.secret().await.unwrap());

    secrets
        .delete(name, &DeleteParams::default())
        .await
        .unwrap();
    last = wait_for_new_certificate(&webhooks, &last).await;
    wait_until_served(&webhooks, &load).await;

    let damages: [Damage; 3] = [
        |data| {
            // The certificate expired almost a day ago.
            let names = Settings::default().dns_names();
            let (hour, day) = (Duration::from_secs(3600), Duration::from_secs(24 * 3600));
            let expired = ServingCert::issue(&names, hour, None, Timestamp::now() - day).unwrap();
            for (part, text) in [
                ("tls.crt", expired.certificate),
                ("tls.key", expired.key),
                ("ca.crt", expired.ca),
            ] {
                data.insert(part.to_owned(), ByteString(text));
            }
        },
        |data| {
            // A Secret of type kubernetes.io/tls must have both keys.
            data.insert("tls.key".to_owned(), ByteString(Vec::new()));
            data.remove("ca.crt");
        },
        |data| {
            for part in data.values_mut() {
                *part = ByteString(b"garbage".to_vec());
            }
        },
    ];
    for damage in damages {
        let mut secret = webhooks.secret().await.unwrap();
        damage(secret.data.as_mut().unwrap());
        // Drop the version, since a replica may write at the same time.
        secret.metadata.resource_version = None;
        secrets
            .replace(name, &PostParams::default(), &secret)
            .await
            .unwrap();
        let spoilt = certificate(&secret);
        let healed = eventually("the Secret is healed", async || {
            let secret = webhooks.secret().await.unwrap();
            let found = certificate(&secret);
            if found != spoilt && found != last {
                Ok(found)
            } else {
                Err("spoilt".to_owned())
            }
        })
        .await;
        last = healed;
        wait_until_served(&webhooks, &load).await;
    }
    assert!(webhooks.is_ready());
    assert!(load.stop().await > 50);
    webhooks.stop().await;
}

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn replicas_with_clock_skew_serve_one_trusted_certificate() {
    let behind: fn() -> Timestamp = || Timestamp::now() - HOUR;
    let ahead: fn() -> Timestamp = || Timestamp::now() + HOUR;
    for clocks in [
        [behind, Timestamp::now, ahead],
        [ahead, behind, Timestamp::now],
    ] {
        let space = Space::new().await;
        let mut webhooks = Webhooks::install(&space, Settings::default().lifetime).await;
        let [first, others @ ..] = clocks;
        // The first replica issues the certificate, and the API server with its correct clock calls
        // it.
        webhooks.add_with_clock(first).await;
        webhooks.until_called().await;
        let made = certificate(&webhooks.secret().await.unwrap());
        let load = ReviewLoad::start(&space);
        for clock in others {
            webhooks.add_with_clock(clock).await;
        }
        wait_until_served(&webhooks, &load).await;
        assert!(webhooks.is_ready());
        assert_eq!(certificate(&webhooks.secret().await.unwrap()), made);
        load.stop().await;
        webhooks.stop().await;
    }
}

#[tokio::test]
async fn expired_certificate_is_replaced_before_serving() {
    let space = Space::new().await;
    let mut webhooks = Webhooks::install(&space, HOUR).await;
    // A replica issued it three hours ago, and none ran to renew it.
    webhooks
        .add_with_clock(|| Timestamp::now() - 3 * HOUR)
        .await;
    let expired = certificate(&webhooks.secret().await.unwrap());
    webhooks.stop_all().await;
    webhooks.add().await;
    webhooks.until_called().await;
    assert_ne!(certificate(&webhooks.secret().await.unwrap()), expired);
    webhooks.stop().await;
}

/// Waits until a replica has completed an update round: it repairs the same field twice.
async fn wait_for_update_round(configurations: &Api<DynamicObject>, name: &str) {
    let at = "/webhooks/0/clientConfig/caBundle";
    for _ in 0..2 {
        eventually("the authorities are injected", async || {
            let found = configurations.get(name).await.unwrap();
            let bundle = found.data.pointer(at).and_then(Value::as_str);
            let some = bundle.filter(|bundle| !bundle.is_empty());
            some.map(|_| ()).ok_or(format!("{bundle:?}"))
        })
        .await;
        let spoil = json!([{"op": "remove", "path": at}]);
        let spoil = Patch::<()>::Json(serde_json::from_value(spoil).unwrap());
        let params = PatchParams::default();
        configurations.patch(name, &params, &spoil).await.unwrap();
    }
}

/// Administrators delete a configuration to end an outage of admission. The other one must still be
/// updated.
#[tokio::test]
async fn replica_without_one_configuration_updates_the_other() {
    let space = Space::new().await;
    let mut webhooks = Webhooks::install(&space, HOUR).await;
    let name = format!("di-webhook-{}", space.namespace);
    let all = |kind: &ApiResource| Api::<DynamicObject>::all_with(space.client.clone(), kind);
    let mutating = all(&ApiResource::erase::<MutatingWebhookConfiguration>(&()));
    let validating = all(&ApiResource::erase::<ValidatingWebhookConfiguration>(&()));
    for (absent, present) in [(&mutating, &validating), (&validating, &mutating)] {
        let mut taken = absent.get(&name).await.unwrap();
        taken.metadata.resource_version = None;
        let params = DeleteParams::default();
        absent.delete(&name, &params).await.unwrap();
        webhooks.add().await;
        wait_for_update_round(present, &name).await;
        assert!(webhooks.is_ready(), "{:?} is not there", taken.types);
        let params = PostParams::default();
        absent.create(&params, &taken).await.unwrap();
        wait_for_update_round(absent, &name).await;
        assert!(webhooks.is_ready());
        webhooks.stop_all().await;
    }
}

/// Returns the CA bundle of the validating configuration, if any.
async fn injected_ca_bundle(space: &Space, name: &str) -> Option<Vec<u8>> {
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(space.client.clone());
    let configuration = configurations.get(name).await.unwrap();
    let first = configuration.webhooks.into_iter().flatten().next();
    let ByteString(bundle) = first.unwrap().client_config.ca_bundle?;
    Some(bundle)
}

#[tokio::test]
async fn replica_is_ready_only_after_ca_bundle_is_injected() {
    let space = Space::new().await;
    let mut webhooks = Webhooks::install(&space, HOUR).await;
    // The binding to read and update the configurations.
    let name = format!("di-webhook-{}", space.namespace);
    let bindings: Api<ClusterRoleBinding> = Api::all(space.client.clone());
    let mut binding = bindings.get(&name).await.unwrap();
    binding.metadata.resource_version = None;
    let params = DeleteParams::default();
    bindings.delete(&name, &params).await.unwrap();
    let account = format!("system:serviceaccount:{}:di-orchestrator", space.namespace);
    let client = space.server.client_of(&account);
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(client);
    eventually("the permission is revoked", async || {
        match configurations.get(&name).await {
            Err(kube::Error::Api(status)) if status.code == 403 => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;

    webhooks.start_replica(Timestamp::now).await;
    let served = wait_for_new_certificate(&webhooks, &[]).await;
    let first = webhooks.secret().await.unwrap();
    let (secrets, secret) = (webhooks.secrets(), "di-webhook-cert");
    secrets.delete(secret, &params).await.unwrap();
    // A second certificate shows that the first update round is over. It must not be served before
    // its CA is injected.
    wait_for_new_certificate(&webhooks, &served).await;
    assert!(!webhooks.is_ready());
    assert_eq!(injected_ca_bundle(&space, &name).await, None);

    let params = PostParams::default();
    let mut again = webhooks.secret().await.unwrap();
    again.data = first.data;
    again.metadata.resource_version = None;
    secrets.replace(secret, &params, &again).await.unwrap();
    bindings.create(&params, &binding).await.unwrap();
    webhooks.until_ready().await;
    let authorities = injected_ca_bundle(&space, &name).await.unwrap();
    webhooks.served_certificates(&authorities).await.unwrap();
    webhooks.until_called().await;
    webhooks.stop().await;
}
