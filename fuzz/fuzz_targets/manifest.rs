//! Reads manifests of any content.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = di_client::manifest::parse_bytes("manifest.yaml", bytes.to_vec());
});

#[cfg(not(fuzzing))]
fn main() {}
