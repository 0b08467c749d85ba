//! Security contexts of pods and containers.

use std::collections::HashSet;

use k8s_openapi::api::core::v1::{
    AppArmorProfile, Container, PodSecurityContext, PodSpec, SeccompProfile,
};

use super::windows;
use crate::validation::{
    fault::{Fault, Faults},
    names,
    path::Path,
    value_checks::{
        check_between, check_one_of, check_optional_one_of, check_relative_path, check_required,
    },
};

/// The profile type for files of the node.
const LOCALHOST: &str = "Localhost";
/// Bounds of user and group IDs.
const IDS: (i64, i64) = (0, 2_147_483_647);
/// Maximum length of a profile path, in bytes.
const MAX_PROFILE: usize = 4095;
/// Prefixes of network and IPC sysctls, which belong to the node if the pod shares its namespaces.
const NETWORK_SYSCTLS: [&str; 1] = ["net."];
const IPC_SYSCTLS: [&str; 3] = ["kernel.shm", "kernel.msg", "fs.mqueue."];

/// Checks the security context of the pod.
pub(super) fn check_pod_context(pod: &PodSpec, field: &Path<'_>, faults: &mut Faults) {
    check_users(pod, field, faults);
    let Some(context) = &pod.security_context else {
        return;
    };
    let field = field.child("securityContext");
    for (name, id) in [
        ("runAsUser", context.run_as_user),
        ("runAsGroup", context.run_as_group),
        ("fsGroup", context.fs_group),
    ] {
        check_between(id, IDS, &field.child(name), faults);
    }
    for (i, group) in context.supplemental_groups.iter().flatten().enumerate() {
        check_between(
            Some(*group),
            IDS,
            &field.child("supplementalGroups").index(i),
            faults,
        );
    }
    let policy = context.fs_group_change_policy.as_deref();
    let policies = ["Always", "OnRootMismatch"];
    check_optional_one_of(
        policy,
        &policies,
        &field.child("fsGroupChangePolicy"),
        faults,
    );
    let policy = context.supplemental_groups_policy.as_deref();
    let place = field.child("supplementalGroupsPolicy");
    check_optional_one_of(policy, &["Merge", "Strict"], &place, faults);
    let policy = context.se_linux_change_policy.as_deref();
    let place = field.child("seLinuxChangePolicy");
    check_optional_one_of(policy, &["MountOption", "Recursive"], &place, faults);
    check_seccomp(context.seccomp_profile.as_ref(), &field, faults);
    check_apparmor(context.app_armor_profile.as_ref(), &field, faults);
    windows::check_windows_options(context.windows_options.as_ref(), &field, faults);
    check_sysctls(pod, context, &field, faults);
}

/// Checks that a pod with its own user namespace shares no other namespace with the node.
fn check_users(pod: &PodSpec, field: &Path<'_>, faults: &mut Faults) {
    if pod.host_users != Some(false) {
        return;
    }
    for (name, is_shared) in [
        ("hostNetwork", pod.host_network),
        ("hostPID", pod.host_pid),
        ("hostIPC", pod.host_ipc),
    ] {
        if is_shared == Some(true) {
            let why = "when `hostUsers` is false";
            faults.push(Fault::forbidden(field.child(name), why));
        }
    }
}

fn check_sysctls(
    pod: &PodSpec,
    context: &PodSecurityContext,
    field: &Path<'_>,
    faults: &mut Faults,
) {
    let sysctls = context.sysctls.as_deref().unwrap_or_default();
    let mut earlier = HashSet::new();
    for (i, sysctl) in sysctls.iter().enumerate() {
        let field = field.child("sysctls").index(i);
        let field = field.child("name");
        if !check_required(&sysctl.name, &field, "must not be empty", faults) {
            continue;
        }
        if is_sysctl(&sysctl.name) {
            names::check_unique(&mut earlier, &sysctl.name, &field, faults);
        } else {
            let why = "must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?\\.)*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
            faults.push(Fault::invalid(field, sysctl.name.as_str(), why));
        }
        if let Some(shared) = shared_with_node(pod, &sysctl.name) {
            let why = format_args!("may not be specified when '{shared}' is true");
            faults.push(Fault::invalid(field, sysctl.name.as_str(), why));
        }
    }
}

/// Returns the field by which the pod shares the sysctl's namespace with the node.
fn shared_with_node(pod: &PodSpec, sysctl: &str) -> Option<&'static str> {
    // The first of `.` and `/` is the separator; the other may occur in names.
    let name = match sysctl.find(['.', '/']).map(|at| sysctl.split_at(at)) {
        Some((_, rest)) if rest.starts_with('/') => swap_separators(sysctl),
        _ => sysctl.to_owned(),
    };
    let begins = |with: &[&str]| with.iter().any(|with| name.starts_with(with));
    if pod.host_network == Some(true) && begins(&NETWORK_SYSCTLS) {
        Some("hostNetwork")
    } else if pod.host_ipc == Some(true) && (name == "kernel.sem" || begins(&IPC_SYSCTLS)) {
        Some("hostIPC")
    } else {
        None
    }
}

/// Swaps dots and slashes.
fn swap_separators(name: &str) -> String {
    let swap = |c| match c {
        '/' => '.',
        '.' => '/',
        _ => c,
    };
    name.chars().map(swap).collect()
}

fn is_sysctl(name: &str) -> bool {
    let part = |part: &str| {
        let is_alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        part.chars()
            .all(|c| is_alphanumeric(c) || c == '-' || c == '_')
            && part.starts_with(is_alphanumeric)
            && part.ends_with(is_alphanumeric)
    };
    name.len() <= 253 && name.split(['.', '/']).all(part)
}

/// Checks the security context of a container.
pub(super) fn check_container_context(
    container: &Container,
    pod: &PodSpec,
    (pod_field, field): (&Path<'_>, &Path<'_>),
    faults: &mut Faults,
) {
    let empty = k8s_openapi::api::core::v1::SecurityContext::default();
    let own = container.security_context.as_ref().unwrap_or(&empty);
    let field = field.child("securityContext");
    check_between(own.run_as_user, IDS, &field.child("runAsUser"), faults);
    check_between(own.run_as_group, IDS, &field.child("runAsGroup"), faults);
    let mount = own.proc_mount.as_deref();
    check_one_of(
        mount,
        &["Default", "Unmasked"],
        &field.child("procMount"),
        faults,
    );
    // Servers before 1.33 that do not enable ProcMountType ignore it.
    if mount == Some("Unmasked") && pod.host_users != Some(false) {
        let why = "`hostUsers` must be false to use `Unmasked`";
        faults.push(Fault::invalid(field.child("procMount"), "Unmasked", why));
    }
    check_seccomp(own.seccomp_profile.as_ref(), &field, faults);
    check_apparmor(own.app_armor_profile.as_ref(), &field, faults);
    windows::check_windows_options(own.windows_options.as_ref(), &field, faults);
    if own.allow_privilege_escalation == Some(false) {
        let added = own.capabilities.as_ref().and_then(|c| c.add.as_deref());
        let added = added.unwrap_or_default();
        let contradicts = if own.privileged == Some(true) {
            "`privileged` to true"
        } else if added.iter().any(|capability| capability == "CAP_SYS_ADMIN") {
            "`capabilities.Add` CAP_SYS_ADMIN"
        } else {
            ""
        };
        if !contradicts.is_empty() {
            let why =
                format_args!("cannot set `allowPrivilegeEscalation` to false and {contradicts}");
            faults.push(Fault::invalid(field, "", why));
        }
    }
    check_root(own, pod, (pod_field, &field), faults);
}

/// Checks that root does not contradict `runAsNonRoot`: no kubelet starts such a container.
fn check_root(
    own: &k8s_openapi::api::core::v1::SecurityContext,
    pod: &PodSpec,
    (pod_field, field): (&Path<'_>, &Path<'_>),
    faults: &mut Faults,
) {
    let of_pod = pod.security_context.as_ref();
    let inherited = of_pod.and_then(|context| context.run_as_user);
    let never_root = own
        .run_as_non_root
        .or(of_pod.and_then(|context| context.run_as_non_root));
    if never_root == Some(true) && own.run_as_user.or(inherited) == Some(0) {
        let of_pod_field = pod_field.child("securityContext");
        let field = match own.run_as_user {
            Some(_) => field.child("runAsUser"),
            None => of_pod_field.child("runAsUser"),
        };
        let fault = Fault::invalid(
            field,
            0,
            "breaks runAsNonRoot: no kubelet starts the container",
        );
        if !faults.contains(&fault) {
            faults.push(fault);
        }
    }
}

fn check_seccomp(profile: Option<&SeccompProfile>, field: &Path<'_>, faults: &mut Faults) {
    let Some(profile) = profile else { return };
    let field = field.child("seccompProfile");
    let file = profile.localhost_profile.as_deref();
    check_profile("seccomp", &profile.type_, file, &field, faults);
    if profile.type_ == LOCALHOST {
        let path = file.unwrap_or_default();
        check_relative_path(path, &field.child("localhostProfile"), faults);
    }
}

fn check_apparmor(profile: Option<&AppArmorProfile>, field: &Path<'_>, faults: &mut Faults) {
    let Some(profile) = profile else { return };
    let name = profile.localhost_profile.as_deref();
    let field = field.child("appArmorProfile");
    // An empty AppArmor profile name counts as unset.
    let is_none = profile.type_ == LOCALHOST && name == Some("");
    let name = name.filter(|_| !is_none);
    check_profile("AppArmor", &profile.type_, name, &field, faults);
    let Some(name) = name.filter(|_| profile.type_ == LOCALHOST) else {
        return;
    };
    let place = field.child("localhostProfile");
    if name.trim() != name {
        let why = "must not be padded with whitespace";
        faults.push(Fault::invalid(place, name, why));
    }
    if name.len() > MAX_PROFILE {
        faults.push(Fault::too_long(place, MAX_PROFILE));
    }
}

/// Checks type and name of a profile.
fn check_profile(
    kind: &str,
    type_: &str,
    local: Option<&str>,
    field: &Path<'_>,
    faults: &mut Faults,
) {
    let place = field.child("type");
    if check_required(type_, &place, "the type of the profile", faults) {
        let known = [LOCALHOST, "RuntimeDefault", "Unconfined"];
        check_one_of(Some(type_), &known, &place, faults);
    }
    let place = field.child("localhostProfile");
    match local {
        None if type_ == LOCALHOST => {
            let message = format_args!("must be set when {kind} type is Localhost");
            faults.push(Fault::required(place, message));
        }
        Some(local) if type_ != LOCALHOST => {
            let why = format_args!("can only be set when {kind} type is Localhost");
            faults.push(Fault::invalid(place, local, why));
        }
        _ => {}
    }
}
