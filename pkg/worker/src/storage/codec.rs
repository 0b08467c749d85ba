//! The binary container of stored files: magic, format version, length, checksum, payload.
//!
//! Truncated, corrupt or foreign files are rejected.

use crate::{Error, Result, environment::game::Game};

const FORMAT: u32 = 3;
const HEADER: usize = 4 + 4 + 8 + 8;

/// Encodes a payload as a file.
pub(crate) fn encode_file(magic: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let mut file = Vec::with_capacity(HEADER + payload.len());
    file.extend(magic);
    file.extend(FORMAT.to_le_bytes());
    file.extend((payload.len() as u64).to_le_bytes());
    file.extend(checksum(payload).to_le_bytes());
    file.extend(payload);
    file
}

/// Encodes the name of a game for [`Reader::read_game`].
pub(crate) fn encode_game(game: Game) -> Vec<u8> {
    let name = game.name();
    let length = u8::try_from(name.len()).expect("names are short");
    [&[length], name.as_bytes()].concat()
}

/// Checks a file and returns a reader of its payload.
pub(crate) fn open_file<'a>(
    kind: &'static str,
    magic: [u8; 4],
    file: &'a [u8],
) -> Result<Reader<'a>> {
    let mut reader = Reader { kind, rest: file };
    if reader.read_array()? != magic {
        return Err(reader.bad_file("it is not this kind of file"));
    }
    let format = reader.read_u32()?;
    if format != FORMAT {
        return Err(reader.bad_file(format!(
            "its format is {format}, this program reads {FORMAT}"
        )));
    }
    let (length, sum) = (reader.read_u64()?, reader.read_u64()?);
    if length != reader.rest.len() as u64 {
        return Err(reader.bad_file(format!(
            "it should contain {length} bytes and contains {}",
            reader.rest.len()
        )));
    }
    if sum != checksum(reader.rest) {
        return Err(reader.bad_file("its checksum is wrong"));
    }
    Ok(reader)
}

/// FNV-1a; detects accidental damage only.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Reads little-endian values.
pub(crate) struct Reader<'a> {
    kind: &'static str,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// The unread bytes.
    pub(crate) const fn remaining_bytes(&self) -> &'a [u8] {
        self.rest
    }

    fn read_array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let Some((head, rest)) = self.rest.split_first_chunk() else {
            return Err(self.bad_file("it ends too early"));
        };
        self.rest = rest;
        Ok(*head)
    }

    pub(crate) fn read_u8(&mut self) -> Result<u8> {
        self.read_array().map(|[byte]| byte)
    }

    pub(crate) fn read_u32(&mut self) -> Result<u32> {
        self.read_array().map(u32::from_le_bytes)
    }

    pub(crate) fn read_u64(&mut self) -> Result<u64> {
        self.read_array().map(u64::from_le_bytes)
    }

    pub(crate) fn read_f32(&mut self) -> Result<f32> {
        self.read_array().map(f32::from_le_bytes)
    }

    pub(crate) fn read_f64(&mut self) -> Result<f64> {
        self.read_array().map(f64::from_le_bytes)
    }

    /// Reads the game of the file.
    pub(crate) fn read_game(&mut self) -> Result<Game> {
        let length = self.read_u8()?;
        let name: Vec<u8> = (0..length).map(|_| self.read_u8()).collect::<Result<_>>()?;
        let name = String::from_utf8_lossy(&name);
        Game::by_name(&name)
            .ok_or_else(|| self.bad_file(format!("its environment {name:?} is unknown")))
    }

    /// Reads the count of items of at least `size` bytes each. An invalid count cannot allocate
    /// much memory.
    pub(crate) fn read_count(&mut self, size: usize) -> Result<usize> {
        let count = self.read_u32()? as usize;
        if count > self.rest.len() / size {
            return Err(self.bad_file("it ends too early"));
        }
        Ok(count)
    }

    /// Checks that all bytes were read.
    pub(crate) fn expect_end(&self) -> Result<()> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(self.bad_file("it has trailing bytes"))
        }
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

    fn read_value(file: &[u8]) -> Result<u32> {
        let mut reader = open_file("test", *b"TEST", file)?;
        let value = reader.read_u32()?;
        reader.expect_end()?;
        Ok(value)
    }

    fn failure_reason(file: &[u8]) -> String {
        read_value(file).unwrap_err().to_string()
    }

    #[test]
    fn encoded_file_decodes() {
        assert_eq!(
            read_value(&encode_file(*b"TEST", &7_u32.to_le_bytes())).unwrap(),
            7
        );
    }

    #[test]
    fn damaged_files_are_rejected_with_reason() {
        let good = encode_file(*b"TEST", &7_u32.to_le_bytes());
        for length in 0..good.len() {
            assert!(
                read_value(&good[..length]).is_err(),
                "a file cut to {length} bytes was accepted"
            );
        }
        assert!(
            failure_reason(&good[..good.len() - 1])
                .contains("should contain 4 bytes and contains 3")
        );
        assert!(failure_reason(&encode_file(*b"ELSE", &[0; 4])).contains("not this kind of file"));
        let mut newer = good.clone();
        newer[4] = 9;
        assert!(failure_reason(&newer).contains("format is 9"));
        let mut flipped = good.clone();
        *flipped.last_mut().unwrap() ^= 1;
        assert!(failure_reason(&flipped).contains("checksum"));
        assert!(failure_reason(&encode_file(*b"TEST", &[0; 5])).contains("trailing bytes"));
    }
}
