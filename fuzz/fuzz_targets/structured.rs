//! Objects that are nearly ours, and their changes.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|changed: di_fuzz::Changed| di_fuzz::changed(&changed));

#[cfg(not(fuzzing))]
fn main() {}
