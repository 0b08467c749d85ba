//! Makes the program smaller, to keep the image below 30 MB.

use std::{env, path::Path, process::Command};

const TARGET: &str = "x86_64-unknown-linux-gnu";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let has_value = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    if has_value("TARGET", TARGET) && has_value("PROFILE", "release") && links_with_lld() {
        // Merge identical functions.
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
    }
}

/// Whether rustc links with its bundled lld, as [1.90 and newer] do.
fn links_with_lld() -> bool {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let rustc_output = |args: &[&str]| {
        let output = Command::new(&rustc).args(args).output().ok()?;
        String::from_utf8(output.stdout).ok()
    };
    let version = rustc_output(&["--version"]);
    let minor = version.and_then(|version| version.split('.').nth(1)?.parse::<u32>().ok());
    let linker = format!("lib/rustlib/{TARGET}/bin/gcc-ld/ld.lld");
    let has_linker = |sysroot: String| Path::new(sysroot.trim()).join(linker).exists();
    minor >= Some(90) && rustc_output(&["--print", "sysroot"]).is_some_and(has_linker)
}
