//! Any JSON as an object, new and in the place of another.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|text: &[u8]| di_fuzz::objects(text));

#[cfg(not(fuzzing))]
fn main() {}
