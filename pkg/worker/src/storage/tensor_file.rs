//! Files of named tensors and values, in the safetensors format.
//!
//! The format detects truncated files.

use std::{
    collections::{BTreeMap, HashMap},
    str::FromStr,
};

use candle_core::{Device, Tensor, WithDType, safetensors::Load};
use safetensors::{SafeTensors, tensor::serialize};

use crate::{Error, Result};

/// The values are in one entry of the header: its entries have no fixed order, and equal content
/// must give equal files.
const VALUES: &str = "di-worker";

/// A file before it is encoded.
#[derive(Default)]
pub(crate) struct TensorFile {
    values: BTreeMap<String, String>,
    tensors: Vec<(String, Tensor)>,
}

impl TensorFile {
    /// Adds a value.
    pub(crate) fn with_value(mut self, name: &str, value: &impl ToString) -> Self {
        self.values.insert(name.to_owned(), value.to_string());
        self
    }

    /// Adds a tensor of this shape.
    pub(crate) fn with_tensor<T: WithDType>(
        mut self,
        name: impl Into<String>,
        numbers: &[T],
        shape: &[usize],
    ) -> Self {
        let tensor = Tensor::from_slice(numbers, shape, &Device::Cpu);
        let tensor = tensor.expect("the shape has as many elements as there are numbers");
        self.tensors.push((name.into(), tensor));
        self
    }

    /// Encodes the file.
    pub(crate) fn encode(self) -> Vec<u8> {
        let values = serde_json::to_string(&self.values).expect("the keys are strings");
        let metadata = HashMap::from([(VALUES.to_owned(), values)]);
        let file = serialize(self.tensors, Some(metadata));
        file.expect("the header is small")
    }
}

/// A file that was read.
pub(crate) struct ReadTensors<'a> {
    kind: &'static str,
    values: BTreeMap<String, String>,
    tensors: SafeTensors<'a>,
}

impl<'a> ReadTensors<'a> {
    /// Reads a file.
    pub(crate) fn open(kind: &'static str, file: &'a [u8]) -> Result<Self> {
        let bad_file = |error: safetensors::SafeTensorError| Error::BadFile {
            kind,
            reason: error.to_string(),
        };
        let tensors = SafeTensors::deserialize(file).map_err(bad_file)?;
        let (_, header) = SafeTensors::read_metadata(file).map_err(bad_file)?;
        let values = header.metadata().as_ref();
        let values = values.and_then(|metadata| serde_json::from_str(metadata.get(VALUES)?).ok());
        Ok(Self {
            kind,
            values: values.unwrap_or_default(),
            tensors,
        })
    }

    /// A value, if it is there and of this type.
    pub(crate) fn find_value<T: FromStr>(&self, name: &str) -> Option<T> {
        self.values.get(name)?.parse().ok()
    }

    /// A value.
    pub(crate) fn value<T: FromStr>(&self, name: &str) -> Result<T> {
        self.find_value(name)
            .ok_or_else(|| self.bad_file(format!("its {name} is missing or invalid")))
    }

    /// The numbers of a tensor, row by row.
    pub(crate) fn numbers<T: WithDType>(&self, name: &str) -> Result<Vec<T>> {
        let tensor = self.tensors.tensor(name);
        let tensor = tensor.map_err(|error| self.bad_file(error.to_string()))?;
        let numbers = tensor
            .load(&Device::Cpu)
            .and_then(|tensor| tensor.flatten_all()?.to_vec1());
        numbers.map_err(|error| self.bad_file(format!("tensor {name}: {error}")))
    }

    pub(crate) fn bad_file(&self, reason: impl Into<String>) -> Error {
        Error::BadFile {
            kind: self.kind,
            reason: reason.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> Vec<u8> {
        TensorFile::default()
            .with_value("version", &7)
            .with_tensor("weights", &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3])
            .with_tensor("actions", &[3_u8], &[1])
            .encode()
    }

    #[test]
    fn encoded_file_is_read_back() {
        let file = file();
        let read = ReadTensors::open("test", &file).unwrap();
        assert_eq!(read.value::<u64>("version").unwrap(), 7);
        let numbers = read.numbers::<f64>("weights").unwrap();
        assert_eq!(numbers, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(read.numbers::<u8>("actions").unwrap(), [3]);
        for error in [
            read.numbers::<f32>("weights").map(drop).unwrap_err(),
            read.numbers::<f64>("biases").map(drop).unwrap_err(),
            read.value::<u64>("frames").map(drop).unwrap_err(),
        ] {
            let error = error.to_string();
            assert!(error.starts_with("test file is invalid: "), "{error}");
        }
    }

    #[test]
    fn truncated_file_is_rejected() {
        let file = file();
        for place in 0..file.len() {
            let cut = &file[..place];
            assert!(ReadTensors::open("test", cut).is_err(), "cut at {place}");
        }
        let longer = [&file[..], &[0]].concat();
        assert!(ReadTensors::open("test", &longer).is_err());
        let error = ReadTensors::open("test", &[0; 64]).err().unwrap();
        assert!(matches!(error, Error::BadFile { .. }), "{error}");
    }
}
