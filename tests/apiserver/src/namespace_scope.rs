use http::Uri;

/// Returns the namespaced URI for a request to all namespaces.
pub(crate) fn restrict_to_namespace(uri: &Uri, namespace: &str) -> Option<Uri> {
    let path = uri.path();
    let (group, kind) = path.rsplit_once('/')?;
    let kinds = ["dijobs", "pods", "services", "workloads", "podgroups"];
    if !kinds.contains(&kind) || group.contains("/namespaces/") {
        return None;
    }
    let query = uri
        .query()
        .map_or(String::new(), |query| format!("?{query}"));
    let mut parts = uri.clone().into_parts();
    let path = format!("{group}/namespaces/{namespace}/{kind}{query}");
    parts.path_and_query = Some(path.parse().unwrap());
    Uri::from_parts(parts).ok()
}
