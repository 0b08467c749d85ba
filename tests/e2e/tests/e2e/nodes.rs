//! Silent, removed and drained nodes: jobs continue elsewhere, and no replica runs twice.

use std::process::Command;

use di_api::{ConditionType, DIJob, DIJobStatus, Phase, PodTemplate, UnitRestart, find_condition};
use di_e2e::{
    Namespace, eventually, idle_job, is_running, main_container, owned_pods, pod_spec,
    pod_template, status, wait_for_phase,
};
use k8s_openapi::api::{
    core::v1::{Node, Pod},
    events::v1::Event,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, EvictParams, ListParams, ObjectList, PostParams},
};
use serde_json::json;

use crate::units::{ALL, unit_job, wait_for_other_pods, wait_for_unit, wait_for_unit_alone};

const HOSTNAME: &str = "kubernetes.io/hostname";
const COORDINATOR: &str = "job-coordinator";

/// A node whose kubelet is stopped; dropping this starts it again.
struct Silent(String);

impl Silent {
    fn new(node: &str) -> Self {
        control_node("stop", node);
        Self(node.to_owned())
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        control_node("start", &self.0);
    }
}

fn control_node(action: &str, node: &str) {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kind/node");
    let is_reported = Command::new(program).args([action, node]).status();
    assert!(is_reported.unwrap().success(), "{program} {action} {node}");
}

fn is_ready(node: &Node) -> bool {
    let conditions = node
        .status
        .iter()
        .flat_map(|s| s.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Returns the last schedulable worker by name.
async fn pick_worker(ns: &Namespace, nodes: &Api<Node>) -> String {
    let all = nodes.list(&ListParams::default()).await.unwrap().items;
    let workers = all.iter().filter(|node| {
        let spec = node.spec.as_ref();
        is_ready(node) && spec.is_none_or(|spec| spec.taints.iter().flatten().next().is_none())
    });
    let node = workers.map(ResourceExt::name_any).max().unwrap();
    // The scheduler learns later than this test that the node is back.
    let mut first = pod_template(&["hold"]);
    first["metadata"] = json!({"name": "first"});
    first["spec"]["nodeSelector"] = json!({HOSTNAME: node});
    first["spec"]["containers"][0]["env"] = json!([{"name": "COORDINATOR_PORT", "value": "22273"}]);
    let first: Pod = serde_json::from_value(first).unwrap();
    let (pods, new): (Api<Pod>, _) = (ns.api(), PostParams::default());
    // A new namespace accepts pods once its service account exists.
    eventually("made", || pods.create(&new, &first), Result::is_ok)
        .await
        .unwrap();
    let runs = |found: &kube::Result<Pod>| found.as_ref().is_ok_and(is_running);
    eventually("runs there", || pods.get("first"), runs)
        .await
        .unwrap();
    let now = DeleteParams::default().grace_period(0);
    pods.delete("first", &now).await.unwrap();
    node
}

/// Prefers this node for the pods of a template, and evicts them soon after it is lost.
fn prefer_node(template: &mut PodTemplate, node: &str) {
    let spec = pod_spec(template);
    let on_it = json!({"key": HOSTNAME, "operator": "In", "values": [node]});
    spec["affinity"] = json!({"nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": {"matchExpressions": [on_it]}}],
    }});
    let leave = |key: &str| json!({"key": format!("node.kubernetes.io/{key}"), "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 2});
    spec["tolerations"] = json!([leave("unreachable"), leave("not-ready")]);
}

/// Keeps the pods of a template off this node.
fn avoid_node(template: &mut PodTemplate, node: &str) {
    let elsewhere = json!({"key": HOSTNAME, "operator": "NotIn", "values": [node]});
    let terms = json!([{"matchExpressions": [elsewhere]}]);
    pod_spec(template)["affinity"] = json!({"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
    }});
}

/// A job with a unit of three collectors, of which only the leader is not on this node.
fn unit_job_on(node: &str, name: &str, restart: UnitRestart) -> DIJob {
    let mut job = unit_job(name, restart);
    let collector = job.spec.collector.as_mut().unwrap();
    let mut leader = collector.template.clone();
    avoid_node(&mut leader, node);
    prefer_node(&mut collector.template, node);
    collector.unit.as_mut().unwrap().leader_template = Some(leader);
    avoid_node(&mut job.spec.coordinator.template, node);
    job
}

/// A job with one collector. The coordinator keeps the default tolerations, so that it stays on a
/// lost node for minutes.
fn job_on(node: &str) -> DIJob {
    let mut job = idle_job("job", 1, 0);
    prefer_node(&mut job.spec.collector.as_mut().unwrap().template, node);
    prefer_node(&mut job.spec.coordinator.template, node);
    pod_spec(&mut job.spec.coordinator.template)["tolerations"] = json!(null);
    job
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

/// Waits until coordinator and collector run, and returns them in this order.
async fn wait_for_both_running(ns: &Namespace) -> Vec<Pod> {
    let both = |pods: &Vec<Pod>| pods.len() == 2 && pods.iter().all(is_running);
    let mut pods = eventually("both run", || owned_pods(ns, "job"), both).await;
    pods.sort_by_key(|pod| pod.name_any() != COORDINATOR);
    pods
}

async fn wait_for_node_ready(nodes: &Api<Node>, node: &str) {
    let ready = |found: &kube::Result<Node>| found.as_ref().is_ok_and(is_ready);
    eventually("ready", || nodes.get(node), ready)
        .await
        .unwrap();
}

#[tokio::test]
async fn silent_node_moves_replicas_and_keeps_coordinator() {
    Namespace::with("silent", |ns| async move {
        let nodes: Api<Node> = Api::all(ns.client.clone());
        let node = pick_worker(&ns, &nodes).await;
        ns.submit(&job_on(&node)).await;
        let before = wait_for_both_running(&ns).await;
        assert!(before.iter().all(|pod| node_of(pod) == Some(&node)));

        let silent = Silent::new(&node);
        let seen = wait_for_phase(&ns, "job", Phase::Unknown).await;
        let running = find_condition(&seen.conditions, ConditionType::Running).unwrap();
        assert_eq!(
            (running.status.as_str(), running.reason.as_str()),
            ("False", "NodeLost")
        );
        let lost = before[1].name_any();
        let elsewhere = |pods: &Vec<Pod>| {
            let other = |pod: &Pod| {
                let name = pod.name_any();
                name != lost
                    && name != COORDINATOR
                    && node_of(pod) != Some(&node)
                    && is_running(pod)
            };
            pods.iter().any(other)
        };
        let pods = eventually(
            "another collector elsewhere",
            || owned_pods(&ns, "job"),
            elsewhere,
        )
        .await;
        assert_eq!(pods.len(), 3, "{pods:#?}");
        let old = pods.iter().find(|pod| pod.name_any() == lost).unwrap();
        assert!(old.metadata.deletion_timestamp.is_some());
        drop(silent);

        wait_for_phase(&ns, "job", Phase::Running).await;
        let after = wait_for_both_running(&ns).await;
        assert_eq!(
            after[0].uid(),
            before[0].uid(),
            "the coordinator has run on"
        );
        assert_ne!(after[1].uid(), before[1].uid());
        assert_eq!(status(&ns, "job").await.restarts, 0);
        wait_for_node_ready(&nodes, &node).await;
    })
    .await;
}

#[tokio::test]
async fn pods_of_removed_node_restart_elsewhere() {
    Namespace::with("removed", |ns| async move {
        let nodes: Api<Node> = Api::all(ns.client.clone());
        let node = pick_worker(&ns, &nodes).await;
        ns.submit(&job_on(&node)).await;
        let before = wait_for_both_running(&ns).await;
        assert!(before.iter().all(|pod| node_of(pod) == Some(&node)));

        let silent = Silent::new(&node);
        nodes.delete(&node, &DeleteParams::default()).await.unwrap();
        let elsewhere = |pods: &Vec<Pod>| {
            let recreated = |pod: &Pod| node_of(pod) != Some(&node) && is_running(pod);
            pods.len() == 2 && pods.iter().all(recreated)
        };
        let after = eventually("both elsewhere", || owned_pods(&ns, "job"), elsewhere).await;
        let coordinator = after.iter().find(|pod| pod.name_any() == COORDINATOR);
        assert_ne!(coordinator.unwrap().uid(), before[0].uid());
        assert!(
            after
                .iter()
                .all(|pod| pod.name_any() != before[1].name_any())
        );
        assert_eq!(wait_for_phase(&ns, "job", Phase::Running).await.restarts, 0);
        drop(silent);
        wait_for_node_ready(&nodes, &node).await;
    })
    .await;
}

#[tokio::test]
async fn unit_survives_loss_of_a_node() {
    Namespace::with("unit-node", |ns| async move {
        let nodes: Api<Node> = Api::all(ns.client.clone());
        let node = pick_worker(&ns, &nodes).await;
        let jobs = [
            ("whole", UnitRestart::Unit, ALL),
            ("single", UnitRestart::Pod, &ALL[1..]),
        ];
        for (job, restart, _) in jobs {
            ns.submit(&unit_job_on(&node, job, restart)).await;
        }
        let mut units = Vec::new();
        for (job, ..) in jobs {
            let unit = wait_for_unit(&ns, job).await;
            let pods = wait_for_unit_alone(&ns, job, &unit).await;
            let is_there = pods.iter().map(|pod| node_of(pod) == Some(&node));
            assert_eq!(is_there.collect::<Vec<_>>(), [false, true, true]);
            units.push(unit);
        }

        let silent = Silent::new(&node);
        for ((job, _, replaced), unit) in jobs.into_iter().zip(&mut units) {
            *unit = wait_for_other_pods(&ns, job, unit, replaced).await;
        }
        drop(silent);
        wait_for_node_ready(&nodes, &node).await;
        for ((job, ..), unit) in jobs.into_iter().zip(&units) {
            let pods = wait_for_unit_alone(&ns, job, unit).await;
            assert!(pods.iter().all(|pod| node_of(pod) != Some(&node)));
        }
    })
    .await;
}

#[tokio::test]
async fn evicted_pods_restart_without_counting_as_failures() {
    Namespace::with("evicted", |ns| async move {
        ns.submit(&idle_job("job", 1, 0)).await;
        let before = wait_for_both_running(&ns).await;
        let pods: Api<Pod> = ns.api();
        for pod in &before {
            let evicted = pods.evict(&pod.name_any(), &EvictParams::default()).await;
            evicted.unwrap();
        }
        let recreated = |pods: &Vec<Pod>| {
            let is_new = |pod: &Pod| before.iter().all(|old| old.uid() != pod.uid());
            pods.len() == 2 && pods.iter().all(|pod| is_new(pod) && is_running(pod))
        };
        let after = eventually("both recreated", || owned_pods(&ns, "job"), recreated).await;
        assert!(after.iter().any(|pod| pod.name_any() == COORDINATOR));
        assert!(
            after
                .iter()
                .all(|pod| pod.name_any() != before[1].name_any())
        );
        assert_eq!(wait_for_phase(&ns, "job", Phase::Running).await.restarts, 0);
    })
    .await;
}

/// The kubelet evicts the pod without grace, because the replica exceeds its ephemeral storage.
#[tokio::test]
async fn pod_evicted_by_kubelet_is_replaced_and_reported() {
    Namespace::with("thrown-out", |ns| async move {
        let mut job = idle_job("job", 1, 0);
        let collector = &mut job.spec.collector.as_mut().unwrap().template;
        // Its log alone exceeds this.
        let little = json!({"limits": {"ephemeral-storage": "1"}});
        main_container(collector)["resources"] = little;
        ns.submit(&job).await;
        let why = |pod: &Pod| pod.status.as_ref().and_then(|status| status.reason.clone());
        let thrown_out = |pod: &Pod| why(pod).as_deref() == Some("Evicted");
        let pods = eventually(
            "one is thrown out",
            || owned_pods(&ns, "job"),
            |pods: &Vec<Pod>| pods.iter().any(thrown_out),
        )
        .await;
        let lost = pods.into_iter().find(thrown_out).unwrap().name_any();

        let replaced = |status: &DIJobStatus| {
            let mut plan = status.plan.iter();
            plan.any(|entry| entry.replaces.as_ref() == Some(&lost) && entry.index == 0)
                && status.phase == Some(Phase::Running)
        };
        let now = eventually("the collector is replaced", || status(&ns, "job"), replaced).await;
        assert_eq!(now.restarts, 0);
        let events: Api<Event> = ns.api();
        let is_reported = |events: &kube::Result<ObjectList<Event>>| {
            let mut notes = events
                .iter()
                .flatten()
                .filter_map(|event| event.note.as_ref());
            notes.any(|note| note.contains(&lost) && note.contains("Evicted"))
        };
        let params = ListParams::default();
        eventually(
            "the eviction is reported",
            || events.list(&params),
            is_reported,
        )
        .await
        .unwrap();
    })
    .await;
}
