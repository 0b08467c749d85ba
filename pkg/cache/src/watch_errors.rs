use prometheus_client::{
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

/// Counts the errors of watches, by resource.
#[derive(Clone, Debug, Default)]
pub struct WatchErrors(Family<[(&'static str, &'static str); 1], Counter>);

impl WatchErrors {
    /// Makes `di_watch_errors_total{resource}` known to `registry`, with these resources: what never failed is told of as well.
    pub fn register<const N: usize>(registry: &mut Registry, resources: [&'static str; N]) -> Self {
        let errors = Self::default();
        for resource in resources {
            errors.of(resource);
        }
        registry.register("di_watch_errors", "Errors of watches", errors.0.clone());
        errors
    }

    /// Those of one resource.
    pub fn of(&self, resource: &'static str) -> Counter {
        self.0.get_or_create_owned(&[("resource", resource)])
    }
}
