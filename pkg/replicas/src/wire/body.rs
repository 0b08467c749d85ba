use di_api::{
    ReplicaResources,
    quantity::{NANOS_PER_UNIT, parse_nanos},
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Map, Value};

use super::name;
use crate::error::{Error, Result};

/// The coordinator that a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) namespace: String,
    pub(crate) coordinator: String,
}

/// Replicas of one role to be added.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ReplicaRequest {
    pub(crate) count: usize,
    pub(crate) resources: ReplicaResources,
}

/// Replicas to be added.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AddRequest {
    pub(crate) target: Target,
    pub(crate) collectors: ReplicaRequest,
    pub(crate) learners: ReplicaRequest,
}

/// How many replicas are to be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RemoveRequest {
    pub(crate) target: Target,
    pub(crate) collectors: usize,
    pub(crate) learners: usize,
}

/// Replicas that failed, by pod name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FailedRequest {
    pub(crate) target: Target,
    pub(crate) pods: Vec<String>,
}

impl AddRequest {
    pub(crate) fn parse(body: &[u8], most: usize) -> Result<Self> {
        let body = object(body)?;
        let request = Self {
            target: target(&body)?,
            collectors: part(&body, "collectors", most)?,
            learners: part(&body, "learners", most)?,
        };
        if request.collectors.count + request.learners.count > most {
            return Err(Error::Invalid(format!(
                "one request may add at most {most} replicas"
            )));
        }
        Ok(request)
    }

    /// Whether it asks for nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.collectors.count + self.learners.count == 0
    }

    /// What is noted of it.
    pub(crate) fn asked(&self) -> String {
        asked(&self.collectors, &self.learners)
    }
}

impl std::fmt::Display for ReplicaRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.count)?;
        if self.count == 0 {
            return Ok(());
        }
        let mut all = self.resources.named_quantities();
        all.try_for_each(|(name, quantity)| write!(f, " of {name} {}", same(&quantity.0)))
    }
}

/// A quantity in the one form of all that mean the same.
fn same(quantity: &str) -> String {
    match parse_nanos(quantity) {
        Some(nanos) if nanos % NANOS_PER_UNIT == 0 => (nanos / NANOS_PER_UNIT).to_string(),
        Some(nanos) => format!("{nanos}n"),
        None => quantity.to_owned(),
    }
}

/// What a request asks for, as it is noted.
fn asked(collectors: impl std::fmt::Display, learners: impl std::fmt::Display) -> String {
    format!("collectors {collectors}, learners {learners}")
}

impl RemoveRequest {
    pub(crate) fn parse(body: &[u8], most: usize) -> Result<Self> {
        let body = object(body)?;
        Ok(Self {
            target: target(&body)?,
            collectors: part(&body, "collectors", most)?.count,
            learners: part(&body, "learners", most)?.count,
        })
    }

    /// Whether it asks for nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.collectors + self.learners == 0
    }

    /// What is noted of it.
    pub(crate) fn asked(&self) -> String {
        asked(self.collectors, self.learners)
    }
}

impl FailedRequest {
    pub(crate) fn parse(body: &[u8]) -> Result<Self> {
        let body = object(body)?;
        let target = target(&body)?;
        let mut pods: Vec<String> = Vec::new();
        for field in ["collectors", "learners"] {
            let list = match body.get(field) {
                None | Some(Value::Null) => continue,
                Some(Value::Array(list)) => list,
                Some(_) => return Err(Error::Invalid(format!("{field} must be a list of names"))),
            };
            for item in list {
                let Some(item) = item.as_str() else {
                    return Err(Error::Invalid(format!("{field} must be a list of names")));
                };
                pods.extend(pod_of(item, &target.namespace).map(str::to_owned));
            }
        }
        let mut seen = std::collections::HashSet::new();
        pods.retain(|pod| seen.insert(pod.clone()));
        Ok(Self { target, pods })
    }
}

/// The pod that a name or URL (`pod.namespace:port`) means; nothing for one of another namespace.
fn pod_of<'a>(name_or_url: &'a str, namespace: &str) -> Option<&'a str> {
    let host = name_or_url
        .split_once("://")
        .map_or(name_or_url, |(_, rest)| rest);
    let host = host.split(['/', ':']).next().unwrap_or(host);
    match host.rsplit_once('.') {
        Some((pod, of)) => (of == namespace).then_some(pod),
        None => Some(host),
    }
}

fn object(body: &[u8]) -> Result<Map<String, Value>> {
    match serde_json::from_slice(body) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(Error::Invalid("the body must be a JSON object".to_owned())),
        Err(error) => Err(Error::Invalid(format!("the body is no JSON: {error}"))),
    }
}

fn target(body: &Map<String, Value>) -> Result<Target> {
    let field = |key: &str| match body.get(key) {
        None | Some(Value::Null) => name(key, ""),
        Some(Value::String(value)) => name(key, value),
        Some(_) => Err(Error::Invalid(format!("{key} must be a string"))),
    };
    Ok(Target {
        namespace: field("namespace")?,
        coordinator: field("coordinator")?,
    })
}

fn part(body: &Map<String, Value>, field: &str, most: usize) -> Result<ReplicaRequest> {
    let part = match body.get(field) {
        None | Some(Value::Null) => return Ok(ReplicaRequest::default()),
        Some(Value::Object(part)) => part,
        Some(_) => return Err(Error::Invalid(format!("{field} must be a JSON object"))),
    };
    let either = |key: &str, older: &str| part.get(key).or_else(|| part.get(older));
    let resource = |key: &str, value: Option<&Value>| {
        let what = "a quantity, such as 500m, 2 or 1Gi";
        quantity(&format!("{field}.{key}"), value, what, 1)
    };
    let gpus = quantity(
        &format!("{field}.gpus"),
        either("gpus", "gpu"),
        "a whole number",
        NANOS_PER_UNIT,
    );
    let resources = ReplicaResources {
        cpus: resource("cpus", either("cpus", "cpu"))?,
        gpus: gpus?,
        memory: resource("memory", part.get("memory"))?,
    };
    Ok(ReplicaRequest {
        count: count(&format!("{field}.replicas"), part.get("replicas"), most)?,
        resources,
    })
}

fn count(field: &str, value: Option<&Value>, most: usize) -> Result<usize> {
    let Some(value) = value.filter(|value| !value.is_null()) else {
        return Ok(0);
    };
    let number = match value {
        Value::String(digits) => digits.parse().ok().filter(|_| !digits.starts_with('+')),
        value => value.as_u64().or_else(|| whole(value.as_f64()?)),
    };
    number
        .and_then(|number| usize::try_from(number).ok())
        .filter(|number| *number <= most)
        .ok_or_else(|| {
            Error::Invalid(format!(
                "{field} must be a whole number between 0 and {most}"
            ))
        })
}

/// JSON does not tell 2.0 from 2.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // checked
fn whole(number: f64) -> Option<u64> {
    let fits = number.fract() == 0.0 && (0.0..=1e15).contains(&number);
    fits.then_some(number as u64)
}

/// Kubernetes' own quantities end there.
const LARGEST: i128 = i64::MAX as i128 * NANOS_PER_UNIT;
/// The longest text of a quantity.
const LONGEST: usize = 64;

/// A quantity as a string or a number, a multiple of `unit`; zero and the empty string leave it to the template.
fn quantity(
    field: &str,
    value: Option<&Value>,
    what: &str,
    unit: i128,
) -> Result<Option<Quantity>> {
    let refused = || Err(Error::Invalid(format!("{field} must be {what}")));
    let quantity = match value {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) => text.trim().to_owned(),
        Some(Value::Number(number)) => number.to_string(),
        Some(_) => return refused(),
    };
    if quantity.is_empty() {
        return Ok(None);
    }
    match parse_nanos(&quantity) {
        Some(0) => Ok(None),
        Some(nanos @ 1..=LARGEST) if quantity.len() <= LONGEST && nanos % unit == 0 => {
            Ok(Some(Quantity(quantity)))
        }
        _ => refused(),
    }
}
