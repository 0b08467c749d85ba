//! Arbitrary bytes as an `AdmissionReview`.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|body: &[u8]| di_fuzz::fuzz_review(body));

#[cfg(not(fuzzing))]
fn main() {}
