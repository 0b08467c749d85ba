use di_api::{
    ReplicaResources, Role,
    quantity::{NANOS_PER_UNIT, parse_nanos},
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Map, Value};

use super::{name::parse_name, requester::Requester, unknown_fields::describe_unknown_fields};
use crate::error::{Error, Result};

/// The replicas of one role in a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ReplicaRequest {
    pub(crate) count: usize,
    pub(crate) resources: ReplicaResources,
}

/// The body of a POST: replicas to add.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AddRequest {
    pub(crate) requester: Requester,
    pub(crate) collectors: ReplicaRequest,
    pub(crate) learners: ReplicaRequest,
    /// Describes the fields that the endpoint does not know.
    pub(crate) unknown_fields: Option<String>,
}

/// The body of a DELETE: how many replicas to remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RemoveRequest {
    pub(crate) requester: Requester,
    pub(crate) collectors: usize,
    pub(crate) learners: usize,
    /// Describes the fields that the endpoint does not know.
    pub(crate) unknown_fields: Option<String>,
}

/// The body of a failure report: pod names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FailedRequest {
    pub(crate) requester: Requester,
    pub(crate) pods: Vec<String>,
    /// Describes the fields that the endpoint does not know.
    pub(crate) unknown_fields: Option<String>,
}

impl AddRequest {
    pub(crate) fn parse(body: &[u8], most: usize) -> Result<Self> {
        let body = parse_object(body)?;
        let request = Self {
            requester: parse_requester(&body)?,
            collectors: parse_replicas(&body, "collectors", most)?,
            learners: parse_replicas(&body, "learners", most)?,
            unknown_fields: describe_unknown_fields(&body),
        };
        if request.collectors.count + request.learners.count > most {
            return Err(Error::Invalid(format!(
                "one request may add at most {most} replicas"
            )));
        }
        Ok(request)
    }

    /// Whether the request is for no replicas.
    pub(crate) fn is_empty(&self) -> bool {
        self.collectors.count + self.learners.count == 0
    }

    /// The roles with at least one new replica.
    pub(crate) fn roles(&self) -> Vec<(Role, &ReplicaRequest)> {
        let roles = [
            (Role::Collector, &self.collectors),
            (Role::Learner, &self.learners),
        ];
        let roles = roles.into_iter();
        roles.filter(|(_, part)| part.count > 0).collect()
    }

    /// The description that the request history stores.
    pub(crate) fn description(&self) -> String {
        describe_request(&self.collectors, &self.learners)
    }
}

impl std::fmt::Display for ReplicaRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.count)?;
        if self.count == 0 {
            return Ok(());
        }
        let mut all = self.resources.named_quantities();
        all.try_for_each(|(name, quantity)| {
            write!(f, " of {name} {}", normalize_quantity(&quantity.0))
        })
    }
}

/// Returns the canonical form of a quantity.
fn normalize_quantity(quantity: &str) -> String {
    match parse_nanos(quantity) {
        Some(nanos) if nanos % NANOS_PER_UNIT == 0 => (nanos / NANOS_PER_UNIT).to_string(),
        Some(nanos) => format!("{nanos}n"),
        None => quantity.to_owned(),
    }
}

/// Describes a request in one canonical form, to compare repeated requests.
fn describe_request(
    collectors: impl std::fmt::Display,
    learners: impl std::fmt::Display,
) -> String {
    format!("collectors {collectors}, learners {learners}")
}

impl RemoveRequest {
    pub(crate) fn parse(body: &[u8], most: usize) -> Result<Self> {
        let body = parse_object(body)?;
        Ok(Self {
            requester: parse_requester(&body)?,
            collectors: parse_replicas(&body, "collectors", most)?.count,
            learners: parse_replicas(&body, "learners", most)?.count,
            unknown_fields: describe_unknown_fields(&body),
        })
    }

    /// Whether the request is for no replicas.
    pub(crate) fn is_empty(&self) -> bool {
        self.collectors + self.learners == 0
    }

    /// The description that the request history stores.
    pub(crate) fn description(&self) -> String {
        describe_request(self.collectors, self.learners)
    }
}

impl FailedRequest {
    pub(crate) fn parse(body: &[u8]) -> Result<Self> {
        let body = parse_object(body)?;
        let requester = parse_requester(&body)?;
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
                pods.extend(parse_pod_name(item, &requester.job_key().0).map(str::to_owned));
            }
        }
        let mut seen = std::collections::HashSet::new();
        pods.retain(|pod| seen.insert(pod.clone()));
        Ok(Self {
            requester,
            pods,
            unknown_fields: describe_unknown_fields(&body),
        })
    }
}

/// Returns the pod name of a name or URL (`pod.namespace:port`), or none for another namespace.
fn parse_pod_name<'a>(name_or_url: &'a str, namespace: &str) -> Option<&'a str> {
    let host = name_or_url
        .split_once("://")
        .map_or(name_or_url, |(_, rest)| rest);
    let host = host.split(['/', ':']).next().unwrap_or(host);
    match host.rsplit_once('.') {
        Some((pod, pod_namespace)) => (pod_namespace == namespace).then_some(pod),
        None => Some(host),
    }
}

fn parse_object(body: &[u8]) -> Result<Map<String, Value>> {
    match serde_json::from_slice(body) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(Error::Invalid("the body must be a JSON object".to_owned())),
        Err(error) => Err(Error::Invalid(format!("the body is not JSON: {error}"))),
    }
}

fn parse_requester(body: &Map<String, Value>) -> Result<Requester> {
    let field = |key: &str| match body.get(key) {
        None | Some(Value::Null) => parse_name(key, ""),
        Some(Value::String(value)) => parse_name(key, value),
        Some(_) => Err(Error::Invalid(format!("{key} must be a string"))),
    };
    Ok(Requester::new(field("namespace")?, field("coordinator")?))
}

/// Parses the replicas of one role. `cpu` and `gpu` are the names of older clients.
fn parse_replicas(body: &Map<String, Value>, field: &str, most: usize) -> Result<ReplicaRequest> {
    let part = match body.get(field) {
        None | Some(Value::Null) => return Ok(ReplicaRequest::default()),
        Some(Value::Object(part)) => part,
        Some(_) => return Err(Error::Invalid(format!("{field} must be a JSON object"))),
    };
    let either = |key: &str, older: &str| part.get(key).or_else(|| part.get(older));
    let resource = |key: &str, value: Option<&Value>| {
        let expected = "a quantity, such as 500m, 2 or 1Gi";
        parse_quantity(&format!("{field}.{key}"), value, expected, 1)
    };
    let gpus = parse_quantity(
        &format!("{field}.gpus"),
        either("gpus", "gpu"),
        "an integer",
        NANOS_PER_UNIT,
    );
    let resources = ReplicaResources {
        cpus: resource("cpus", either("cpus", "cpu"))?,
        gpus: gpus?,
        memory: resource("memory", part.get("memory"))?,
    };
    Ok(ReplicaRequest {
        count: parse_count(&format!("{field}.replicas"), part.get("replicas"), most)?,
        resources,
    })
}

fn parse_count(field: &str, value: Option<&Value>, most: usize) -> Result<usize> {
    let Some(value) = value.filter(|value| !value.is_null()) else {
        return Ok(0);
    };
    let number = match value {
        Value::String(digits) => digits.parse().ok().filter(|_| !digits.starts_with('+')),
        value => value.as_u64().or_else(|| as_whole_number(value.as_f64()?)),
    };
    number
        .and_then(|number| usize::try_from(number).ok())
        .filter(|number| *number <= most)
        .ok_or_else(|| Error::Invalid(format!("{field} must be an integer between 0 and {most}")))
}

/// Accepts 2.0 as 2: JSON has one number type.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // checked
fn as_whole_number(number: f64) -> Option<u64> {
    let fits = number.fract() == 0.0 && (0.0..=1e15).contains(&number);
    fits.then_some(number as u64)
}

/// Upper bound of Kubernetes quantities, in nanos.
const MAX_NANOS: i128 = i64::MAX as i128 * NANOS_PER_UNIT;
/// Maximum length of a quantity.
const MAX_QUANTITY_LEN: usize = 64;

/// Parses a quantity, a string or a number and a multiple of `unit`. Zero and the empty string mean the
/// value of the template.
fn parse_quantity(
    field: &str,
    value: Option<&Value>,
    expected: &str,
    unit: i128,
) -> Result<Option<Quantity>> {
    let invalid = || Err(Error::Invalid(format!("{field} must be {expected}")));
    let quantity = match value {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) => text.trim().to_owned(),
        Some(Value::Number(number)) => number.to_string(),
        Some(_) => return invalid(),
    };
    if quantity.is_empty() {
        return Ok(None);
    }
    match parse_nanos(&quantity) {
        Some(0) => Ok(None),
        Some(nanos @ 1..=MAX_NANOS) if quantity.len() <= MAX_QUANTITY_LEN && nanos % unit == 0 => {
            Ok(Some(Quantity(quantity)))
        }
        _ => invalid(),
    }
}
