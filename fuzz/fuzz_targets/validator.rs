//! Arbitrary JSON as a new object and as an update.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|text: &[u8]| di_fuzz::fuzz_objects(text));

#[cfg(not(fuzzing))]
fn main() {}
