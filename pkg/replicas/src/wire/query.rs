use std::{str::FromStr, time::Duration};

use axum::http::Uri;
use utoipa::IntoParams;

use super::{name::parse_name, schema};
use crate::{
    error::{Error, Result},
    polls::MAX_WAIT,
    versions::is_legacy_path,
};

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
    /// List the members that are counted by the generation, and compare it with this one. Needs a
    /// coordinator.
    #[param(schema_with = schema::query_generation, required = false)]
    pub(crate) generation: Option<i64>,
    /// Wait at most this time, such as 30s, for another generation. At most 30s, longer waits are
    /// shortened. Needs a generation.
    #[param(schema_with = schema::query_wait, required = false)]
    pub(crate) wait: Option<Duration>,
}

impl Query {
    /// Parses the query. Keys are case-insensitive; an empty value counts as none. The older version
    /// has no long polls.
    pub(crate) fn parse(uri: &Uri) -> Result<Self> {
        let is_legacy = is_legacy_path(uri.path());
        let mut query = Self::default();
        for (key, value) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
            if !is_legacy && query.parse_poll_key(&key, &value)? {
                continue;
            }
            let known = [
                ("namespace", &mut query.namespace),
                ("coordinator", &mut query.coordinator),
                ("aggregator", &mut query.aggregator),
                ("name", &mut query.name),
            ];
            let mut known = known.into_iter();
            let Some((known_key, field)) = known.find(|(name, _)| key.eq_ignore_ascii_case(name))
            else {
                return Err(unknown_key(&key, is_legacy));
            };
            if value.is_empty() {
                continue;
            }
            check_unset(known_key, field.is_some())?;
            *field = Some(parse_name(known_key, &value)?);
        }
        query.check_namespace()?;
        query.check_poll()?;
        Ok(query)
    }

    /// Parses a parameter of a long poll. Returns false for other parameters.
    fn parse_poll_key(&mut self, key: &str, value: &str) -> Result<bool> {
        let is_key = |name: &str| key.eq_ignore_ascii_case(name);
        let (is_generation, is_wait) = (is_key("generation"), is_key("wait"));
        if is_generation && !value.is_empty() {
            check_unset("generation", self.generation.is_some())?;
            self.generation = parse_number(value, 18);
            check_valid("generation", "a number", self.generation.is_some())?;
        } else if is_wait && !value.is_empty() {
            check_unset("wait", self.wait.is_some())?;
            let seconds = value
                .strip_suffix('s')
                .and_then(|text| parse_number(text, 5));
            self.wait = seconds.map(|seconds| Duration::from_secs(seconds).min(MAX_WAIT));
            check_valid("wait", "seconds, such as 30s", self.wait.is_some())?;
        }
        Ok(is_generation || is_wait)
    }

    fn check_poll(&self) -> Result<()> {
        if self.wait.is_some() && self.generation.is_none() {
            return Err(Error::Invalid("wait needs a generation".to_owned()));
        }
        let is_one_list =
            self.coordinator.is_some() && self.aggregator.is_none() && self.name.is_none();
        if self.generation.is_some() && !is_one_list {
            return Err(Error::Invalid(
                "generation needs a coordinator, without aggregator and name".to_owned(),
            ));
        }
        Ok(())
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

fn check_unset(key: &str, is_set: bool) -> Result<()> {
    if is_set {
        return Err(Error::Invalid(format!("query parameter {key} is repeated")));
    }
    Ok(())
}

fn check_valid(key: &str, wanted: &str, is_valid: bool) -> Result<()> {
    if !is_valid {
        return Err(Error::Invalid(format!(
            "query parameter {key} must be {wanted}"
        )));
    }
    Ok(())
}

/// Parses a number without sign.
fn parse_number<T: FromStr>(text: &str, max_digits: usize) -> Option<T> {
    let is_number = text.len() <= max_digits && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

fn unknown_key(key: &str, is_legacy: bool) -> Error {
    let known = if is_legacy {
        "namespace, coordinator, aggregator and name"
    } else {
        "namespace, coordinator, aggregator, name, generation and wait"
    };
    Error::Invalid(format!("unknown query parameter {key}; known are {known}"))
}
