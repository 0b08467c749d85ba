use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, PoisonError, RwLock},
};

use di_api::names;
use di_plan::{AggregatorTemplate, NodeView};
use kube::{Resource, ResourceExt, runtime::watcher::Event};

use crate::key::Key;

/// Objects of a watch by namespace and name. This process never writes them.
#[derive(Debug)]
pub struct ReadOnlyCache<V>(RwLock<State<V>>);

#[derive(Debug)]
struct State<V> {
    objects: HashMap<Key, V>,
    /// All objects as a shared snapshot; `None` before the first list is complete.
    snapshot: Option<Arc<[V]>>,
    /// Objects of the list in progress.
    listed: HashMap<Key, V>,
}

/// Nodes that have GPUs.
pub type NodeCache = ReadOnlyCache<NodeView>;
/// Aggregator templates of `AggregatorConfig`s.
pub type AggregatorCache = ReadOnlyCache<AggregatorTemplate>;

impl<V> Default for ReadOnlyCache<V> {
    fn default() -> Self {
        Self(RwLock::new(State {
            objects: HashMap::new(),
            snapshot: None,
            listed: HashMap::new(),
        }))
    }
}

impl<V: Clone + PartialEq> ReadOnlyCache<V> {
    /// All current objects; `None` before the first list is complete.
    pub fn list_all(&self) -> Option<Arc<[V]>> {
        let state = self.0.read().unwrap_or_else(PoisonError::into_inner);
        state.snapshot.clone()
    }

    /// Applies a watch event, and returns the keys of the changed objects.
    ///
    /// An object without a view counts as missing.
    pub(crate) fn apply_event<K: Resource>(
        &self,
        event: Event<K>,
        view: impl Fn(&K) -> Option<V>,
    ) -> Vec<Key> {
        let mut state = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let state = &mut *state;
        let mut changed = Vec::new();
        let is_list_complete = matches!(event, Event::InitDone);
        match event {
            Event::Init => state.listed.clear(),
            Event::InitApply(object) => {
                if let Some(view) = view(&object) {
                    state.listed.insert(object_key(&object), view);
                }
            }
            Event::InitDone => {
                let listed = std::mem::take(&mut state.listed);
                let before = std::mem::replace(&mut state.objects, listed);
                let keys = before.keys().chain(state.objects.keys());
                let keys: HashSet<&Key> = keys.collect();
                let keys = keys.into_iter();
                changed.extend(
                    keys.filter(|key| before.get(*key) != state.objects.get(*key))
                        .cloned(),
                );
            }
            Event::Apply(object) => {
                let (key, view) = (object_key(&object), view(&object));
                if state.objects.get(&key) != view.as_ref() {
                    match view {
                        Some(view) => state.objects.insert(key.clone(), view),
                        None => state.objects.remove(&key),
                    };
                    changed.push(key);
                }
            }
            Event::Delete(object) => {
                let key = object_key(&object);
                changed.extend(state.objects.remove(&key).map(|_| key));
            }
        }
        if !changed.is_empty() || is_list_complete {
            state.snapshot = Some(state.objects.values().cloned().collect());
        }
        changed
    }
}

impl AggregatorCache {
    /// Applies a watch event, and returns the keys of the changed configurations.
    ///
    /// The first complete list concerns all namespaces, like a change of the orchestrator's
    /// configuration: a configuration that is not listed is now known to be missing.
    pub(crate) fn apply_config_event<K: Resource>(
        &self,
        event: Event<K>,
        view: impl Fn(&K) -> Option<AggregatorTemplate>,
    ) -> Vec<Key> {
        let was_known = self.list_all().is_some();
        let mut changed = self.apply_event(event, view);
        let is_global = |(namespace, _): &Key| namespace == names::SYSTEM_NAMESPACE;
        if !was_known && self.list_all().is_some() && !changed.iter().any(is_global) {
            let system = names::SYSTEM_NAMESPACE.to_owned();
            changed.push((system, names::AGGREGATOR_CONFIG.to_owned()));
        }
        changed
    }

    /// The aggregator template of a namespace, or else that of the orchestrator's namespace.
    pub fn template_for(&self, namespace: &str) -> AggregatorTemplate {
        let state = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if state.snapshot.is_none() {
            return AggregatorTemplate::Unknown;
        }
        let mut namespaces = [namespace, names::SYSTEM_NAMESPACE].into_iter();
        let found = namespaces.find_map(|namespace| {
            let key = (namespace.to_owned(), names::AGGREGATOR_CONFIG.to_owned());
            state.objects.get(&key)
        });
        found.cloned().unwrap_or(AggregatorTemplate::Missing)
    }
}

fn object_key<K: Resource>(object: &K) -> Key {
    (object.namespace().unwrap_or_default(), object.name_any())
}

#[cfg(test)]
mod tests {
    use di_api::{AggregatorConfig, Reason};
    use serde_json::json;

    use super::*;

    fn config_with_image(namespace: &str, image: &str) -> AggregatorConfig {
        serde_json::from_value(json!({
            "apiVersion": "diengine.opendilab.org/v1alpha2", "kind": "AggregatorConfig",
            "metadata": {"name": "aggregator-config", "namespace": namespace},
            "spec": {"aggregator": {"template": {"spec": {"containers": [{"name": "di-container", "image": image}]}}}},
        }))
        .unwrap()
    }

    #[test]
    fn first_list_reports_missing_configuration_once() {
        for (listed, expected) in [
            (None, &["di-system"][..]),
            (Some("lab"), &["lab", "di-system"]),
            (Some("di-system"), &["di-system"]),
        ] {
            let cache = AggregatorCache::default();
            let list = || {
                let view = |config: &AggregatorConfig| {
                    let config = serde_json::to_value(config).unwrap();
                    Some(AggregatorTemplate::from_config(&config))
                };
                cache.apply_config_event(Event::Init, view);
                if let Some(namespace) = listed {
                    cache.apply_config_event(
                        Event::InitApply(config_with_image(namespace, "i")),
                        view,
                    );
                }
                assert_eq!(
                    cache.list_all().is_some(),
                    cache.template_for("rl") != AggregatorTemplate::Unknown
                );
                let changed = cache.apply_config_event(Event::InitDone, view);
                let changed = changed.into_iter().map(|(namespace, _)| namespace);
                changed.collect::<Vec<_>>()
            };
            assert_eq!(cache.template_for("rl"), AggregatorTemplate::Unknown);
            assert_eq!(list(), expected);
            assert_ne!(cache.template_for("rl"), AggregatorTemplate::Unknown);
            assert!(list().is_empty());
        }
    }

    #[test]
    fn namespace_configuration_overrides_global_one() {
        let cache = AggregatorCache::default();
        let apply = |event| {
            let view = |config: &AggregatorConfig| {
                Some(AggregatorTemplate::from_config(
                    &serde_json::to_value(config).unwrap(),
                ))
            };
            cache.apply_event(event, view)
        };
        let image = |namespace: &str| {
            let template = cache.template_for(namespace);
            let pod = template.pod_template()?.decode().unwrap().spec?;
            pod.containers[0].image.clone()
        };
        assert_eq!(cache.template_for("rl"), AggregatorTemplate::Unknown);
        apply(Event::Init);
        apply(Event::InitApply(config_with_image("di-system", "theirs")));
        assert_eq!(cache.template_for("rl"), AggregatorTemplate::Unknown);
        assert_eq!(apply(Event::InitDone).len(), 1);
        assert_eq!(cache.list_all().unwrap().len(), 1);
        assert_eq!(image("rl").as_deref(), Some("theirs"));
        assert_eq!(
            apply(Event::Apply(config_with_image("rl", "own")))[0].0,
            "rl"
        );
        assert_eq!(image("rl").as_deref(), Some("own"));
        assert_eq!(image("other").as_deref(), Some("theirs"));
        assert_eq!(cache.template_for("rl").pod_port(), Some(22272));
        assert_eq!(apply(Event::Apply(config_with_image("rl", "own"))), []);
        apply(Event::Delete(config_with_image("di-system", "theirs")));
        assert_eq!(cache.template_for("other"), AggregatorTemplate::Missing);
        let (reason, message) = cache.template_for("other").missing_reason("other").unwrap();
        assert_eq!(reason, Reason::MissingAggregatorConfig);
        assert!(
            message.contains("namespace other or di-system"),
            "{message}"
        );
        apply(Event::Apply(config_with_image("rl", "")));
        let (reason, message) = cache.template_for("rl").missing_reason("rl").unwrap();
        assert_eq!(reason, Reason::InvalidAggregatorConfig);
        assert!(message.contains("containers[0].image"), "{message}");
    }
}
