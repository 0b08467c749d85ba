use x509_parser::extensions::GeneralName;

use super::*;
use crate::{Settings, needs_renewal};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const LIFETIME: Duration = Duration::from_secs(90 * 24 * 60 * 60);

fn dns_names() -> [String; 3] {
    Settings::default().dns_names()
}

fn test_time() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn issue_certificate(now: Timestamp) -> ServingCert {
    ServingCert::issue(&dns_names(), LIFETIME, None, now).unwrap()
}

fn renewal_reason(serving_cert: &ServingCert, now: Timestamp) -> Option<Renewal> {
    needs_renewal(Some(serving_cert), &dns_names()[0], now)
}

fn parse_ca(serving_cert: &ServingCert) -> Vec<Vec<u8>> {
    CertificateDer::pem_slice_iter(&serving_cert.ca)
        .map(|der| der.unwrap().to_vec())
        .collect()
}

#[test]
fn new_certificate_is_valid_for_service_names() {
    let serving_cert = issue_certificate(test_time());
    for name in dns_names() {
        assert_eq!(
            needs_renewal(Some(&serving_cert), &name, test_time()),
            None,
            "{name}"
        );
    }
    let der = CertificateDer::from_pem_slice(&serving_cert.certificate).unwrap();
    let (_, certificate) = X509Certificate::from_der(&der).unwrap();
    let sans = certificate.subject_alternative_name().unwrap().unwrap();
    let expected = dns_names();
    let expected: Vec<_> = expected.iter().map(|n| GeneralName::DNSName(n)).collect();
    assert_eq!(sans.value.general_names, expected);
    assert!(!certificate.is_ca());
    let usage = certificate.extended_key_usage().unwrap().unwrap();
    assert!(usage.value.server_auth && !usage.value.client_auth);
    assert_eq!(
        parse_validity(&der),
        Some((
            test_time() - Duration::from_secs(2 * 3600),
            test_time() + LIFETIME
        ))
    );

    let authority = parse_ca(&serving_cert).remove(0);
    let (_, authority) = X509Certificate::from_der(&authority).unwrap();
    assert!(authority.is_ca());
    assert_eq!(authority.subject(), certificate.issuer());
}

#[test]
fn renewal_depends_on_age_of_certificate() {
    let serving_cert = issue_certificate(test_time());
    for (at, expected) in [
        (test_time() - DAY, Some(Renewal::NotYetValid)),
        (test_time() - Duration::from_secs(3599), None),
        (test_time() + 59 * DAY, None),
        (test_time() + 61 * DAY, Some(Renewal::Aging)),
        (test_time() + 90 * DAY, Some(Renewal::Expired)),
    ] {
        assert_eq!(renewal_reason(&serving_cert, at), expected, "{at}");
    }
    let brief =
        ServingCert::issue(&dns_names(), Duration::from_secs(60), None, test_time()).unwrap();
    assert_eq!(renewal_reason(&brief, test_time()), None);
    assert_eq!(
        renewal_reason(&brief, test_time() + Duration::from_secs(30)),
        None
    );
    assert_eq!(
        renewal_reason(&brief, test_time() + Duration::from_secs(45)),
        Some(Renewal::Aging)
    );
}

#[test]
fn unusable_certificate_is_renewed() {
    let good = issue_certificate(test_time());
    let other = issue_certificate(test_time());
    let with = |change: &dyn Fn(&mut ServingCert)| {
        let mut serving_cert = good.clone();
        change(&mut serving_cert);
        renewal_reason(&serving_cert, test_time())
    };
    let broken = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_vec();
    let cases: [(&str, Option<Renewal>, Renewal); 10] = [
        (
            "no Secret",
            needs_renewal(None, &dns_names()[0], test_time()),
            Renewal::Missing,
        ),
        (
            "no certificate",
            with(&|b| b.certificate.clear()),
            Renewal::Incomplete,
        ),
        ("no key", with(&|b| b.key.clear()), Renewal::Incomplete),
        ("no authority", with(&|b| b.ca.clear()), Renewal::Incomplete),
        (
            "half a certificate",
            with(&|b| b.certificate.truncate(100)),
            Renewal::Unreadable,
        ),
        (
            "no certificate inside",
            with(&|b| b.certificate.clone_from(&broken)),
            Renewal::Unreadable,
        ),
        (
            "no key inside",
            with(&|b| b.key = b"key".to_vec()),
            Renewal::Unreadable,
        ),
        (
            "another's key",
            with(&|b| b.key.clone_from(&other.key)),
            Renewal::KeyMismatch,
        ),
        (
            "another's authority",
            with(&|b| b.ca.clone_from(&other.ca)),
            Renewal::Untrusted,
        ),
        (
            "another name",
            needs_renewal(Some(&good), "di-webhook.other.svc", test_time()),
            Renewal::Untrusted,
        ),
    ];
    for (case, found, expected) in cases {
        assert_eq!(found, Some(expected), "{case}");
    }
}

#[test]
fn previous_ca_stays_trusted_while_valid() {
    let first = issue_certificate(test_time());
    let next = |previous: &ServingCert, days: u32| {
        ServingCert::issue(
            &dns_names(),
            LIFETIME,
            Some(previous),
            test_time() + days * DAY,
        )
        .unwrap()
    };
    let second = next(&first, 59);
    let third = next(&second, 70);
    let [one, two] = [&first, &second].map(|b| parse_ca(b)[0].clone());
    assert_eq!(parse_ca(&second)[1..], [one]);
    assert_eq!(parse_ca(&third)[1..], [two], "two at most");
    assert_eq!(renewal_reason(&third, test_time() + 70 * DAY), None);

    // A replica that still serves the old certificate stays trusted.
    let old = ServingCert {
        ca: second.ca.clone(),
        ..first.clone()
    };
    assert_eq!(renewal_reason(&old, test_time() + 59 * DAY), None);

    assert_eq!(parse_ca(&next(&first, 90)).len(), 1, "expired");
    let garbage = ServingCert {
        ca: b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_vec(),
        ..first
    };
    assert_eq!(parse_ca(&next(&garbage, 1)).len(), 1, "unreadable");
}

#[test]
fn debug_output_hides_key() {
    let serving_cert = issue_certificate(test_time());
    assert_eq!(format!("{serving_cert:?}"), "ServingCert { .. }");
}
