//! DNS configuration and host names of a pod.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{PodDNSConfig, PodSpec};

use super::super::{
    fault::{Fault, Faults},
    names,
    path::Path,
    value_checks::{check_one_of, check_required},
};

const POLICIES: [&str; 4] = ["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"];
/// The DNS root as a search domain.
pub(super) const ROOT_DOMAIN: &str = ".";
const MAX_SERVERS: usize = 3;
const MAX_SEARCHES: usize = 32;
const MAX_SEARCH_CHARS: usize = 2048;
/// Maximum length of a host name on Linux, in bytes.
const MAX_HOST_NAME: usize = 64;
const NO_IP: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";

/// Checks DNS policy, DNS configuration and host names.
pub(super) fn check_dns(pod: &PodSpec, field: &Path<'_>, faults: &mut Faults) {
    let policy = pod.dns_policy.as_deref();
    check_one_of(policy, &POLICIES, &field.child("dnsPolicy"), faults);
    let place = field.child("dnsConfig");
    let empty = PodDNSConfig::default();
    let config = pod.dns_config.as_ref().unwrap_or(&empty);
    let servers = config.nameservers.as_deref().unwrap_or_default();
    if policy == Some("None") {
        let message = "must provide at least one DNS nameserver when `dnsPolicy` is None";
        if pod.dns_config.is_none() {
            let message = "must provide `dnsConfig` when `dnsPolicy` is None";
            faults.push(Fault::required(place, message));
        } else if servers.is_empty() {
            faults.push(Fault::required(place.child("nameservers"), message));
        }
    }
    if servers.len() > MAX_SERVERS {
        let why = format_args!("must not have more than {MAX_SERVERS} nameservers");
        faults.push(Fault::invalid(
            place.child("nameservers"),
            servers.to_vec(),
            why,
        ));
    }
    for (i, server) in servers.iter().enumerate() {
        check_ip(server, &place.child("nameservers").index(i), faults);
    }
    let searches = config.searches.as_deref().unwrap_or_default();
    let place_of = place.child("searches");
    if searches.len() > MAX_SEARCHES {
        let why = format_args!("must not have more than {MAX_SEARCHES} search paths");
        faults.push(Fault::invalid(place_of, searches.to_vec(), why));
    }
    if searches.join(" ").len() > MAX_SEARCH_CHARS {
        let why = format_args!(
            "must not have more than {MAX_SEARCH_CHARS} characters (including spaces) in the search list"
        );
        faults.push(Fault::invalid(place_of, searches.to_vec(), why));
    }
    for (i, domain) in searches.iter().enumerate() {
        // API servers since 1.33 accept the root.
        if domain != ROOT_DOMAIN {
            let domain = domain.strip_suffix('.').unwrap_or(domain);
            names::check_subdomain(domain, &place.child("searches").index(i), faults);
        }
    }
    for (i, option) in config.options.iter().flatten().enumerate() {
        let name = option.name.as_deref().unwrap_or_default();
        check_required(
            name,
            &place.child("options").index(i),
            "must not be empty",
            faults,
        );
    }
    check_hosts(pod, field, faults);
}

fn check_hosts(pod: &PodSpec, field: &Path<'_>, faults: &mut Faults) {
    for (i, alias) in pod.host_aliases.iter().flatten().enumerate() {
        let field = field.child("hostAliases").index(i);
        check_ip(&alias.ip, &field.child("ip"), faults);
        for host in alias.hostnames.iter().flatten() {
            names::check_subdomain(host, &field.child("hostnames"), faults);
        }
    }
    check_override(pod, &field.child("hostnameOverride"), faults);
    for (name, host) in [("hostname", &pod.hostname), ("subdomain", &pod.subdomain)] {
        names::check_optional_label_name(host.as_deref(), &field.child(name), faults);
    }
}

/// Checks the host name that processes in the pod see.
fn check_override(pod: &PodSpec, field: &Path<'_>, faults: &mut Faults) {
    let name = pod.hostname_override.as_deref().unwrap_or_default();
    if name.is_empty() {
        return;
    }
    names::check_object_name(Some(name), field, faults);
    if name.len() > MAX_HOST_NAME {
        faults.push(Fault::too_long(field, MAX_HOST_NAME));
    }
    for (other, is_set) in [
        ("hostNetwork", pod.host_network),
        ("setHostnameAsFQDN", pod.set_hostname_as_fqdn),
    ] {
        if is_set == Some(true) {
            let why = format_args!("may not be set when `{other}` is true");
            faults.push(Fault::forbidden(field, why));
        }
    }
}

fn check_ip(ip: &str, field: &Path<'_>, faults: &mut Faults) {
    if ip.parse::<IpAddr>().is_err() {
        faults.push(Fault::invalid(field, ip, NO_IP));
    }
}
