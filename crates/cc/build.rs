//! Compiles the algorithms for the host, from the headers that the BPF programs include too.

fn main() {
    cc::Build::new()
        .file("src/table.c")
        .include("algo")
        .std("c11")
        .flag("-ffreestanding")
        .flag("-Wconversion")
        .flag("-Wno-sign-conversion")
        .extra_warnings(true)
        .warnings_into_errors(true)
        .compile("midspan_cc");
    println!("cargo:rerun-if-changed=algo");
    println!("cargo:rerun-if-changed=src/table.c");
}
