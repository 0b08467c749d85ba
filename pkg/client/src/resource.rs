use futures::{StreamExt, stream::BoxStream};
use json_patch::Patch as JsonPatch;
use kube::{
    core::{
        ApiResource, DynamicObject, ObjectList, Request, Resource as _, Status, WatchEvent,
        params::{
            DeleteParams, GetParams, ListParams, Patch, PatchParams, PostParams, WatchParams,
        },
    },
    error::Error as KubeError,
};
use serde_json::Value;

use crate::{
    Cluster, Error, Result,
    names::{check_name, check_namespace},
};

/// Who writes, in the managed fields of what was written.
const FIELD_MANAGER: &str = "kubectl-di";
/// As kubectl: a page that servers answer quickly even where objects are large.
const PAGE: u32 = 500;

/// Objects of one kind in one namespace or in all, as JSON: `Api` would decode them and drop what it does not know.
pub(crate) struct Resource<'a> {
    cluster: &'a Cluster,
    api: &'a ApiResource,
    namespace: Option<String>,
    request: Request,
}

/// Objects, and the version at which they were seen.
pub(crate) struct Listed {
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
        self.send(self.request.get(name, &GetParams::default()))
            .await
    }

    pub(crate) async fn list(&self, params: &ListParams) -> Result<Listed> {
        let mut params = params.clone();
        params.limit = Some(params.limit.unwrap_or(PAGE)).filter(|page| *page > 0);
        let mut items = Vec::new();
        loop {
            let page: ObjectList<Value> = self.send(self.request.list(&params)).await?;
            items.extend(page.items);
            params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            if params.continue_token.is_none() {
                let resource_version = page.metadata.resource_version.unwrap_or_default();
                return Ok(Listed {
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
        self.send(self.request.create(&params, body)).await
    }

    /// Applies it on the server, in the name of `manager`; with `force`, also where another manager says otherwise.
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
        self.send(self.request.patch(name, &params, &Patch::Apply(object)))
            .await
    }

    pub(crate) async fn delete(&self, name: &str, params: &DeleteParams) -> Result<Value> {
        check_name(name)?;
        self.send(self.request.delete(name, params)).await
    }

    pub(crate) async fn patch(&self, name: &str, patch: JsonPatch, dry_run: bool) -> Result<Value> {
        check_name(name)?;
        let params = PatchParams {
            dry_run,
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patch: Patch<Value> = Patch::Json(patch);
        self.send(self.request.patch(name, &params, &patch)).await
    }

    pub(crate) async fn watch(
        &self,
        params: &WatchParams,
        version: &str,
    ) -> Result<BoxStream<'static, Result<WatchEvent<Value>, KubeError>>> {
        self.check_namespace()?;
        let request = self
            .request
            .watch(params, version)
            .map_err(|error| Error::Client(KubeError::BuildRequest(error)))?;
        let events = self.cluster.client.request_events(request).await;
        Ok(events.map_err(|error| self.convert_error(error))?.boxed())
    }

    async fn send<T: serde::de::DeserializeOwned>(
        &self,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<T> {
        self.check_namespace()?;
        let request = request.map_err(|error| Error::Client(KubeError::BuildRequest(error)))?;
        let answer = self.cluster.client.request(request).await;
        answer.map_err(|error| self.convert_error(error))
    }

    fn check_namespace(&self) -> Result<()> {
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

/// Whether the path, not the object, was not found: then no object is named.
fn is_missing_kind(status: &Status) -> bool {
    let named = status.details.as_ref().is_some_and(|d| !d.name.is_empty());
    status.code == 404 && !named
}
