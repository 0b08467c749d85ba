use axum::http::Uri;
use utoipa::IntoParams;

use super::{name::parse_name, schema};
use crate::error::{Error, Result};

/// The query of a list request.
#[derive(Clone, Debug, Default, PartialEq, Eq, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Query {
    /// List this namespace only. The other parameters need it.
    #[param(schema_with = schema::query_name, required = false)]
    pub(crate) namespace: Option<String>,
    /// List the replicas of this coordinator.
    #[param(schema_with = schema::query_name, required = false)]
    pub(crate) coordinator: Option<String>,
    /// List the ddp learners of this aggregator.
    #[param(schema_with = schema::query_name, required = false)]
    pub(crate) aggregator: Option<String>,
    /// List the replica of this name.
    #[param(schema_with = schema::query_name, required = false)]
    pub(crate) name: Option<String>,
}

impl Query {
    /// Parses the query. Keys are case-insensitive; an empty value counts as none.
    pub(crate) fn parse(uri: &Uri) -> Result<Self> {
        let mut query = Self::default();
        for (key, value) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
            let known = [
                ("namespace", &mut query.namespace),
                ("coordinator", &mut query.coordinator),
                ("aggregator", &mut query.aggregator),
                ("name", &mut query.name),
            ];
            let mut known = known.into_iter();
            let Some((known_key, field)) = known.find(|(name, _)| key.eq_ignore_ascii_case(name))
            else {
                return Err(Error::Invalid(format!(
                    "unknown query parameter {key}; known are namespace, coordinator, aggregator and name"
                )));
            };
            if value.is_empty() {
                continue;
            }
            if field.is_some() {
                return Err(Error::Invalid(format!(
                    "query parameter {known_key} is repeated"
                )));
            }
            *field = Some(parse_name(known_key, &value)?);
        }
        query.check_namespace()?;
        Ok(query)
    }

    fn check_namespace(&self) -> Result<()> {
        let filters = [&self.coordinator, &self.aggregator, &self.name];
        if self.namespace.is_none() && filters.into_iter().any(Option::is_some) {
            return Err(Error::Invalid(
                "namespace is missing: coordinator, aggregator and name need a namespace"
                    .to_owned(),
            ));
        }
        Ok(())
    }
}
