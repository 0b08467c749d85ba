//! Strict decoding: reports unknown fields, which serde ignores silently, in a single pass.
//! See docs/decisions/0013.
//!
//! Decoding stops at a list with too many items: an item of two bytes, `{}`, becomes a structure of
//! kilobytes.

mod location;

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{
        DeserializeSeed, EnumAccess, Error, IgnoredAny, IntoDeserializer, MapAccess, SeqAccess,
        Unexpected, Visitor,
    },
};

use self::location::{Location, MAX_LIST_ITEMS, MAX_SPEC_TEXT, MAX_UNKNOWN, spec_too_long};
use super::{
    fault::Fault,
    path::{Path, SPEC},
    unknown_fields::unknown_field_fault,
};

pub(super) use self::location::Findings;

/// A decoded object and the faults that only decoding shows: unknown fields, and a spec that is too
/// long.
#[derive(Clone, Debug)]
pub struct Decoded<T> {
    pub(super) object: T,
    pub(super) faults: Vec<Fault>,
}

impl<T> Decoded<T> {
    /// The decoded object.
    pub fn object(&self) -> &T {
        &self.object
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Decoded<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut findings = Findings::default();
        let object = decode_strictly(deserializer, None, &mut findings)?;
        let mut faults = findings.unknown;
        faults.extend(findings.too_long);
        Ok(Self { object, faults })
    }
}

/// Decodes the value at `path`, or an object if `path` is `None`. The findings are complete up to
/// the place of an error.
pub(super) fn decode_strictly<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    inner: D,
    path: Option<Path<'_>>,
    findings: &mut Findings,
) -> Result<T, D::Error> {
    let location = Location {
        path,
        fields: &[],
        findings,
    };
    T::deserialize(Strict { inner, location })
}

/// Wraps a deserializer, visitor or seed, and knows its position.
struct Strict<'a, T> {
    inner: T,
    location: Location<'a>,
}

macro_rules! forward {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            let location = self.location.without_fields();
            self.inner.$method(Strict { inner: visitor, location })
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Strict<'_, D> {
    type Error = D::Error;

    forward! {
        deserialize_any deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128 deserialize_f32 deserialize_f64
        deserialize_char deserialize_str deserialize_string deserialize_bytes deserialize_byte_buf deserialize_option
        deserialize_unit deserialize_seq deserialize_map deserialize_identifier
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        inner: V,
    ) -> Result<V::Value, D::Error> {
        let location = Location {
            fields,
            ..self.location
        };
        self.inner
            .deserialize_struct(name, fields, Strict { inner, location })
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.inner.deserialize_unit_struct(name, visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        inner: V,
    ) -> Result<V::Value, D::Error> {
        let location = self.location.without_fields();
        self.inner
            .deserialize_newtype_struct(name, Strict { inner, location })
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        len: usize,
        inner: V,
    ) -> Result<V::Value, D::Error> {
        let location = self.location.without_fields();
        self.inner
            .deserialize_tuple(len, Strict { inner, location })
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        len: usize,
        inner: V,
    ) -> Result<V::Value, D::Error> {
        let location = self.location.without_fields();
        self.inner
            .deserialize_tuple_struct(name, len, Strict { inner, location })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        inner: V,
    ) -> Result<V::Value, D::Error> {
        let location = self.location.without_fields();
        self.inner
            .deserialize_enum(name, variants, Strict { inner, location })
    }

    /// serde calls this for a field that the type does not have.
    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let Location {
            path,
            fields,
            findings,
        } = self.location;
        if let Some(path) = path.filter(|_| findings.unknown.len() < MAX_UNKNOWN) {
            findings.unknown.extend(unknown_field_fault(&path, fields));
        }
        IgnoredAny::deserialize(self.inner)?;
        visitor.visit_unit()
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

macro_rules! visit {
    ($($method:ident($type:ty))*) => {$(
        fn $method<E: Error>(self, value: $type) -> Result<V::Value, E> {
            self.inner.$method(value)
        }
    )*};
}

macro_rules! visit_text {
    ($($method:ident($type:ty))*) => {$(
        fn $method<E: Error>(self, text: $type) -> Result<V::Value, E> {
            self.location.findings.text += text.len();
            self.inner.$method(text)
        }
    )*};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Strict<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    visit! {
        visit_bool(bool) visit_i64(i64) visit_i128(i128) visit_u64(u64) visit_u128(u128) visit_f64(f64) visit_char(char)
        visit_bytes(&[u8]) visit_borrowed_bytes(&'de [u8]) visit_byte_buf(Vec<u8>)
    }

    visit_text! {
        visit_str(&str) visit_borrowed_str(&'de str) visit_string(String)
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        let location = self.location;
        self.inner.visit_some(Strict { inner, location })
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        let location = self.location;
        self.inner.visit_newtype_struct(Strict { inner, location })
    }

    /// Rejects a list in place of a struct: serde would take its items for the fields in their
    /// order.
    fn visit_seq<A: SeqAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        if !self.location.fields.is_empty() {
            return Err(A::Error::invalid_type(Unexpected::Seq, &self));
        }
        let location = self.location;
        self.inner.visit_seq(Items {
            inner,
            location,
            index: 0,
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        let location = self.location;
        self.inner.visit_map(Fields {
            inner,
            location,
            name: Cow::Borrowed(""),
        })
    }

    fn visit_enum<A: EnumAccess<'de>>(self, access: A) -> Result<V::Value, A::Error> {
        self.inner.visit_enum(access)
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Strict<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<S::Value, D::Error> {
        let location = self.location;
        self.inner.deserialize(Strict { inner, location })
    }
}

/// Items of a list.
struct Items<'a, A> {
    inner: A,
    location: Location<'a>,
    index: usize,
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Items<'_, A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        inner: S,
    ) -> Result<Option<S::Value>, A::Error> {
        if self.index == MAX_LIST_ITEMS && self.location.is_in_spec() {
            let count = self
                .inner
                .size_hint()
                .map(|remaining| self.index + remaining);
            if self.inner.next_element::<IgnoredAny>()?.is_none() {
                return Ok(None);
            }
            let why = format_args!("must have at most {MAX_LIST_ITEMS} items");
            return Err(self.location.reject_items(count, why));
        }
        let location = Location {
            path: self
                .location
                .path
                .as_ref()
                .map(|list| list.index(self.index)),
            fields: &[],
            findings: &mut *self.location.findings,
        };
        self.index += 1;
        let item = self.inner.next_element_seed(Strict { inner, location })?;
        if item.is_some() {
            self.location.count_item::<A::Error>()?;
        }
        Ok(item)
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

/// Fields of a struct, or entries of a map.
struct Fields<'a, 'de, A> {
    inner: A,
    location: Location<'a>,
    /// Name of the field that was read last.
    name: Cow<'de, str>,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Fields<'_, 'de, A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        let Some(Name(name)) = self.inner.next_key()? else {
            return Ok(None);
        };
        self.location.findings.text += name.len();
        self.name = name;
        seed.deserialize((&*self.name).into_deserializer())
            .map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, inner: S) -> Result<S::Value, A::Error> {
        let name = &*self.name;
        let before = self.location.findings.text;
        let path = match &self.location.path {
            Some(path) => path.child(name),
            None => Path::from_name(name),
        };
        let location = Location {
            path: Some(path),
            fields: self.location.fields,
            findings: &mut *self.location.findings,
        };
        let value = self.inner.next_value_seed(Strict { inner, location })?;
        let is_spec = self.location.path.is_none() && name == SPEC.name();
        if is_spec && self.location.findings.text - before > MAX_SPEC_TEXT {
            self.location.findings.too_long = Some(spec_too_long());
        }
        Ok(value)
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

/// A key, borrowed if possible.
struct Name<'de>(Cow<'de, str>);

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl<'de> Visitor<'de> for Text {
            type Value = Name<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Borrowed(name)))
            }

            fn visit_str<E>(self, name: &str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Owned(name.to_owned())))
            }
        }
        deserializer.deserialize_str(Text)
    }
}
