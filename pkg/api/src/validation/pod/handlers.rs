//! Probes and lifecycle hooks of a container.

use k8s_openapi::{
    api::core::v1::{
        Container, ExecAction, HTTPGetAction, LifecycleHandler, PodSpec, Probe, TCPSocketAction,
    },
    apimachinery::pkg::util::intstr::IntOrString,
};

use super::ports;
use crate::validation::{
    fault::{Fault, Faults},
    names,
    path::Path,
    value_checks::{
        check_between, check_exactly_one, check_not_negative, check_one_of, check_required,
    },
};

const PORTS: (i64, i64) = (1, 65535);
const READINESS: &str = "readinessProbe";
/// Default termination grace period in seconds.
const DEFAULT_GRACE_PERIOD_SECONDS: i64 = 30;

/// Whether the container has a port of this name.
type HasPort<'a> = &'a dyn Fn(&str) -> bool;

/// Checks probes and hooks. Of init containers only sidecars may have them.
pub(super) fn check_handlers(
    container: &Container,
    pod: &PodSpec,
    is_init: bool,
    field: &Path<'_>,
    faults: &mut Faults,
) {
    let has_port = |name: &str| ports::has_port_named(container, pod, name);
    let allowed = !is_init || container.restart_policy.as_deref() == Some("Always");
    let probes = [
        ("livenessProbe", &container.liveness_probe),
        (READINESS, &container.readiness_probe),
        ("startupProbe", &container.startup_probe),
    ];
    for (name, probe) in probes {
        let Some(probe) = probe else { continue };
        let field = field.child(name);
        if allowed {
            check_probe(probe, name == READINESS, &has_port, &field, faults);
        } else {
            faults.push(init_container_fault(field));
        }
    }
    let Some(lifecycle) = &container.lifecycle else {
        return;
    };
    let field = field.child("lifecycle");
    if !allowed {
        faults.push(init_container_fault(field));
        return;
    }
    let os = pod.os.as_ref().map_or("", |os| os.name.as_str());
    if lifecycle.stop_signal.is_some() && os.is_empty() {
        let why = "may not be set for containers with empty `spec.os.name`";
        faults.push(Fault::forbidden(field.child("stopSignal"), why));
    }
    for (name, hook) in [
        ("postStart", &lifecycle.post_start),
        ("preStop", &lifecycle.pre_stop),
    ] {
        if let Some(hook) = hook {
            let field = field.child(name);
            check_hook(hook, &has_port, &field, faults);
            check_sleep(hook, pod, &field, faults);
        }
    }
}

fn init_container_fault(field: Path<'_>) -> Fault {
    Fault::forbidden(
        field,
        "may not be set for init containers without restartPolicy=Always",
    )
}

fn check_probe(
    probe: &Probe,
    is_readiness: bool,
    has_port: HasPort<'_>,
    field: &Path<'_>,
    faults: &mut Faults,
) {
    let actions = Actions {
        exec: probe.exec.as_ref(),
        http: probe.http_get.as_ref(),
        tcp: probe.tcp_socket.as_ref(),
        other: ("grpc", probe.grpc.is_some()),
    };
    actions.check_actions(has_port, field, faults);
    if let Some(grpc) = &probe.grpc {
        check_between(
            Some(grpc.port),
            PORTS,
            &field.child("grpc").child("port"),
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
        check_not_negative(value, &field.child(name), faults);
    }
    if let Some(threshold) = probe.success_threshold.filter(|n| !is_readiness && *n > 1) {
        faults.push(Fault::invalid(
            field.child("successThreshold"),
            threshold,
            "must be 1",
        ));
    }
    if let Some(seconds) = probe.termination_grace_period_seconds {
        let field = field.child("terminationGracePeriodSeconds");
        if seconds < 1 {
            faults.push(Fault::invalid(field, seconds, "must be greater than 0"));
        }
        if is_readiness {
            let why = "must not be set for readinessProbes";
            faults.push(Fault::invalid(field, seconds, why));
        }
    }
}

fn check_hook(
    hook: &LifecycleHandler,
    has_port: HasPort<'_>,
    field: &Path<'_>,
    faults: &mut Faults,
) {
    let actions = Actions {
        exec: hook.exec.as_ref(),
        http: hook.http_get.as_ref(),
        tcp: hook.tcp_socket.as_ref(),
        other: ("sleep", hook.sleep.is_some()),
    };
    actions.check_actions(has_port, field, faults);
    // The API server accepts it, but no kubelet implements it.
    if hook.tcp_socket.is_some() {
        let why = "is not supported in lifecycle hooks: no kubelet runs it; use exec or httpGet";
        faults.push(Fault::forbidden(field.child("tcpSocket"), why));
    }
}

/// Checks the duration of a sleep.
fn check_sleep(hook: &LifecycleHandler, pod: &PodSpec, field: &Path<'_>, faults: &mut Faults) {
    let Some(sleep) = &hook.sleep else { return };
    let grace = pod.termination_grace_period_seconds;
    let grace = grace
        .filter(|seconds| *seconds >= 0)
        .unwrap_or(DEFAULT_GRACE_PERIOD_SECONDS);
    if !(0..=grace).contains(&sleep.seconds) {
        let why = format_args!(
            "must be non-negative and less than terminationGracePeriodSeconds ({grace})"
        );
        faults.push(Fault::invalid(field.child("sleep"), sleep.seconds, why));
    }
}

/// The actions of a probe or hook; exactly one must be set.
struct Actions<'a> {
    exec: Option<&'a ExecAction>,
    http: Option<&'a HTTPGetAction>,
    tcp: Option<&'a TCPSocketAction>,
    /// The action that only probes or only hooks have, and whether it is set.
    other: (&'a str, bool),
}

impl Actions<'_> {
    fn check_actions(&self, has_port: HasPort<'_>, field: &Path<'_>, faults: &mut Faults) {
        let set = [
            ("exec", self.exec.is_some()),
            ("httpGet", self.http.is_some()),
            ("tcpSocket", self.tcp.is_some()),
            self.other,
        ];
        check_exactly_one(&set, "handler", field, faults);
        if let Some(exec) = self.exec
            && exec.command.as_ref().is_none_or(Vec::is_empty)
        {
            faults.push(Fault::required(
                field.child("exec").child("command"),
                "the command",
            ));
        }
        if let Some(http) = self.http {
            let field = field.child("httpGet");
            check_port(&http.port, has_port, &field.child("port"), faults);
            let scheme = http.scheme.as_deref();
            check_one_of(scheme, &["HTTP", "HTTPS"], &field.child("scheme"), faults);
            for (i, header) in http.http_headers.iter().flatten().enumerate() {
                let well_formed = |c: char| c.is_ascii_alphanumeric() || c == '-';
                if header.name.is_empty() || !header.name.chars().all(well_formed) {
                    let why = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')";
                    let field = field.child("httpHeaders").index(i);
                    faults.push(Fault::invalid(
                        field.child("name"),
                        header.name.as_str(),
                        why,
                    ));
                }
            }
        }
        if let Some(tcp) = self.tcp {
            check_port(
                &tcp.port,
                has_port,
                &field.child("tcpSocket").child("port"),
                faults,
            );
        }
    }
}

fn check_port(port: &IntOrString, has_port: HasPort<'_>, field: &Path<'_>, faults: &mut Faults) {
    match port {
        IntOrString::Int(number) => check_between(Some(*number), PORTS, field, faults),
        IntOrString::String(name) => {
            if check_required(name, field, "a number, or the name of a port", faults) {
                let before = faults.len();
                names::check_port_name(name, field, faults);
                if faults.len() == before && !has_port(name) {
                    faults.push(Fault::not_found(field, name.as_str()));
                }
            }
        }
    }
}
