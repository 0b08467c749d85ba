use di_api::names;
use k8s_openapi::api::core::v1::PodSpec;

/// The number of the port `di-port` of a pod.
pub fn named_port(spec: &PodSpec) -> Option<i32> {
    spec.containers
        .iter()
        .filter_map(|container| container.ports.as_ref())
        .flatten()
        .find(|port| port.name.as_deref() == Some(names::PORT_NAME))
        .map(|port| port.container_port)
}
