use di_api::names;
use k8s_openapi::api::core::v1::Pod;

/// The value of an environment variable that the orchestrator set in the main container.
///
/// The orchestrator's variables come first in the list, so an override by the user is ignored.
pub(super) fn env_value<'a>(pod: &'a Pod, variable: &str) -> Option<&'a str> {
    let mut containers = pod.spec.as_ref()?.containers.iter();
    let main = containers.find(|container| container.name == names::MAIN_CONTAINER)?;
    let mut variables = main.env.iter().flatten();
    variables.find(|env| env.name == variable)?.value.as_deref()
}
