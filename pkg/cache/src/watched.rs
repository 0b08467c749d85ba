use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, PoisonError, RwLock},
};

use di_api::names;
use di_plan::{AggregatorTemplate, NodeView};
use kube::{Resource, ResourceExt, runtime::watcher::Event};

use crate::Key;

/// Objects that are only read, by namespace and name, as a watch shows them.
#[derive(Debug)]
pub struct Watched<V>(RwLock<Shown<V>>);

#[derive(Debug)]
struct Shown<V> {
    objects: HashMap<Key, V>,
    /// The same, to be handed out; nothing before the first list is complete.
    all: Option<Arc<[V]>>,
    /// What a list that is under way has brought so far.
    listed: HashMap<Key, V>,
}

/// Nodes that have GPUs.
pub type NodeCache = Watched<NodeView>;
/// `AggregatorConfig`s, by what is made from them.
pub type AggregatorCache = Watched<AggregatorTemplate>;

impl<V> Default for Watched<V> {
    fn default() -> Self {
        Self(RwLock::new(Shown {
            objects: HashMap::new(),
            all: None,
            listed: HashMap::new(),
        }))
    }
}

impl<V: Clone + PartialEq> Watched<V> {
    /// All objects as they are now; nothing before the first list is complete.
    pub fn all(&self) -> Option<Arc<[V]>> {
        let shown = self.0.read().unwrap_or_else(PoisonError::into_inner);
        shown.all.clone()
    }

    /// Takes what a watch shows, and returns what is other than before. Objects without a view are none.
    pub(crate) fn take<K: Resource>(
        &self,
        event: Event<K>,
        view: impl Fn(&K) -> Option<V>,
    ) -> Vec<Key> {
        let mut shown = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let shown = &mut *shown;
        let mut changed = Vec::new();
        let complete = matches!(event, Event::InitDone);
        match event {
            Event::Init => shown.listed.clear(),
            Event::InitApply(object) => {
                if let Some(view) = view(&object) {
                    shown.listed.insert(key(&object), view);
                }
            }
            Event::InitDone => {
                let listed = std::mem::take(&mut shown.listed);
                let before = std::mem::replace(&mut shown.objects, listed);
                let keys = before.keys().chain(shown.objects.keys());
                let keys: HashSet<&Key> = keys.collect();
                let keys = keys.into_iter();
                changed.extend(
                    keys.filter(|key| before.get(*key) != shown.objects.get(*key))
                        .cloned(),
                );
            }
            Event::Apply(object) => {
                let (key, view) = (key(&object), view(&object));
                if shown.objects.get(&key) != view.as_ref() {
                    match view {
                        Some(view) => shown.objects.insert(key.clone(), view),
                        None => shown.objects.remove(&key),
                    };
                    changed.push(key);
                }
            }
            Event::Delete(object) => {
                let key = key(&object);
                changed.extend(shown.objects.remove(&key).map(|_| key));
            }
        }
        if !changed.is_empty() || complete {
            shown.all = Some(shown.objects.values().cloned().collect());
        }
        changed
    }
}

impl AggregatorCache {
    /// Takes what a watch shows, and returns what is other than before. The first list is news to all namespaces, as the orchestrator's own
    /// configuration would be: what it has not brought is not there.
    pub(crate) fn take_config<K: Resource>(
        &self,
        event: Event<K>,
        view: impl Fn(&K) -> Option<AggregatorTemplate>,
    ) -> Vec<Key> {
        let was_known = self.all().is_some();
        let mut changed = self.take(event, view);
        let reaches_all = |(namespace, _): &Key| namespace == names::SYSTEM_NAMESPACE;
        if !was_known && self.all().is_some() && !changed.iter().any(reaches_all) {
            let system = names::SYSTEM_NAMESPACE.to_owned();
            changed.push((system, names::AGGREGATOR_CONFIG.to_owned()));
        }
        changed
    }

    /// The template for aggregators of a namespace: its own, else the orchestrator's.
    pub fn of(&self, namespace: &str) -> AggregatorTemplate {
        let shown = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if shown.all.is_none() {
            return AggregatorTemplate::Unknown;
        }
        let mut places = [namespace, names::SYSTEM_NAMESPACE].into_iter();
        let found = places.find_map(|namespace| {
            let key = (namespace.to_owned(), names::AGGREGATOR_CONFIG.to_owned());
            shown.objects.get(&key)
        });
        found.cloned().unwrap_or(AggregatorTemplate::Missing)
    }
}

fn key<K: Resource>(object: &K) -> Key {
    (object.namespace().unwrap_or_default(), object.name_any())
}

#[cfg(test)]
mod tests {
    use di_api::{AggregatorConfig, Reason};
    use serde_json::json;

    use super::*;

    fn config(namespace: &str, image: &str) -> AggregatorConfig {
        serde_json::from_value(json!({
            "apiVersion": "diengine.opendilab.org/v1alpha2", "kind": "AggregatorConfig",
            "metadata": {"name": "aggregator-config", "namespace": namespace},
            "spec": {"aggregator": {"template": {"spec": {"containers": [{"name": "di-container", "image": image}]}}}},
        }))
        .unwrap()
    }

    #[test]
    fn that_there_is_no_configuration_is_news_once() {
        for (listed, told) in [
            (None, &["di-system"][..]),
            (Some("lab"), &["lab", "di-system"]),
            (Some("di-system"), &["di-system"]),
        ] {
            let cache = AggregatorCache::default();
            let list = || {
                let view = |config: &AggregatorConfig| {
                    let config = serde_json::to_value(config).unwrap();
                    Some(AggregatorTemplate::of(&config))
                };
                cache.take_config(Event::Init, view);
                if let Some(namespace) = listed {
                    cache.take_config(Event::InitApply(config(namespace, "i")), view);
                }
                assert_eq!(
                    cache.all().is_some(),
                    cache.of("rl") != AggregatorTemplate::Unknown
                );
                let changed = cache.take_config(Event::InitDone, view);
                let changed = changed.into_iter().map(|(namespace, _)| namespace);
                changed.collect::<Vec<_>>()
            };
            assert_eq!(cache.of("rl"), AggregatorTemplate::Unknown);
            assert_eq!(list(), told);
            assert_ne!(cache.of("rl"), AggregatorTemplate::Unknown);
            assert!(list().is_empty());
        }
    }

    #[test]
    fn a_namespaces_own_configuration_wins() {
        let cache = AggregatorCache::default();
        let take = |event| {
            let view = |config: &AggregatorConfig| {
                Some(AggregatorTemplate::of(
                    &serde_json::to_value(config).unwrap(),
                ))
            };
            cache.take(event, view)
        };
        let image = |namespace: &str| {
            let template = cache.of(namespace);
            let pod = template.found()?.spec.clone()?;
            pod.containers[0].image.clone()
        };
        assert_eq!(cache.of("rl"), AggregatorTemplate::Unknown);
        take(Event::Init);
        take(Event::InitApply(config("di-system", "theirs")));
        assert_eq!(cache.of("rl"), AggregatorTemplate::Unknown);
        assert_eq!(take(Event::InitDone).len(), 1);
        assert_eq!(cache.all().unwrap().len(), 1);
        assert_eq!(image("rl").as_deref(), Some("theirs"));
        assert_eq!(take(Event::Apply(config("rl", "own")))[0].0, "rl");
        assert_eq!(image("rl").as_deref(), Some("own"));
        assert_eq!(image("other").as_deref(), Some("theirs"));
        assert_eq!(cache.of("rl").port(), Some(22272));
        assert_eq!(take(Event::Apply(config("rl", "own"))), []);
        take(Event::Delete(config("di-system", "theirs")));
        assert_eq!(cache.of("other"), AggregatorTemplate::Missing);
        let (reason, message) = cache.of("other").lack("other").unwrap();
        assert_eq!(reason, Reason::MissingAggregatorConfig);
        assert!(
            message.contains("namespace other nor in di-system"),
            "{message}"
        );
        take(Event::Apply(config("rl", "")));
        let (reason, message) = cache.of("rl").lack("rl").unwrap();
        assert_eq!(reason, Reason::InvalidAggregatorConfig);
        assert!(message.contains("containers[0].image"), "{message}");
    }
}
