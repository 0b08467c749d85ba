//! The versions of the API, which are the first part of a path.

/// Clients of this version exit on status 503 but retry after status 200 with an error body.
/// See docs/decisions/0007.
const LEGACY_STATUS_VERSION: &str = "/v1alpha1";
pub(crate) const VERSIONS: [&str; 2] = [LEGACY_STATUS_VERSION, "/v1alpha2"];

/// Whether a path is one of the older version.
pub(crate) fn is_legacy_path(path: &str) -> bool {
    path.starts_with(LEGACY_STATUS_VERSION)
}
