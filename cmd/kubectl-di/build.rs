//! Links the unwinder of the compiler statically, so that the plugin needs only the C library.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let target = |part: &str| env::var(format!("CARGO_CFG_TARGET_{part}")).unwrap_or_default();
    if target("OS") == "linux" && target("ENV") == "gnu" {
        // The static library resolves all symbols, so the shared one is not needed.
        println!("cargo::rustc-link-lib=static=gcc_eh");
    }
}
