//! Compiles the decisions for the host, from the header that the BPF program includes too, and has what Rust shares
//! with them generated from the same.

#![allow(clippy::disallowed_methods, reason = "a build script reads and writes files")]

use midspan_intf::Header;

fn main() -> anyhow::Result<()> {
    let mut build = cc::Build::new();
    // With debug assertions, undefined behaviour of C ends the process, as overflow does in Rust.
    if std::env::var_os("CARGO_CFG_DEBUG_ASSERTIONS").is_some() {
        build.flag("-fsanitize=undefined").flag("-fsanitize-undefined-trap-on-error");
    }
    build
        .file("src/host.c")
        .include("algo")
        .include("../cc/algo")
        .std("c11")
        .flag("-ffreestanding")
        .flag("-Wextra")
        .flag("-Wno-sign-conversion")
        .warnings_into_errors(true)
        .compile("midspan_reordering");
    let header = Header {
        path: "src/host.h",
        include: &["algo", "../cc/algo"],
        items: &["midspan_reordering_.*", "telling", "HOLD_MOST", "HOLES", "LATENESS_.*"],
        bytes: &["acknowledgement", "hole", "holes", "lateness", "work"],
        own: &[],
    };
    header.generate()?;
    for read in ["algo", "../cc/algo/fixed.h", "src/host.c", "src/host.h"] {
        println!("cargo:rerun-if-changed={read}");
    }
    Ok(())
}
