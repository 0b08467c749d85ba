//! Any bytes as an `AdmissionReview`: it is answered, or it is malformed.
#![no_main]

use di_admission::{
    Error,
    review::{Answer, Judgement, mutate, validate},
};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fn check(answer: &Answer) {
    let review: Value = serde_json::from_slice(&answer.body).expect("an answer is JSON");
    assert_eq!(review["kind"], "AdmissionReview");
    assert_eq!(review["response"]["allowed"], answer.allowed);
    assert!(review["response"]["uid"].is_string());
    assert!(answer.allowed || review["response"]["status"]["code"].is_u64());
}

fuzz_target!(|body: &[u8]| {
    match mutate(body) {
        Ok(answer) => check(&answer),
        Err(error) => assert!(matches!(error, Error::Malformed(_)), "{error}"),
    }
    match validate(body) {
        Ok(Judgement::Final(answer)) => check(&answer),
        Ok(Judgement::Claimed(claim)) => {
            claim.question();
            let refused = [claim.refused(), claim.undecided()];
            for answer in refused.into_iter().flatten() {
                assert!(!answer.allowed);
                check(&answer);
            }
            check(&claim.granted().expect("an answer can be written"));
        }
        Err(error) => assert!(matches!(error, Error::Malformed(_)), "{error}"),
    }
});
