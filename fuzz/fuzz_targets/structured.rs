//! Objects that are nearly ours, and their changes.
#![no_main]

use di_fuzz::{Json, NearlyJob, judge};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (NearlyJob, NearlyJob, Json)| {
    let (old, new, anything) = input;
    judge(&old.0, &new.0);
    judge(&new.0, &old.0);
    judge(&old.0, &anything.0);
});
