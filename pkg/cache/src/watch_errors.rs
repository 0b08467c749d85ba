use prometheus_client::{
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

/// Counts the errors of watches, by resource.
#[derive(Clone, Debug, Default)]
pub struct WatchErrors(Family<[(&'static str, &'static str); 1], Counter>);

impl WatchErrors {
    /// Registers `di_watch_errors_total{resource}` with a zero for each of these resources.
    ///
    /// A series that exists from the start lets `rate()` see the first error.
    pub fn register<const N: usize>(registry: &mut Registry, resources: [&'static str; N]) -> Self {
        let errors = Self::default();
        for resource in resources {
            errors.for_resource(resource);
        }
        registry.register("di_watch_errors", "Errors of watches", errors.0.clone());
        errors
    }

    /// The counter of one resource.
    pub fn for_resource(&self, resource: &'static str) -> Counter {
        self.0.get_or_create_owned(&[("resource", resource)])
    }
}
