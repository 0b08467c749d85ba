use axum::http::Uri;
use utoipa::IntoParams;

use super::{name, schema};
use crate::error::{Error, Result};

/// Which replicas are to be listed.
#[derive(Clone, Debug, Default, PartialEq, Eq, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Query {
    /// Of this namespace; all others need it.
    #[param(schema_with = schema::query_name, required = false)]
    pub(crate) namespace: Option<String>,
    /// Of this coordinator.
    #[param(schema_with = schema::query_name, required = false)]
    pub(crate) coordinator: Option<String>,
    /// Of this aggregator.
    #[param(schema_with = schema::query_name, required = false)]
    pub(crate) aggregator: Option<String>,
    /// Of this name.
    #[param(schema_with = schema::query_name, required = false)]
    pub(crate) name: Option<String>,
}

impl Query {
    /// Keys are known whatever their case; an empty value is as none.
    pub(crate) fn parse(uri: &Uri) -> Result<Self> {
        let pairs = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(uri)
            .map_err(|_| Error::Invalid("the query cannot be read".to_owned()))?;
        let mut query = Self::default();
        for (key, value) in &pairs.0 {
            let (what, field) = match key.to_ascii_lowercase().as_str() {
                "namespace" => ("namespace", &mut query.namespace),
                "coordinator" => ("coordinator", &mut query.coordinator),
                "aggregator" => ("aggregator", &mut query.aggregator),
                "name" => ("name", &mut query.name),
                _ => {
                    return Err(Error::Invalid(format!(
                        "unknown query key {key}; known are namespace, coordinator, aggregator and name"
                    )));
                }
            };
            if value.is_empty() {
                continue;
            }
            if field.is_some() {
                return Err(Error::Invalid(format!("query key {what} stands twice")));
            }
            *field = Some(name(what, value)?);
        }
        query.check()?;
        Ok(query)
    }

    fn check(&self) -> Result<()> {
        let asked = [&self.coordinator, &self.aggregator, &self.name];
        if self.namespace.is_none() && asked.into_iter().any(Option::is_some) {
            return Err(Error::Invalid(
                "namespace is missing: a coordinator, aggregator or name is looked for in one namespace".to_owned(),
            ));
        }
        Ok(())
    }
}
