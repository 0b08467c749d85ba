//! Decoding that notices fields which a type does not have, in the same pass: serde would drop them without a word. It ends where there is
//! too much: an item of two bytes, `{}`, becomes a structure of kilobytes.

use serde::{
    Deserialize, Deserializer,
    de::{
        DeserializeSeed, EnumAccess, Error, IgnoredAny, IntoDeserializer, MapAccess, SeqAccess,
        Unexpected, Visitor,
    },
};
use std::{borrow::Cow, fmt};

use super::{Fault, Path, path::SPEC, unknown};

/// Of one list of a spec. The longest are variables of a container, some hundreds.
const MAX_ITEMS: usize = 1_000;
/// Of all lists and maps of a spec. The largest have some thousands, and as many empty volumes take 64 MB.
const MAX_ITEMS_IN_ALL: usize = 20_000;
/// Bytes of all names and texts of a spec: every job is kept in memory. A manifest that `kubectl apply` sends without `--server-side` has no
/// more, because it becomes an annotation.
const MAX_TEXT: usize = 256 << 10;
/// Unknown fields that are told of: each is compared with all that are known.
const MAX_UNKNOWN: usize = 100;

/// An object of one of our kinds, and what was wrong with it that it does not show itself: fields that its kind does not have, and a spec
/// that is too long.
#[derive(Clone, Debug)]
pub struct Read<T> {
    pub(super) object: T,
    pub(super) faults: Vec<Fault>,
}

impl<T> Read<T> {
    /// The object.
    pub fn object(&self) -> &T {
        &self.object
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Read<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut seen = Seen::default();
        let object = read(deserializer, None, &mut seen)?;
        let mut faults = seen.unknown;
        faults.extend(seen.too_long);
        Ok(Self { object, faults })
    }
}

/// What is noticed on the way.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Fields that their types do not have.
    pub(super) unknown: Vec<Fault>,
    /// The list or map that was too long, which ended it.
    pub(super) too_many: Option<Fault>,
    /// The spec, if it has too much text.
    pub(super) too_long: Option<Fault>,
    /// Bytes of names and texts, wherever they stand.
    text: usize,
    /// Items of lists and entries of maps in the spec.
    items: usize,
}

/// Decodes what stands at `path`, or an object; what was seen is told even when the rest cannot be decoded.
pub(super) fn read<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    inner: D,
    path: Option<Path<'_>>,
    seen: &mut Seen,
) -> Result<T, D::Error> {
    let at = At {
        path,
        fields: &[],
        seen,
    };
    T::deserialize(Strict { inner, at })
}

/// Where a value stands.
struct At<'a> {
    /// Nothing for the object itself.
    path: Option<Path<'a>>,
    /// The fields that are known there: of the struct that a visitor makes, and of the one that a value is of.
    fields: &'static [&'static str],
    seen: &'a mut Seen,
}

impl At<'_> {
    fn unstructured(self) -> Self {
        Self {
            fields: &[],
            ..self
        }
    }

    /// Only what users write is bounded: a status lists thousands of replicas.
    fn is_in_spec(&self) -> bool {
        self.path.is_some_and(|path| path.root() == SPEC.name())
    }

    /// Counts an item or an entry of what stands here.
    fn count<E: Error>(&mut self) -> Result<(), E> {
        if !self.is_in_spec() {
            return Ok(());
        }
        self.seen.items += 1;
        if self.seen.items <= MAX_ITEMS_IN_ALL {
            return Ok(());
        }
        let why = format_args!(
            "must have at most {MAX_ITEMS_IN_ALL} items together with all other lists and maps of the spec"
        );
        Err(self.refuse(None, why))
    }

    /// What stands here has too many items.
    fn refuse<E: Error>(&mut self, count: Option<usize>, why: fmt::Arguments<'_>) -> E {
        let field = self.path.map(String::from).unwrap_or_default();
        let fault = Fault::too_many(field, count, why);
        let error = E::custom(&fault);
        self.seen.too_many = Some(fault);
        error
    }
}

/// Whatever wraps another, and where that stands: a deserializer, a visitor, a seed.
struct Strict<'a, T> {
    inner: T,
    at: At<'a>,
}

macro_rules! forward {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            let at = self.at.unstructured();
            self.inner.$method(Strict { inner: visitor, at })
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
        let at = At { fields, ..self.at };
        self.inner
            .deserialize_struct(name, fields, Strict { inner, at })
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
        let at = self.at.unstructured();
        self.inner
            .deserialize_newtype_struct(name, Strict { inner, at })
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        len: usize,
        inner: V,
    ) -> Result<V::Value, D::Error> {
        let at = self.at.unstructured();
        self.inner.deserialize_tuple(len, Strict { inner, at })
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        len: usize,
        inner: V,
    ) -> Result<V::Value, D::Error> {
        let at = self.at.unstructured();
        self.inner
            .deserialize_tuple_struct(name, len, Strict { inner, at })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        inner: V,
    ) -> Result<V::Value, D::Error> {
        let at = self.at.unstructured();
        self.inner
            .deserialize_enum(name, variants, Strict { inner, at })
    }

    /// What a type asks for when it has no such field.
    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let At { path, fields, seen } = self.at;
        if let Some(path) = path.filter(|_| seen.unknown.len() < MAX_UNKNOWN) {
            seen.unknown.extend(unknown::fault(&path, fields));
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
            self.at.seen.text += text.len();
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
        let at = self.at;
        self.inner.visit_some(Strict { inner, at })
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        let at = self.at;
        self.inner.visit_newtype_struct(Strict { inner, at })
    }

    /// serde would take a list for a struct, its items for the fields in their order.
    fn visit_seq<A: SeqAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        if !self.at.fields.is_empty() {
            return Err(A::Error::invalid_type(Unexpected::Seq, &self));
        }
        let at = self.at;
        self.inner.visit_seq(Items {
            inner,
            at,
            index: 0,
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        let at = self.at;
        self.inner.visit_map(Fields {
            inner,
            at,
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
        let at = self.at;
        self.inner.deserialize(Strict { inner, at })
    }
}

/// Items of a list.
struct Items<'a, A> {
    inner: A,
    at: At<'a>,
    index: usize,
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Items<'_, A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        inner: S,
    ) -> Result<Option<S::Value>, A::Error> {
        if self.index == MAX_ITEMS && self.at.is_in_spec() {
            let count = self.inner.size_hint().map(|left| self.index + left);
            if self.inner.next_element::<IgnoredAny>()?.is_none() {
                return Ok(None);
            }
            let why = format_args!("must have at most {MAX_ITEMS} items");
            return Err(self.at.refuse(count, why));
        }
        let at = At {
            path: self.at.path.as_ref().map(|list| list.nth(self.index)),
            fields: &[],
            seen: &mut *self.at.seen,
        };
        self.index += 1;
        let item = self.inner.next_element_seed(Strict { inner, at })?;
        if item.is_some() {
            self.at.count::<A::Error>()?;
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
    at: At<'a>,
    /// Of the field that was read last.
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
        self.at.seen.text += name.len();
        self.name = name;
        if self.at.fields.is_empty() {
            self.at.count::<A::Error>()?;
        }
        seed.deserialize((&*self.name).into_deserializer())
            .map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, inner: S) -> Result<S::Value, A::Error> {
        let name = &*self.name;
        let before = self.at.seen.text;
        let path = match &self.at.path {
            Some(path) => path.at(name),
            None => Path::of(name),
        };
        let at = At {
            path: Some(path),
            fields: self.at.fields,
            seen: &mut *self.at.seen,
        };
        let value = self.inner.next_value_seed(Strict { inner, at })?;
        let is_spec = self.at.path.is_none() && name == SPEC.name();
        if is_spec && self.at.seen.text - before > MAX_TEXT {
            self.at.seen.too_long = Some(too_long());
        }
        Ok(value)
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

fn too_long() -> Fault {
    let mut fault = Fault::too_long(SPEC, MAX_TEXT);
    fault
        .detail
        .push_str("; keep large files in a ConfigMap and mount it");
    fault
}

/// A key, which is borrowed wherever it can be.
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
