//! Builds connections from kubeconfigs of any content. Runs no credential plugin and sends nothing.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| di_fuzz::fuzz_kubeconfig(bytes));

#[cfg(not(fuzzing))]
fn main() {}
