//! Compiles the algorithms for the host, from the headers that the BPF programs include too, and has what Rust
//! shares with them generated from the same.

#![allow(clippy::disallowed_methods, reason = "a build script reads and writes files")]

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

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
    list_headers()?;
    for read in ["algo", "src/host.h", "src/table.c", "src/table.h"] {
        println!("cargo:rerun-if-changed={read}");
    }
    Ok(())
}

/// `HEADERS` of the crate: all of them, by name.
fn list_headers() -> anyhow::Result<()> {
    let mut files: Vec<PathBuf> = ["src/host.h", "src/table.h"].map(PathBuf::from).into();
    for entry in fs::read_dir("algo")? {
        files.push(entry?.path());
    }
    files.sort_by(|one, other| one.file_name().cmp(&other.file_name()));
    let root = env::var("CARGO_MANIFEST_DIR")?;
    let mut list = String::from("&[\n");
    for file in files {
        let name = file.file_name().unwrap_or_default();
        writeln!(list, "({name:?}, include_str!({:?})),", Path::new(&root).join(&file))?;
    }
    list.push(']');
    fs::write(PathBuf::from(env::var("OUT_DIR")?).join("headers.rs"), list)?;
    Ok(())
}
