use std::fmt;

/// The path of a field, written out only where something is to be said of it: most fields are fine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path<'a> {
    parent: Option<&'a Self>,
    name: &'a str,
    place: Option<Place<'a>>,
}

/// Which one of the values that a field has.
#[derive(Clone, Copy, Debug)]
enum Place<'a> {
    Index(usize),
    Key(&'a str),
}

/// The field that users write.
pub(super) const SPEC: Path<'static> = Path::of("spec");

/// What every object has.
pub(super) const METADATA: Path<'static> = Path::of("metadata");

impl<'a> Path<'a> {
    /// A field of the object itself.
    pub(super) const fn of(name: &'a str) -> Self {
        Self {
            parent: None,
            name,
            place: None,
        }
    }

    /// A field below this one.
    pub(super) const fn at(&'a self, name: &'a str) -> Self {
        Self {
            parent: Some(self),
            ..Self::of(name)
        }
    }

    /// An item of a list below this one.
    pub(super) const fn item(&'a self, list: &'a str, index: usize) -> Self {
        self.at(list).nth(index)
    }

    /// An item of the list that this is.
    pub(super) const fn nth(self, index: usize) -> Self {
        Self {
            place: Some(Place::Index(index)),
            ..self
        }
    }

    /// A value of a map below this one.
    pub(super) const fn value(&'a self, map: &'a str, key: &'a str) -> Self {
        Self {
            place: Some(Place::Key(key)),
            ..self.at(map)
        }
    }

    /// What this is a part of.
    pub(super) const fn parent(&self) -> Option<&Self> {
        self.parent
    }

    /// The name of the field itself.
    pub(super) const fn name(&self) -> &'a str {
        self.name
    }

    /// The field of the object that this is in.
    pub(super) fn root(&self) -> &'a str {
        self.parent.map_or(self.name, Self::root)
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            write!(f, "{parent}.")?;
        }
        f.write_str(self.name)?;
        match self.place {
            Some(Place::Index(index)) => write!(f, "[{index}]"),
            Some(Place::Key(key)) => write!(f, "[{key}]"),
            None => Ok(()),
        }
    }
}

impl From<&Path<'_>> for String {
    fn from(path: &Path<'_>) -> Self {
        path.to_string()
    }
}

impl From<Path<'_>> for String {
    fn from(path: Path<'_>) -> Self {
        path.to_string()
    }
}
