//! Any JSON as an object, new and in the place of another.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|text: &[u8]| {
    let mut values = serde_json::Deserializer::from_slice(text).into_iter::<Value>();
    let Some(Ok(new)) = values.next() else {
        return;
    };
    let old = values.next().and_then(Result::ok).unwrap_or_default();
    di_fuzz::judge(&old, &new);
});
