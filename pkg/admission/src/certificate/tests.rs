use x509_parser::extensions::GeneralName;

use super::*;
use crate::{Settings, needs_renewal};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const LIFETIME: Duration = Duration::from_secs(90 * 24 * 60 * 60);

fn names() -> [String; 3] {
    Settings::default().dns_names()
}

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn issue(now: Timestamp) -> Bundle {
    Bundle::issue(&names(), LIFETIME, None, now).unwrap()
}

fn due(bundle: &Bundle, now: Timestamp) -> Option<Renewal> {
    needs_renewal(Some(bundle), &names()[0], now)
}

fn authorities(bundle: &Bundle) -> Vec<Vec<u8>> {
    CertificateDer::pem_slice_iter(&bundle.authorities)
        .map(|der| der.unwrap().to_vec())
        .collect()
}

#[test]
fn a_new_certificate_serves_the_names_of_the_service() {
    let bundle = issue(now());
    for name in names() {
        assert_eq!(needs_renewal(Some(&bundle), &name, now()), None, "{name}");
    }
    let der = CertificateDer::from_pem_slice(&bundle.certificate).unwrap();
    let (_, certificate) = X509Certificate::from_der(&der).unwrap();
    let sans = certificate.subject_alternative_name().unwrap().unwrap();
    let expected = names();
    let expected: Vec<_> = expected.iter().map(|n| GeneralName::DNSName(n)).collect();
    assert_eq!(sans.value.general_names, expected);
    assert!(!certificate.is_ca());
    let usage = certificate.extended_key_usage().unwrap().unwrap();
    assert!(usage.value.server_auth && !usage.value.client_auth);
    assert_eq!(
        validity(&der),
        Some((now() - Duration::from_secs(2 * 3600), now() + LIFETIME))
    );

    let authority = authorities(&bundle).remove(0);
    let (_, authority) = X509Certificate::from_der(&authority).unwrap();
    assert!(authority.is_ca());
    assert_eq!(authority.subject(), certificate.issuer());
}

#[test]
fn renewal_is_decided_by_the_age_of_the_certificate() {
    let bundle = issue(now());
    for (at, expected) in [
        (now() - DAY, Some(Renewal::NotYetValid)),
        (now() - Duration::from_secs(3599), None),
        (now() + 59 * DAY, None),
        (now() + 61 * DAY, Some(Renewal::Aging)),
        (now() + 90 * DAY, Some(Renewal::Expired)),
    ] {
        assert_eq!(due(&bundle, at), expected, "{at}");
    }
    let brief = Bundle::issue(&names(), Duration::from_secs(60), None, now()).unwrap();
    assert_eq!(due(&brief, now()), None);
    assert_eq!(due(&brief, now() + Duration::from_secs(30)), None);
    assert_eq!(
        due(&brief, now() + Duration::from_secs(45)),
        Some(Renewal::Aging)
    );
}

#[test]
fn what_cannot_be_served_or_trusted_is_renewed() {
    let good = issue(now());
    let other = issue(now());
    let with = |change: &dyn Fn(&mut Bundle)| {
        let mut bundle = good.clone();
        change(&mut bundle);
        due(&bundle, now())
    };
    let broken = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_vec();
    let cases: [(&str, Option<Renewal>, Renewal); 10] = [
        (
            "no Secret",
            needs_renewal(None, &names()[0], now()),
            Renewal::Missing,
        ),
        (
            "no certificate",
            with(&|b| b.certificate.clear()),
            Renewal::Incomplete,
        ),
        ("no key", with(&|b| b.key.clear()), Renewal::Incomplete),
        (
            "no authority",
            with(&|b| b.authorities.clear()),
            Renewal::Incomplete,
        ),
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
            with(&|b| b.authorities.clone_from(&other.authorities)),
            Renewal::Untrusted,
        ),
        (
            "another name",
            needs_renewal(Some(&good), "di-webhook.other.svc", now()),
            Renewal::Untrusted,
        ),
    ];
    for (case, found, expected) in cases {
        assert_eq!(found, Some(expected), "{case}");
    }
}

#[test]
fn the_previous_authority_is_trusted_on_while_it_is_valid() {
    let first = issue(now());
    let next = |previous: &Bundle, days: u32| {
        Bundle::issue(&names(), LIFETIME, Some(previous), now() + days * DAY).unwrap()
    };
    let second = next(&first, 59);
    let third = next(&second, 70);
    let [one, two] = [&first, &second].map(|b| authorities(b)[0].clone());
    assert_eq!(authorities(&second)[1..], [one]);
    assert_eq!(authorities(&third)[1..], [two], "two at most");
    assert_eq!(due(&third, now() + 70 * DAY), None);

    // A replica that still serves the old certificate stays trusted.
    let old = Bundle {
        authorities: second.authorities.clone(),
        ..first.clone()
    };
    assert_eq!(due(&old, now() + 59 * DAY), None);

    assert_eq!(authorities(&next(&first, 90)).len(), 1, "expired");
    let garbage = Bundle {
        authorities: b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_vec(),
        ..first
    };
    assert_eq!(authorities(&next(&garbage, 1)).len(), 1, "unreadable");
}

#[test]
fn keys_are_never_shown() {
    let bundle = issue(now());
    assert_eq!(format!("{bundle:?}"), "Bundle { .. }");
}
