//! The routes and their OpenAPI description.

use utoipa_axum::{
    router::{OpenApiRouter, UtoipaMethodRouter},
    routes as route,
};

use crate::{
    handlers::{add, health, list, remove, report_failed},
    state::State,
    versions::VERSIONS,
};

/// Builds the routes and their OpenAPI description.
pub(crate) fn build_routes() -> OpenApiRouter<State> {
    let mut all = OpenApiRouter::new()
        .routes(route!(health::healthz))
        .routes(route!(health::readyz))
        .routes(route!(health::metrics))
        .routes(route!(health::openapi));
    for version in VERSIONS {
        let replicas = route!(list::list, add::add, remove::remove);
        all = all
            .routes(with_prefix(version, replicas))
            .routes(with_prefix(version, route!(report_failed::report_failed)));
    }
    all
}

/// Adds a path prefix. Nested routers would rewrite the path of each request.
fn with_prefix(prefix: &str, routes: UtoipaMethodRouter<State>) -> UtoipaMethodRouter<State> {
    let (schemas, mut paths, methods) = routes;
    let all = paths.paths.into_iter();
    paths.paths = all
        .map(|(path, item)| (format!("{prefix}{path}"), item))
        .collect();
    (schemas, paths, methods)
}
