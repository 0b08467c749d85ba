use std::{borrow::Cow, marker::PhantomData};

use di_plan::{GroupView, PodView, ServiceView, WorkloadView};
use k8s_openapi::{
    api::core::v1::{Pod, Service},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Resource, api::DynamicObject};
use serde::{Deserialize, Deserializer};

use crate::view::View;

/// A view that is made from objects of kind `K`.
pub(crate) trait Project<K>: View {
    /// The view of an object; `None` if the object does not belong to a job.
    fn from_object(object: &K) -> Option<Self>;
}

impl Project<Pod> for PodView {
    fn from_object(object: &Pod) -> Option<Self> {
        Self::new(object)
    }
}

impl Project<Service> for ServiceView {
    fn from_object(object: &Service) -> Option<Self> {
        Self::new(object)
    }
}

impl Project<DynamicObject> for WorkloadView {
    fn from_object(object: &DynamicObject) -> Option<Self> {
        Self::new(object)
    }
}

impl Project<DynamicObject> for GroupView {
    fn from_object(object: &DynamicObject) -> Option<Self> {
        Self::new(object)
    }
}

/// An object that is reduced to its view while it is decoded.
///
/// kube decodes lists by the page. The memory of whole objects would stay with the process.
#[derive(Clone, Debug)]
pub(crate) struct Projected<K, V> {
    /// The version, from which a watch continues, and the UID, which survives label changes.
    metadata: ObjectMeta,
    pub view: Option<V>,
    kind: PhantomData<K>,
}

impl<'de, K: Deserialize<'de> + Resource, V: Project<K>> Deserialize<'de> for Projected<K, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut object = K::deserialize(deserializer)?;
        let view = V::from_object(&object);
        let original = object.meta_mut();
        let metadata = ObjectMeta {
            resource_version: original.resource_version.take(),
            uid: original.uid.take(),
            ..ObjectMeta::default()
        };
        Ok(Self {
            metadata,
            view,
            kind: PhantomData,
        })
    }
}

impl<K: Resource, V> Resource for Projected<K, V> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(kind: &K::DynamicType) -> Cow<'_, str> {
        K::kind(kind)
    }

    fn group(kind: &K::DynamicType) -> Cow<'_, str> {
        K::group(kind)
    }

    fn version(kind: &K::DynamicType) -> Cow<'_, str> {
        K::version(kind)
    }

    fn plural(kind: &K::DynamicType) -> Cow<'_, str> {
        K::plural(kind)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use kube::core::ObjectList;
    use serde_json::json;

    use super::*;

    #[test]
    fn decoded_pod_list_keeps_only_views() {
        let pod = |version: &str, labels: serde_json::Value| {
            json!({
                "metadata": {"name": "p", "namespace": "ns", "uid": "u", "resourceVersion": version, "labels": labels},
                "spec": {"containers": [{"name": "di-container"}], "nodeName": "n"},
            })
        };
        let ours = pod("1", json!({"dijob-name": "j"}));
        let list = json!({
            "apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "9"},
            "items": [ours, pod("2", json!({}))],
        });
        let list: ObjectList<Projected<Pod, PodView>> = serde_json::from_value(list).unwrap();
        let versions = list
            .iter()
            .map(|object| object.meta().resource_version.as_deref());
        assert_eq!(versions.collect::<Vec<_>>(), [Some("1"), Some("2")]);
        let whole: Pod = serde_json::from_value(ours).unwrap();
        assert_eq!(list.items[0].view, PodView::new(&whole));
        assert_eq!(list.items[1].view, None);
        assert_eq!(
            Projected::<Pod, PodView>::url_path(&(), Some("ns")),
            Pod::url_path(&(), Some("ns"))
        );
    }
}
