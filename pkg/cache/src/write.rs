use di_api::{DIJob, guarded_patches, names};
use kube::{
    Client, Resource, ResourceExt,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
    core::Request,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The `ApiResource` of DIJobs in the legacy version, which has an open schema.
pub fn legacy_resource() -> ApiResource {
    ApiResource {
        version: names::LEGACY_VERSION.to_owned(),
        api_version: format!("{}/{}", names::GROUP, names::LEGACY_VERSION),
        ..ApiResource::erase::<DIJob>(&())
    }
}

/// Writes fields of a job or of one of its subresources, and returns the job after the write.
///
/// The patch is guarded by the `resourceVersion` of `job`. Each field is a path from the root of
/// the object and its new value. See docs/decisions/0003.
///
/// The request uses the legacy version: the other version rejects the write when any field of the
/// spec does not fit its schema. A job that was created by the open version would never get a
/// status.
pub async fn write_fields<J>(
    client: &Client,
    job: &J,
    subresource: Option<&str>,
    fields: impl IntoIterator<Item = (Vec<String>, Value)>,
) -> kube::Result<J>
where
    J: Resource<DynamicType = ()> + Clone + DeserializeOwned,
{
    let url = DynamicObject::url_path(&legacy_resource(), job.namespace().as_deref());
    let patch = guarded_patches(job.resource_version().as_deref(), fields);
    let (name, params, patch) = (
        job.name_any(),
        PatchParams::default(),
        Patch::Json::<()>(patch),
    );
    let request = Request::new(url);
    let request = match subresource {
        Some(subresource) => request.patch_subresource(subresource, &name, &params, &patch),
        None => request.patch(&name, &params, &patch),
    };
    client
        .request(request.map_err(kube::Error::BuildRequest)?)
        .await
}
