//! Makes the program smaller: the image is to stay below 30 MB.

use std::{env, path::Path, process::Command};

const TARGET: &str = "x86_64-unknown-linux-gnu";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    if is("TARGET", TARGET) && is("PROFILE", "release") && links_by_lld() {
        // What stands there several times under other names is there once.
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
    }
}

/// Whether rustc links by the linker that it brings along, as [1.90 and newer](https://blog.rust-lang.org/2025/09/18/Rust-1.90.0/) do.
fn links_by_lld() -> bool {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let told = |args: &[&str]| {
        let output = Command::new(&rustc).args(args).output().ok()?;
        String::from_utf8(output.stdout).ok()
    };
    let version = told(&["--version"]);
    let minor = version.and_then(|version| version.split('.').nth(1)?.parse::<u32>().ok());
    let linker = format!("lib/rustlib/{TARGET}/bin/gcc-ld/ld.lld");
    let is_there = |sysroot: String| Path::new(sysroot.trim()).join(linker).exists();
    minor >= Some(90) && told(&["--print", "sysroot"]).is_some_and(is_there)
}
