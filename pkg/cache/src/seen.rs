use std::{borrow::Cow, marker::PhantomData};

use di_plan::{PodView, ServiceView};
use k8s_openapi::{
    api::core::v1::{Pod, Service},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::Resource;
use serde::{Deserialize, Deserializer};

use crate::View;

/// A view of objects of this kind.
pub(crate) trait ViewOf<K>: View {
    /// The view of an object; nothing for one that is not of a job.
    fn of(object: &K) -> Option<Self>;
}

impl ViewOf<Pod> for PodView {
    fn of(object: &Pod) -> Option<Self> {
        Self::new(object)
    }
}

impl ViewOf<Service> for ServiceView {
    fn of(object: &Service) -> Option<Self> {
        Self::new(object)
    }
}

/// An object of which nothing but its view is left once it is decoded. Whole ones come by the page, and their memory would stay with the process.
#[derive(Clone, Debug)]
pub(crate) struct Seen<K, V> {
    /// The version of the object, by which a watch goes on, and its UID, by which it is known whatever becomes of its labels.
    metadata: ObjectMeta,
    pub view: Option<V>,
    kind: PhantomData<K>,
}

impl<'de, K: Deserialize<'de> + Resource, V: ViewOf<K>> Deserialize<'de> for Seen<K, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut object = K::deserialize(deserializer)?;
        let view = V::of(&object);
        let whole = object.meta_mut();
        let metadata = ObjectMeta {
            resource_version: whole.resource_version.take(),
            uid: whole.uid.take(),
            ..ObjectMeta::default()
        };
        Ok(Self {
            metadata,
            view,
            kind: PhantomData,
        })
    }
}

impl<K: Resource<DynamicType = ()>, V> Resource for Seen<K, V> {
    type DynamicType = ();
    type Scope = K::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        K::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        K::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        K::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        K::plural(&())
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
    fn pods_are_known_by_their_view_alone() {
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
        let list: ObjectList<Seen<Pod, PodView>> = serde_json::from_value(list).unwrap();
        let versions = list
            .iter()
            .map(|seen| seen.meta().resource_version.as_deref());
        assert_eq!(versions.collect::<Vec<_>>(), [Some("1"), Some("2")]);
        let whole: Pod = serde_json::from_value(ours).unwrap();
        assert_eq!(list.items[0].view, PodView::new(&whole));
        assert_eq!(list.items[1].view, None);
        assert_eq!(
            Seen::<Pod, PodView>::url_path(&(), Some("ns")),
            Pod::url_path(&(), Some("ns"))
        );
    }
}
