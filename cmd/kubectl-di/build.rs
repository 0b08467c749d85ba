//! Takes in the compiler's unwinder, so that the plugin needs nothing but the C library.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let target = |part: &str| env::var(format!("CARGO_CFG_TARGET_{part}")).unwrap_or_default();
    if target("OS") == "linux" && target("ENV") == "gnu" {
        // It stands before the shared one, which nothing is left to be asked of then.
        println!("cargo::rustc-link-lib=static=gcc_eh");
    }
}
