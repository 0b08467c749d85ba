//! Probes and lifecycle hooks of a container.

use k8s_openapi::{
    api::core::v1::{
        Container, ExecAction, HTTPGetAction, LifecycleHandler, Probe, TCPSocketAction,
    },
    apimachinery::pkg::util::intstr::IntOrString,
};

use super::{
    Fault,
    basic::{check_between, check_exactly_one, check_not_negative, check_one_of, check_required},
    names,
};

const PORTS: (i64, i64) = (1, 65535);

/// Probes and hooks; an init container has none unless it goes on beside the others.
pub(super) fn check(container: &Container, is_init: bool, field: &str, faults: &mut Vec<Fault>) {
    let allowed = !is_init || container.restart_policy.as_deref() == Some("Always");
    let probes = [
        ("livenessProbe", &container.liveness_probe, true),
        ("readinessProbe", &container.readiness_probe, false),
        ("startupProbe", &container.startup_probe, true),
    ];
    for (name, probe, once) in probes {
        let Some(probe) = probe else { continue };
        let field = format!("{field}.{name}");
        if allowed {
            check_probe(probe, once, &field, faults);
        } else {
            faults.push(init_has_none(field));
        }
    }
    let Some(lifecycle) = &container.lifecycle else {
        return;
    };
    let field = format!("{field}.lifecycle");
    if !allowed {
        faults.push(init_has_none(field));
        return;
    }
    for (name, hook) in [
        ("postStart", &lifecycle.post_start),
        ("preStop", &lifecycle.pre_stop),
    ] {
        if let Some(hook) = hook {
            check_hook(hook, &format!("{field}.{name}"), faults);
        }
    }
}

fn init_has_none(field: String) -> Fault {
    Fault::forbidden(
        field,
        "may not be set for init containers without restartPolicy=Always",
    )
}

fn check_probe(probe: &Probe, once: bool, field: &str, faults: &mut Vec<Fault>) {
    let handlers = [
        ("exec", probe.exec.is_some()),
        ("httpGet", probe.http_get.is_some()),
        ("tcpSocket", probe.tcp_socket.is_some()),
        ("grpc", probe.grpc.is_some()),
    ];
    check_exactly_one(&handlers, "handler", field, faults);
    check_actions(
        (
            probe.exec.as_ref(),
            probe.http_get.as_ref(),
            probe.tcp_socket.as_ref(),
        ),
        field,
        faults,
    );
    if let Some(grpc) = &probe.grpc {
        check_between(
            Some(grpc.port),
            PORTS,
            &format!("{field}.grpc.port"),
            faults,
        );
    }
    for (name, value) in [
        ("initialDelaySeconds", probe.initial_delay_seconds),
        ("timeoutSeconds", probe.timeout_seconds),
        ("periodSeconds", probe.period_seconds),
        ("successThreshold", probe.success_threshold),
        ("failureThreshold", probe.failure_threshold),
    ] {
        check_not_negative(value, &format!("{field}.{name}"), faults);
    }
    if let Some(threshold) = probe.success_threshold.filter(|n| once && *n > 1) {
        faults.push(Fault::invalid(
            format!("{field}.successThreshold"),
            threshold,
            "must be 1",
        ));
    }
    if let Some(seconds) = probe.termination_grace_period_seconds.filter(|s| *s < 1) {
        let field = format!("{field}.terminationGracePeriodSeconds");
        faults.push(Fault::invalid(field, seconds, "must be greater than 0"));
    }
}

fn check_hook(hook: &LifecycleHandler, field: &str, faults: &mut Vec<Fault>) {
    let handlers = [
        ("exec", hook.exec.is_some()),
        ("httpGet", hook.http_get.is_some()),
        ("tcpSocket", hook.tcp_socket.is_some()),
        ("sleep", hook.sleep.is_some()),
    ];
    check_exactly_one(&handlers, "handler", field, faults);
    check_actions(
        (
            hook.exec.as_ref(),
            hook.http_get.as_ref(),
            hook.tcp_socket.as_ref(),
        ),
        field,
        faults,
    );
}

type Actions<'a> = (
    Option<&'a ExecAction>,
    Option<&'a HTTPGetAction>,
    Option<&'a TCPSocketAction>,
);

fn check_actions((exec, http, tcp): Actions<'_>, field: &str, faults: &mut Vec<Fault>) {
    if let Some(exec) = exec
        && exec.command.as_ref().is_none_or(Vec::is_empty)
    {
        faults.push(Fault::required(
            format!("{field}.exec.command"),
            "what is run",
        ));
    }
    if let Some(http) = http {
        let field = format!("{field}.httpGet");
        check_port(&http.port, &format!("{field}.port"), faults);
        let scheme = http.scheme.as_deref();
        check_one_of(
            scheme,
            &["HTTP", "HTTPS"],
            &format!("{field}.scheme"),
            faults,
        );
        for (i, header) in http.http_headers.iter().flatten().enumerate() {
            let well_formed = |c: char| c.is_ascii_alphanumeric() || c == '-';
            if header.name.is_empty() || !header.name.chars().all(well_formed) {
                let why = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')";
                let field = format!("{field}.httpHeaders[{i}].name");
                faults.push(Fault::invalid(field, header.name.as_str(), why));
            }
        }
    }
    if let Some(tcp) = tcp {
        check_port(&tcp.port, &format!("{field}.tcpSocket.port"), faults);
    }
}

fn check_port(port: &IntOrString, field: &str, faults: &mut Vec<Fault>) {
    match port {
        IntOrString::Int(number) => check_between(Some(*number), PORTS, field, faults),
        IntOrString::String(name) => {
            if check_required(name, field, "a number, or the name of a port", faults) {
                names::check_port_name(name, field, faults);
            }
        }
    }
}
