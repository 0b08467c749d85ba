use std::cmp::Ordering;

use anyhow::{Result, bail};
use di_client::Path;
use serde_json::Value;

/// Sorts items by a field of their objects; items without the field come first.
///
/// # Errors
/// No item has the field.
pub fn sort_by<T>(things: &mut [T], field: &str, object: impl Fn(&T) -> &Value) -> Result<()> {
    let path = Path::parse_relaxed(field)?;
    let mut found = false;
    for thing in things.iter() {
        found |= !path.find(object(thing))?.is_empty();
    }
    if !found && !things.is_empty() {
        bail!("couldn't find any field with path {field:?} in the list of objects");
    }
    let key = |thing: &T| path.find(object(thing)).ok()?.first().copied().cloned();
    things.sort_by_cached_key(|thing| Key(key(thing)));
    Ok(())
}

#[derive(PartialEq, Eq)]
struct Key(Option<Value>);

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        match (&self.0, &other.0) {
            (Some(Value::Number(a)), Some(Value::Number(b))) => a
                .as_f64()
                .partial_cmp(&b.as_f64())
                .unwrap_or(Ordering::Equal),
            (Some(a), Some(b)) => natural_order(&value_text(a), &value_text(b)),
            (a, b) => a.is_some().cmp(&b.is_some()),
        }
    }
}

fn value_text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// Compares digits in texts as numbers: `job-2` is before `job-10`.
fn natural_order(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a, b);
    loop {
        let ((na, ra), (nb, rb)) = (split_digits(a), split_digits(b));
        if !na.is_empty() && !nb.is_empty() {
            let (ta, tb) = (na.trim_start_matches('0'), nb.trim_start_matches('0'));
            let order = (ta.len(), ta, na.len()).cmp(&(tb.len(), tb, nb.len()));
            if order != Ordering::Equal {
                return order;
            }
            (a, b) = (ra, rb);
            continue;
        }
        let (mut ca, mut cb) = (a.chars(), b.chars());
        match (ca.next(), cb.next()) {
            (Some(x), Some(y)) if x == y => (a, b) = (ca.as_str(), cb.as_str()),
            (x, y) => return x.cmp(&y),
        }
    }
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit());
    text.split_at(end.unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sorted_by(values: &[Value], field: &str) -> Vec<Value> {
        let mut values = values.to_vec();
        sort_by(&mut values, field, |value| value).unwrap();
        values
    }

    #[test]
    fn numbers_sort_by_value_and_missing_fields_come_first() {
        let values = [json!({"n": 10}), json!({"n": 9}), json!({})];
        assert_eq!(
            sorted_by(&values, ".n"),
            [json!({}), json!({"n": 9}), json!({"n": 10})]
        );
        let values = ["job-10", "job-2", "a", "job-02"].map(|name| json!({"n": name}));
        let names: Vec<_> = sorted_by(&values, "{.n}")
            .iter()
            .map(|v| v["n"].clone())
            .collect();
        assert_eq!(names, ["a", "job-2", "job-02", "job-10"]);
    }

    #[test]
    fn unknown_field_is_an_error() {
        let error = sort_by(&mut [json!({"n": 1})], ".m", |value| value).unwrap_err();
        assert_eq!(
            error.to_string(),
            "couldn't find any field with path \".m\" in the list of objects"
        );
        sort_by(&mut Vec::<Value>::new(), ".m", |value| value).unwrap();
    }
}
