use di_api::{DIJob, guarded_patches, names};
use kube::{
    Client, Resource, ResourceExt,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
    core::Request,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The kind in its legacy version, whose schema is open.
pub fn open_resource() -> ApiResource {
    ApiResource {
        version: names::LEGACY_VERSION.to_owned(),
        api_version: format!("{}/{}", names::GROUP, names::LEGACY_VERSION),
        ..ApiResource::erase::<DIJob>(&())
    }
}

/// Writes fields of a job, or of one of its subresources, guarded by the version that they were derived from, and returns the job as it is
/// then. A field is the path to it, from the job on.
///
/// It goes through the legacy version: a write by the other one is refused whole when anything in the spec does not fit the schema, and a
/// job that came in by the open version would never get a status.
pub async fn write_fields<J>(
    client: &Client,
    job: &J,
    subresource: Option<&str>,
    fields: impl IntoIterator<Item = (Vec<String>, Value)>,
) -> kube::Result<J>
where
    J: Resource<DynamicType = ()> + Clone + DeserializeOwned,
{
    let url = DynamicObject::url_path(&open_resource(), job.namespace().as_deref());
    let patch = guarded_patches(job.resource_version().as_deref(), fields);
    let (name, params, patch) = (
        job.name_any(),
        PatchParams::default(),
        Patch::Json::<()>(patch),
    );
    let request = Request::new(url);
    let request = match subresource {
        Some(part) => request.patch_subresource(part, &name, &params, &patch),
        None => request.patch(&name, &params, &patch),
    };
    client
        .request(request.map_err(kube::Error::BuildRequest)?)
        .await
}
