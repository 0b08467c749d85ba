//! Counts the JSON values of a body without storing them: a decoded list of `{"":0}` needs a hundred
//! times the memory of its text.

use std::fmt;

use serde::{
    Deserializer,
    de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};

use super::request::malformed_error;
use crate::error::Result;

/// Maximum number of list items and map entries in a body; a decoded one needs some 100 bytes. Two
/// objects of 1 MB with managed fields have half as many.
pub(super) const MAX_VALUES: usize = 300_000;
/// Values that the first entry of a map counts for, because a map allocates space for ten more.
const FIRST_ENTRY_VALUES: usize = 10;

/// Whether `body` has at most [`MAX_VALUES`] values.
pub(super) fn is_within_value_limit(body: &[u8]) -> Result<bool> {
    let mut budget = ValueBudget(Some(MAX_VALUES));
    let mut json = serde_json::Deserializer::from_slice(body);
    let counted = CountValues(&mut budget).deserialize(&mut json);
    match counted {
        Err(_) if budget.0.is_none() => Ok(false),
        Err(error) => Err(malformed_error(&error)),
        Ok(()) => Ok(true),
    }
}

/// The number of values left; `None` once the limit is exceeded.
struct ValueBudget(Option<usize>);

impl ValueBudget {
    fn take_values<E: Error>(&mut self, count: usize) -> Result<(), E> {
        self.0 = self.0.and_then(|left| left.checked_sub(count));
        match self.0 {
            Some(_) => Ok(()),
            None => Err(E::custom("too many values")),
        }
    }
}

/// A visitor that counts the values of any JSON value.
struct CountValues<'a>(&'a mut ValueBudget);

impl<'de> DeserializeSeed<'de> for CountValues<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for CountValues<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Self(budget) = self;
        while list.next_element_seed(CountValues(&mut *budget))?.is_some() {
            budget.take_values::<A::Error>(1)?;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self(budget) = self;
        let mut count = FIRST_ENTRY_VALUES;
        while map.next_key::<IgnoredAny>()?.is_some() {
            budget.take_values::<A::Error>(count)?;
            map.next_value_seed(CountValues(&mut *budget))?;
            count = 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    fn items_and_entries_are_counted_at_any_depth() {
        let max = MAX_VALUES;
        for (text, count, weight) in [
            ("{},", max, 1),
            ("[0],", max / 2, 2),
            (r#"{"":0},"#, max / 11, 11),
            (r#"{"a":0,"b":[]},"#, max / 12, 12),
            (r#""text","#, max, 1),
        ] {
            assert!(count * weight <= max);
            let list = |count: usize| format!("[{}]", text.repeat(count).trim_end_matches(','));
            assert!(
                is_within_value_limit(list(count).as_bytes()).unwrap(),
                "{text}"
            );
            assert!(
                !is_within_value_limit(list(count + 1).as_bytes()).unwrap(),
                "{text}"
            );
        }
    }

    /// The decoder must never reach a part that was not counted.
    #[test]
    fn uncountable_body_is_malformed() {
        let deep = "[".repeat(200) + &"]".repeat(200);
        for body in ["", "[1,", "{1:2}", "nothing", &deep] {
            let error = is_within_value_limit(body.as_bytes()).unwrap_err();
            assert!(matches!(error, Error::Malformed(_)), "{body}");
        }
        assert!(is_within_value_limit(b"{\"a\": [1.5, -1, true, null, \"\\u00e9\"]}").unwrap());
    }
}
