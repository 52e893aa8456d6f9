//! Compiles the algorithms for the host, from the headers that the BPF programs include too.

fn main() {
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
    println!("cargo:rerun-if-changed=algo");
    println!("cargo:rerun-if-changed=src/table.c");
}
