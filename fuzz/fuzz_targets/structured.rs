//! Mutated jobs and updates between them.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|update: di_fuzz::JobUpdate| di_fuzz::fuzz_updates(&update));

#[cfg(not(fuzzing))]
fn main() {}
