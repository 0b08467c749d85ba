use std::fmt;

/// The path of a field as a chain of borrowed names. It is formatted only for a fault, because most
/// fields have none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path<'a> {
    parent: Option<&'a Self>,
    name: &'a str,
    element: Option<Element<'a>>,
}

/// One element of a list or map.
#[derive(Clone, Copy, Debug)]
enum Element<'a> {
    Index(usize),
    Key(&'a str),
}

/// The path of the spec.
pub(super) const SPEC: Path<'static> = Path::from_name("spec");

impl<'a> Path<'a> {
    /// Creates the path of a field of the object itself.
    pub(super) const fn from_name(name: &'a str) -> Self {
        Self {
            parent: None,
            name,
            element: None,
        }
    }

    // `child`, `index` and `key` are named as in `field.Path` of k8s.io/apimachinery.

    /// Returns the path of a field of this one.
    pub(super) const fn child(&'a self, name: &'a str) -> Self {
        Self {
            parent: Some(self),
            ..Self::from_name(name)
        }
    }

    /// Returns the path of an item of this list.
    pub(super) const fn index(self, index: usize) -> Self {
        Self {
            element: Some(Element::Index(index)),
            ..self
        }
    }

    /// Returns the path of a value of this map.
    pub(super) const fn key(self, key: &'a str) -> Self {
        Self {
            element: Some(Element::Key(key)),
            ..self
        }
    }

    /// The path of the parent field.
    pub(super) const fn parent(&self) -> Option<&Self> {
        self.parent
    }

    /// The name of the field, without its parents.
    pub(super) const fn name(&self) -> &'a str {
        self.name
    }

    /// The name of the topmost field, such as `spec`.
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
        match self.element {
            Some(Element::Index(index)) => write!(f, "[{index}]"),
            Some(Element::Key(key)) => write!(f, "[{key}]"),
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
