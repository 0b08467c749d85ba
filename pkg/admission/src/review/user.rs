use std::collections::BTreeMap;

use serde::Deserialize;

/// The author of the request, as authenticated by the API server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub(super) struct User {
    pub(super) username: Option<String>,
    pub(super) uid: Option<String>,
    pub(super) groups: Option<Vec<String>>,
    pub(super) extra: Option<BTreeMap<String, Vec<String>>>,
}
