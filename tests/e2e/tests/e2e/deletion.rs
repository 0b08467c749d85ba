//! Deletion of jobs and namespaces on a cluster with garbage collection.

use std::time::Duration;

use di_api::{DIJob, DIJobStatus, Phase};
use di_e2e::{
    Namespace, eventually, eventually_within, idle_job, is_running, owned_pods, status,
    wait_for_phase,
};
use k8s_openapi::api::{
    core::v1::{Namespace as NamespaceObject, Pod, Service},
    events::v1::Event,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams},
};

use crate::lifecycle::{end_pod, wait_for_running_pods};

/// The namespace controller lists every kind for each try, which takes a minute while other
/// tests run, and waits for up to a minute after a try that found pods.
const NAMESPACE_TIMEOUT: Duration = Duration::from_secs(900);

fn is_owned_by(object: &impl ResourceExt, job: Option<&String>) -> bool {
    let owners = object.owner_references().iter();
    owners.map(|owner| &owner.uid).eq(job)
}

#[tokio::test]
async fn job_recreated_at_once_gets_its_own_objects() {
    Namespace::with("again", |ns| async move {
        let wanted = idle_job("again", 2, 0);
        ns.submit(&wanted).await;
        wait_for_running_pods(&ns, "again", 3).await;
        let now = DeleteParams::background();
        ns.api::<DIJob>().delete("again", &now).await.unwrap();
        let uid = ns.submit(&wanted).await.uid();

        let own = |pods: &Vec<Pod>| {
            let own = |pod: &Pod| is_owned_by(pod, uid.as_ref()) && is_running(pod);
            pods.len() == 3 && pods.iter().all(own)
        };
        eventually("only its own pods run", || owned_pods(&ns, "again"), own).await;
        let of_it = ListParams::default().labels("dijob-name=again");
        let (services, events) = (ns.api::<Service>(), ns.api::<Event>());
        let list = || async { services.list(&of_it).await.unwrap().items };
        let own = |all: &Vec<Service>| {
            all.len() == 3 && all.iter().all(|service| is_owned_by(service, uid.as_ref()))
        };
        eventually("only its own services exist", list, own).await;
        let ready = |s: &DIJobStatus| {
            let all = s.collectors_ready.as_deref() == Some("2/2") && s.reason.is_none();
            s.phase == Some(Phase::Running) && all
        };
        let seen = eventually("ready", || status(&ns, "again"), ready).await;
        assert_eq!(seen.restarts, 0);
        // The slow termination of the previous job is no warning.
        let all = events.list(&ListParams::default()).await.unwrap();
        let alarms = |event: &&Event| {
            let about = event.regarding.as_ref().and_then(|job| job.uid.as_ref());
            about == uid.as_ref() && event.reason.as_deref() == Some("NameConflict")
        };
        let alarms: Vec<_> = all.items.iter().filter(alarms).collect();
        assert!(alarms.is_empty(), "{alarms:#?}");
        end_pod(&ns, "again-coordinator", "0").await;
        wait_for_phase(&ns, "again", Phase::Succeeded).await;
    })
    .await;
}

#[tokio::test]
async fn namespace_with_running_job_can_be_deleted() {
    Namespace::with("doomed", |ns| async move {
        ns.submit(&idle_job("doomed", 2, 1)).await;
        wait_for_running_pods(&ns, "doomed", 4).await;
        let all: Api<NamespaceObject> = Api::all(ns.client.clone());
        let params = DeleteParams::default();
        all.delete(&ns.name, &params).await.unwrap();
        // The namespace is deleted only after all its objects.
        let remaining = || async {
            let status = all.get_opt(&ns.name).await.unwrap()?.status;
            let conditions = status.and_then(|status| status.conditions);
            let messages = conditions.into_iter().flatten().map(|each| each.message);
            Some(messages.flatten().collect::<Vec<_>>())
        };
        eventually_within(NAMESPACE_TIMEOUT, "gone", remaining, Option::is_none).await;
    })
    .await;
}
