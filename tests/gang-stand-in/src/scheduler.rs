use std::{
    collections::{BTreeMap, HashMap},
    fmt::Debug,
    hash::Hash,
    sync::Arc,
    time::Duration,
};

use di_api::{
    names::{gang::COSCHEDULING_GROUP, labels},
    quantity::{NANOS_PER_UNIT, parse_nanos},
};
use futures::{
    FutureExt, StreamExt,
    stream::{BoxStream, select_all},
};
use k8s_openapi::{
    api::core::v1::{Binding, Node, Pod},
    apimachinery::pkg::api::resource::Quantity,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DynamicObject, Patch, PatchParams, PostParams},
    runtime::{
        WatchStreamExt,
        reflector::{Store, store::Writer},
        watcher,
        watcher::Config,
    },
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::{task::JoinHandle, time::sleep};

use crate::{
    crd::{pod_group_kind, pod_groups},
    placement::{Amounts, Decision, PODS, PodView, decide},
};

/// `schedulerName` of the pods that it places.
pub const SCHEDULER_NAME: &str = "di-test-gang";
/// Delay before a failed request is sent again.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Places the pods of one namespace until it is dropped.
///
/// It ignores selectors, affinity, tolerations and priorities, uses no node with a taint, and does
/// not know the pods of other schedulers and namespaces. So a test gives a node a resource that only
/// its pods request.
pub struct GangScheduler(JoinHandle<()>);

impl Drop for GangScheduler {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl GangScheduler {
    /// Starts the scheduler. The CRD must be installed, since a failed watch is retried with a
    /// growing delay.
    pub fn start(client: Client, namespace: &str) -> Self {
        Self(tokio::spawn(run(client, namespace.to_owned())))
    }
}

async fn run(client: Client, namespace: String) {
    let api: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let own = Config::default().fields(&format!("spec.schedulerName={SCHEDULER_NAME}"));
    let (pods, pod_changes) = watch(api.clone(), (), own);
    let nodes: Api<Node> = Api::all(client.clone());
    let (nodes, node_changes) = watch(nodes, (), Config::default());
    let groups = pod_groups(&client, &namespace);
    let (groups, group_changes) = watch(groups, pod_group_kind(), Config::default());
    let mut changes = select_all([pod_changes, node_changes, group_changes]);
    let mut binder = Binder {
        pods: api,
        bound: HashMap::new(),
    };
    while changes.next().await.is_some() {
        // Without all pods it would use the resources of a node twice.
        if !(is_complete(&pods) && is_complete(&nodes) && is_complete(&groups)) {
            continue;
        }
        let minimums = groups.state();
        let minimums = minimums.iter().map(|group| min_member(group)).collect();
        let free = nodes.state();
        let free = free.iter().filter_map(|node| free_node(node)).collect();
        while let Err(error) = binder.run_round(&pods.state(), &free, &minimums).await {
            eprintln!("gang stand-in: round failed: {error} (retrying)");
            sleep(RETRY_INTERVAL).await;
        }
    }
}

/// Returns a cache of a kind, and the stream that updates it.
fn watch<K>(api: Api<K>, kind: K::DynamicType, config: Config) -> (Store<K>, BoxStream<'static, ()>)
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Clone + Eq + Hash + Send + Sync + 'static,
{
    let writer = Writer::new(kind);
    let store = writer.as_reader();
    let changes = watcher(api, config).default_backoff().reflect(writer);
    (store, changes.map(drop).boxed())
}

/// Whether the first list of a kind is in its cache.
fn is_complete<K>(store: &Store<K>) -> bool
where
    K: Resource + Clone + 'static,
    K::DynamicType: Clone + Eq + Hash,
{
    let ready = store.wait_until_ready().now_or_never();
    ready.is_some_and(|ready| ready.is_ok())
}

/// Carries out decisions.
struct Binder {
    pods: Api<Pod>,
    /// Nodes by the UIDs of the pods that were bound to them. The cache shows them later.
    bound: HashMap<String, String>,
}

impl Binder {
    async fn run_round(
        &mut self,
        pods: &[Arc<Pod>],
        nodes: &BTreeMap<String, Amounts>,
        minimums: &BTreeMap<String, usize>,
    ) -> kube::Result<()> {
        let views = pods.iter().filter_map(|pod| self.view_pod(pod));
        let mut views: Vec<PodView> = views.collect();
        views.sort_by_key(|pod| pod.name.clone());
        for (pod, decision) in decide(&views, nodes.clone(), minimums) {
            let result = match decision {
                Decision::Bind(node) => self.bind(pod, node).await,
                Decision::Wait(message) => self.report(pod, &message).await,
            };
            match result {
                // Another client has changed or deleted the pod: the watch reports it.
                Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => {}
                other => other?,
            }
        }
        Ok(())
    }

    async fn bind(&mut self, pod: &PodView, node: String) -> kube::Result<()> {
        let binding: Binding = serde_json::from_value(json!({
            "metadata": {"name": pod.name, "uid": pod.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }))
        .unwrap();
        let params = PostParams::default();
        let _: Value = self
            .pods
            .create_subresource("binding", &pod.name, &params, &binding)
            .await?;
        self.bound.insert(pod.uid.clone(), node);
        Ok(())
    }

    /// Reports why a pod waits, in the way of kube-scheduler.
    async fn report(&self, pod: &PodView, message: &str) -> kube::Result<()> {
        if pod.message.as_deref() == Some(message) {
            return Ok(());
        }
        let condition = json!({
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
        });
        let patch = json!({"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}});
        let params = PatchParams::default();
        let patch = Patch::Strategic(patch);
        self.pods.patch_status(&pod.name, &params, &patch).await?;
        Ok(())
    }

    /// Returns the view of a pod; `None` if the pod has ended, or goes before it has a node.
    fn view_pod(&self, pod: &Pod) -> Option<PodView> {
        let (spec, status) = (pod.spec.as_ref()?, pod.status.as_ref()?);
        let uid = pod.uid()?;
        let node = spec.node_name.as_ref().or_else(|| self.bound.get(&uid));
        let has_ended = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
        if has_ended || (node.is_none() && pod.metadata.deletion_timestamp.is_some()) {
            return None;
        }
        let mut requests = Amounts::from([(PODS.to_owned(), NANOS_PER_UNIT)]);
        let resources = spec.containers.iter().filter_map(|c| c.resources.as_ref());
        // The API server takes a limit as the request if there is none.
        for quantities in resources.filter_map(|resources| resources.requests.as_ref()) {
            for (resource, amount) in parse_amounts(quantities) {
                *requests.entry(resource).or_default() += amount;
            }
        }
        let mut conditions = status.conditions.iter().flatten();
        let scheduled = conditions.find(|condition| condition.type_ == "PodScheduled");
        Some(PodView {
            name: pod.name_any(),
            job: pod.labels().get(labels::JOB).cloned().unwrap_or_default(),
            group: pod.labels().get(COSCHEDULING_GROUP).cloned(),
            requests,
            node: node.cloned(),
            message: scheduled.and_then(|condition| condition.message.clone()),
            uid,
        })
    }
}

/// Returns name and `minMember` of a PodGroup.
fn min_member(group: &DynamicObject) -> (String, usize) {
    let minimum = group.data["spec"]["minMember"].as_u64().unwrap_or_default();
    (group.name_any(), usize::try_from(minimum).unwrap())
}

/// Returns name and allocatable amounts of a node; `None` if it accepts no pods.
fn free_node(node: &Node) -> Option<(String, Amounts)> {
    let spec = node.spec.clone().unwrap_or_default();
    let is_usable =
        spec.unschedulable != Some(true) && spec.taints.is_none_or(|taints| taints.is_empty());
    let allocatable = node.status.as_ref()?.allocatable.as_ref()?;
    is_usable.then(|| (node.name_any(), parse_amounts(allocatable)))
}

fn parse_amounts(quantities: &BTreeMap<String, Quantity>) -> Amounts {
    let quantities = quantities.iter();
    quantities
        .map(|(resource, quantity)| (resource.clone(), parse_nanos(&quantity.0).unwrap()))
        .collect()
}
