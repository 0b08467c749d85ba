//! Reads manifests of any content.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| di_fuzz::fuzz_manifest(bytes));

#[cfg(not(fuzzing))]
fn main() {}
