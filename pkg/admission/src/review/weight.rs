//! What is in a body, found out before any of it is kept: decoded, a list of `{"":0}` takes a hundred times its text.

use std::fmt;

use serde::{
    Deserializer,
    de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};

use super::wire::malformed;
use crate::Result;

/// Items of lists and entries of maps in one body, each of which takes some 100 bytes. Two objects of a megabyte have half as many,
/// their managed fields among them.
pub(super) const MOST: usize = 300_000;
/// The first entry of a map makes room for ten more.
const FIRST_ENTRY: usize = 10;

/// Whether `body` has no more in it than may be decoded.
pub(super) fn is_bearable(body: &[u8]) -> Result<bool> {
    let mut left = Left(Some(MOST));
    let mut json = serde_json::Deserializer::from_slice(body);
    let counted = Counted(&mut left).deserialize(&mut json);
    match counted {
        Err(_) if left.0.is_none() => Ok(false),
        Err(error) => Err(malformed(&error)),
        Ok(()) => Ok(true),
    }
}

/// How much there may still be; nothing once there was more.
struct Left(Option<usize>);

impl Left {
    fn take<E: Error>(&mut self, weight: usize) -> Result<(), E> {
        self.0 = self.0.and_then(|left| left.checked_sub(weight));
        match self.0 {
            Some(_) => Ok(()),
            None => Err(E::custom("too much")),
        }
    }
}

/// Any JSON.
struct Counted<'a>(&'a mut Left);

impl<'de> DeserializeSeed<'de> for Counted<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Counted<'_> {
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
        let Self(left) = self;
        while list.next_element_seed(Counted(&mut *left))?.is_some() {
            left.take::<A::Error>(1)?;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self(left) = self;
        let mut weight = FIRST_ENTRY;
        while map.next_key::<IgnoredAny>()?.is_some() {
            left.take::<A::Error>(weight)?;
            map.next_value_seed(Counted(&mut *left))?;
            weight = 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    fn items_and_entries_are_counted_wherever_they_stand() {
        let most = MOST;
        for (text, count, weight) in [
            ("{},", most, 1),
            ("[0],", most / 2, 2),
            (r#"{"":0},"#, most / 11, 11),
            (r#"{"a":0,"b":[]},"#, most / 12, 12),
            (r#""text","#, most, 1),
        ] {
            assert!(count * weight <= most);
            let list = |count: usize| format!("[{}]", text.repeat(count).trim_end_matches(','));
            assert!(is_bearable(list(count).as_bytes()).unwrap(), "{text}");
            assert!(!is_bearable(list(count + 1).as_bytes()).unwrap(), "{text}");
        }
    }

    /// Otherwise the decoder might come to what was not counted.
    #[test]
    fn what_cannot_be_counted_is_malformed() {
        let deep = "[".repeat(200) + &"]".repeat(200);
        for body in ["", "[1,", "{1:2}", "nothing", &deep] {
            let error = is_bearable(body.as_bytes()).unwrap_err();
            assert!(matches!(error, Error::Malformed(_)), "{body}");
        }
        assert!(is_bearable(b"{\"a\": [1.5, -1, true, null, \"\\u00e9\"]}").unwrap());
    }
}
