//! Strict decoding: reports unknown fields, which serde ignores silently, in a single pass.
//! See docs/decisions/0013.
//!
//! Decoding stops at a list or map with too many items: an item of two bytes, `{}`, becomes a
//! structure of kilobytes.

use serde::{
    Deserialize, Deserializer,
    de::{
        DeserializeSeed, EnumAccess, Error, IgnoredAny, IntoDeserializer, MapAccess, SeqAccess,
        Unexpected, Visitor,
    },
};
use std::{borrow::Cow, fmt};

use super::{Fault, Path, path::SPEC, unknown_fields::unknown_field_fault};

/// Maximum number of items of one list in a spec. Real lists (container variables) have hundreds.
const MAX_LIST_ITEMS: usize = 1_000;
/// Maximum number of items of all lists and maps in a spec. Real specs have thousands; this many
/// empty volumes take 64 MB.
const MAX_TOTAL_ITEMS: usize = 20_000;
/// Maximum length in bytes of all names and strings in a spec, because the cache keeps every job in
/// memory. Client-side `kubectl apply` has the same limit: it stores the manifest in an annotation.
const MAX_SPEC_TEXT: usize = 256 << 10;
/// Maximum number of reported unknown fields; each is compared with all known fields.
const MAX_UNKNOWN: usize = 100;

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

/// The findings of decoding, in addition to the object.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// Unknown fields.
    pub(super) unknown: Vec<Fault>,
    /// The list or map with too many items, at which decoding stopped.
    pub(super) too_many: Option<Fault>,
    /// The fault of a spec with too much text.
    pub(super) too_long: Option<Fault>,
    /// Length in bytes of all names and strings so far.
    text: usize,
    /// Number of list items and map entries in the spec so far.
    items: usize,
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

/// The position of a value.
struct Location<'a> {
    /// `None` for the object itself.
    path: Option<Path<'a>>,
    /// The known fields of the struct at this position; empty if it is not a struct.
    fields: &'static [&'static str],
    findings: &'a mut Findings,
}

impl Location<'_> {
    fn without_fields(self) -> Self {
        Self {
            fields: &[],
            ..self
        }
    }

    /// Only the spec is limited: a status lists thousands of replicas.
    fn is_in_spec(&self) -> bool {
        self.path.is_some_and(|path| path.root() == SPEC.name())
    }

    /// Counts one item of the list or map at this position.
    fn count_item<E: Error>(&mut self) -> Result<(), E> {
        if !self.is_in_spec() {
            return Ok(());
        }
        self.findings.items += 1;
        if self.findings.items <= MAX_TOTAL_ITEMS {
            return Ok(());
        }
        let why = format_args!(
            "all lists and maps of the spec must have at most {MAX_TOTAL_ITEMS} items in total"
        );
        Err(self.reject_items(None, why))
    }

    /// Records that the list or map at this position has too many items.
    fn reject_items<E: Error>(&mut self, count: Option<usize>, why: fmt::Arguments<'_>) -> E {
        let field = self.path.map(String::from).unwrap_or_default();
        let fault = Fault::too_many(field, count, why);
        let error = E::custom(&fault);
        self.findings.too_many = Some(fault);
        error
    }
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
        if self.location.fields.is_empty() {
            self.location.count_item::<A::Error>()?;
        }
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

fn spec_too_long() -> Fault {
    let mut fault = Fault::too_long(SPEC, MAX_SPEC_TEXT);
    fault
        .detail
        .push_str("; keep large files in a ConfigMap and mount it");
    fault
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
