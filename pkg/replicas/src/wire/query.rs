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
        let mut query = Self::default();
        for (key, value) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
            let known = [
                ("namespace", &mut query.namespace),
                ("coordinator", &mut query.coordinator),
                ("aggregator", &mut query.aggregator),
                ("name", &mut query.name),
            ];
            let mut known = known.into_iter();
            let Some((what, field)) = known.find(|(what, _)| key.eq_ignore_ascii_case(what)) else {
                return Err(Error::Invalid(format!(
                    "unknown query key {key}; known are namespace, coordinator, aggregator and name"
                )));
            };
            if value.is_empty() {
                continue;
            }
            if field.is_some() {
                return Err(Error::Invalid(format!("query key {what} stands twice")));
            }
            *field = Some(name(what, &value)?);
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
