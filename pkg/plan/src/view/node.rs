use di_api::{GPU_RESOURCE, quantity};
use k8s_openapi::api::core::v1::{Node, Taint, Toleration};

/// The part of a node that this crate needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeView {
    /// Allocatable GPUs.
    pub gpus: i32,
    /// Whether the node is ready and not cordoned.
    pub schedulable: bool,
    /// Taints with the effect `NoSchedule` or `NoExecute`.
    pub taints: Vec<Taint>,
}

impl NodeView {
    /// The view of a node.
    pub fn new(node: &Node) -> Self {
        let spec = node.spec.as_ref();
        let status = node.status.as_ref();
        let gpus = status
            .and_then(|status| status.allocatable.as_ref()?.get(GPU_RESOURCE))
            .and_then(|gpus| quantity::parse_count(&gpus.0));
        let conditions = status.iter().flat_map(|s| s.conditions.iter().flatten());
        let ready = conditions
            .into_iter()
            .any(|c| c.type_ == "Ready" && c.status == "True");
        let cordoned = spec.is_some_and(|spec| spec.unschedulable == Some(true));
        let taints = spec.iter().flat_map(|spec| spec.taints.iter().flatten());
        Self {
            gpus: gpus.unwrap_or(0),
            schedulable: ready && !cordoned,
            taints: taints
                .filter(|taint| ["NoSchedule", "NoExecute"].contains(&taint.effect.as_str()))
                .map(|taint| Taint {
                    time_added: None,
                    ..taint.clone()
                })
                .collect(),
        }
    }

    /// Whether the node accepts pods with these tolerations.
    pub fn accepts_pods(&self, tolerations: &[Toleration]) -> bool {
        // The admission plugin ExtendedResourceToleration adds this toleration to pods with GPUs.
        let is_tolerated = |taint: &Taint| {
            taint.key == GPU_RESOURCE || tolerations.iter().any(|t| tolerates_taint(t, taint))
        };
        self.schedulable && self.taints.iter().all(is_tolerated)
    }
}

/// Whether a toleration matches a taint, by the rules of the scheduler.
fn tolerates_taint(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.as_deref().unwrap_or_default();
    let key = toleration.key.as_deref().unwrap_or_default();
    let exists = toleration.operator.as_deref() == Some("Exists");
    let value = exists
        || toleration.value.as_deref().unwrap_or_default()
            == taint.value.as_deref().unwrap_or_default();
    (effect.is_empty() || effect == taint.effect)
        && (key == taint.key || (key.is_empty() && exists))
        && value
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node_view(spec: &Value, ready: &str) -> NodeView {
        let node = json!({
            "metadata": {"name": "n"},
            "spec": spec,
            "status": {
                "capacity": {"nvidia.com/gpu": "8"}, "allocatable": {"nvidia.com/gpu": "4", "cpu": "8"},
                "conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": ready}],
            },
        });
        NodeView::new(&serde_json::from_value(node).unwrap())
    }

    #[test]
    fn node_with_untolerated_taint_accepts_no_pods() {
        let taint = |key: &str, effect: &str| json!({"taints": [{"key": key, "value": "ml", "effect": effect}]});
        let tolerations: Vec<Toleration> = serde_json::from_value(json!([
            {"key": "dedicated", "value": "ml", "effect": "NoSchedule"}, {"key": "any", "operator": "Exists"},
        ]))
        .unwrap();
        for (spec, ready, accepts) in [
            (json!({}), "True", true),
            (json!({}), "False", false),
            (json!({}), "Unknown", false),
            (json!({"unschedulable": true}), "True", false),
            (
                taint("node.kubernetes.io/not-ready", "NoExecute"),
                "True",
                false,
            ),
            (
                taint("node.kubernetes.io/memory-pressure", "NoSchedule"),
                "True",
                false,
            ),
            (taint("other", "PreferNoSchedule"), "True", true),
            (taint("other", "NoSchedule"), "True", false),
            (taint("dedicated", "NoSchedule"), "True", true),
            (taint("dedicated", "NoExecute"), "True", false),
            (taint("any", "NoExecute"), "True", true),
            (taint("nvidia.com/gpu", "NoSchedule"), "True", true),
        ] {
            let view = node_view(&spec, ready);
            assert_eq!(view.gpus, 4);
            assert_eq!(view.accepts_pods(&tolerations), accepts, "{spec} {ready}");
        }
        assert!(node_view(&taint("x", "NoSchedule"), "True").accepts_pods(
            &serde_json::from_value::<Vec<_>>(json!([{"operator": "Exists"}])).unwrap()
        ));
        assert_eq!(NodeView::new(&Node::default()), NodeView::default());
    }
}
