use futures::{StreamExt, stream::BoxStream};
use json_patch::Patch as JsonPatch;
use kube::{
    core::{
        ApiResource, DynamicObject, GroupVersionKind, ObjectList, Request, Resource as _, Status,
        TypeMeta, WatchEvent,
        params::{
            DeleteParams, GetParams, ListParams, Patch, PatchParams, PostParams, WatchParams,
        },
    },
    error::Error as KubeError,
};
use serde_json::Value;

use crate::{
    Cluster, Error, Result,
    connection::names::{check_name, check_namespace},
};

/// Field manager of all writes but those of the installation.
const FIELD_MANAGER: &str = "kubectl-di";
/// Default page size of lists, as in kubectl.
const PAGE_SIZE: u32 = 500;

/// Requests for JSON objects of one kind in one or all namespaces.
///
/// `kube::Api` would decode the objects and drop unknown fields.
pub(crate) struct Resource<'a> {
    cluster: &'a Cluster,
    api: &'a ApiResource,
    namespace: Option<String>,
    request: Request,
}

/// A list of objects with its resourceVersion.
pub(crate) struct ListedObjects {
    pub(crate) items: Vec<Value>,
    pub(crate) resource_version: String,
}

impl<'a> Resource<'a> {
    pub(crate) fn new(cluster: &'a Cluster, api: &'a ApiResource, namespace: Option<&str>) -> Self {
        let request = Request::new(DynamicObject::url_path(api, namespace));
        Self {
            cluster,
            api,
            namespace: namespace.map(str::to_owned),
            request,
        }
    }

    pub(crate) async fn get(&self, name: &str) -> Result<Value> {
        check_name(name)?;
        self.send_request(self.request.get(name, &GetParams::default()))
            .await
    }

    /// Reads a subresource of an object.
    pub(crate) async fn get_subresource(&self, name: &str, subresource: &str) -> Result<Value> {
        check_name(name)?;
        self.send_request(self.request.get_subresource(subresource, name))
            .await
    }

    pub(crate) async fn list(&self, params: &ListParams) -> Result<ListedObjects> {
        let mut params = params.clone();
        params.limit = Some(params.limit.unwrap_or(PAGE_SIZE)).filter(|page| *page > 0);
        let mut items = Vec::new();
        loop {
            let page: ObjectList<Value> = self.send_request(self.request.list(&params)).await?;
            items.extend(page.items);
            params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            if params.continue_token.is_none() {
                let resource_version = page.metadata.resource_version.unwrap_or_default();
                return Ok(ListedObjects {
                    items,
                    resource_version,
                });
            }
        }
    }

    pub(crate) async fn create(&self, object: &Value, dry_run: bool) -> Result<Value> {
        let params = PostParams {
            dry_run,
            field_manager: Some(FIELD_MANAGER.to_owned()),
        };
        let body = object.to_string().into_bytes();
        self.send_request(self.request.create(&params, body)).await
    }

    /// Applies an object with server-side apply. `force` takes over fields of other managers.
    pub(crate) async fn apply(
        &self,
        object: &Value,
        manager: &str,
        force: bool,
        dry_run: bool,
    ) -> Result<Value> {
        let params = PatchParams {
            dry_run,
            force,
            field_manager: Some(manager.to_owned()),
            ..PatchParams::default()
        };
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        check_name(name)?;
        self.send_request(self.request.patch(name, &params, &Patch::Apply(object)))
            .await
    }

    pub(crate) async fn delete(&self, name: &str, params: &DeleteParams) -> Result<Value> {
        check_name(name)?;
        self.send_request(self.request.delete(name, params)).await
    }

    pub(crate) async fn patch(&self, name: &str, patch: JsonPatch, dry_run: bool) -> Result<Value> {
        check_name(name)?;
        let params = PatchParams {
            dry_run,
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patch: Patch<Value> = Patch::Json(patch);
        self.send_request(self.request.patch(name, &params, &patch))
            .await
    }

    pub(crate) async fn watch(
        &self,
        params: &WatchParams,
        version: &str,
    ) -> Result<BoxStream<'static, Result<WatchEvent<Value>, KubeError>>> {
        self.check_own_namespace()?;
        let request = self
            .request
            .watch(params, version)
            .map_err(|error| Error::Client(KubeError::BuildRequest(error)))?;
        let events = self.cluster.client.request_events(request).await;
        Ok(events.map_err(|error| self.convert_error(error))?.boxed())
    }

    async fn send_request<T: serde::de::DeserializeOwned>(
        &self,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<T> {
        self.check_own_namespace()?;
        let request = request.map_err(|error| Error::Client(KubeError::BuildRequest(error)))?;
        let response = self.cluster.client.request(request).await;
        response.map_err(|error| self.convert_error(error))
    }

    fn check_own_namespace(&self) -> Result<()> {
        self.namespace.as_deref().map_or(Ok(()), check_namespace)
    }

    pub(crate) fn convert_error(&self, error: KubeError) -> Error {
        match error {
            KubeError::Api(status) if is_missing_kind(&status) => Error::NoSuchResource {
                plural: self.api.plural.clone(),
                version: self.api.api_version.clone(),
            },
            other => self.cluster.convert_error(other),
        }
    }
}

/// The resource and namespace of an object.
pub(crate) fn resource_of(object: &Value) -> (ApiResource, Option<&str>) {
    let text = |at: &Value| at.as_str().unwrap_or_default().to_owned();
    let types = TypeMeta {
        api_version: text(&object["apiVersion"]),
        kind: text(&object["kind"]),
    };
    let kind = GroupVersionKind::try_from(types);
    let kind = kind.unwrap_or_else(|_| GroupVersionKind::gvk("", "", ""));
    let namespace = object["metadata"]["namespace"].as_str();
    (ApiResource::from_gvk(&kind), namespace)
}

/// Whether a 404 means an unknown kind: then the status names no object.
fn is_missing_kind(status: &Status) -> bool {
    let named = status.details.as_ref().is_some_and(|d| !d.name.is_empty());
    status.code == 404 && !named
}
