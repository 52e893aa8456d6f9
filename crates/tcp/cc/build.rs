//! Compiles the algorithms for the host, from the headers that the BPF programs include too, and has what Rust
//! shares with them generated from the same.

use midspan_intf::Header;

fn main() -> anyhow::Result<()> {
    let mut build = cc::Build::new();
    // With debug assertions, undefined behaviour of C ends the process, as overflow does in Rust.
    if std::env::var_os("CARGO_CFG_DEBUG_ASSERTIONS").is_some() {
        build.flag("-fsanitize=undefined").flag("-fsanitize-undefined-trap-on-error");
    }
    build
        .file("src/table.c")
        .include("algo")
        .std("c11")
        .flag("-ffreestanding")
        .flag("-Wextra")
        .flag("-Wconversion")
        .flag("-Wno-sign-conversion")
        // Every algorithm has the functions of the interface, whatever it needs of them.
        .flag("-Wno-unused-parameter")
        .warnings_into_errors(true)
        .compile("midspan_cc");
    let header = Header {
        path: "src/table.h",
        include: &["algo"],
        items: &[
            "midspan_cc_.*",
            "state",
            "feedback_key",
            "cc_(kind|state|event|hystart)",
            "(CC|FEEDBACK|STATE)_.*",
        ],
        bytes: &["cc_config", "feedback_key", "feedback_value"],
        own: &[],
    };
    header.generate()?;
    for read in ["algo", "src/table.c", "src/table.h"] {
        println!("cargo:rerun-if-changed={read}");
    }
    Ok(())
}
