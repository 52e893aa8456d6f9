//! Compiles the BPF programs: one object for each `bpf/*.bpf.c`, and a list of them, and those of the tests; and has what
//! Rust writes into them generated from their header. It takes clang with its libclang, and the headers that the C library
//! comes with.

use std::env;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use libbpf_cargo::SkeletonBuilder;
use midspan_intf::Header;

const SOURCES: &str = "bpf";
const TEST_SOURCES: &str = "tests/bpf";

fn main() -> Result<()> {
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let mut list = String::from("&[\n");
    for name in compile(SOURCES, &out)? {
        writeln!(
            list,
            "({name:?}, include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{name}.bpf.o\"))),"
        )?;
    }
    list.push(']');
    fs::write(out.join("objects.rs"), list)?;
    fs::write(out.join("glue.rs"), glue()?)?;
    compile(TEST_SOURCES, &out)?;
    let header = Header {
        path: "bpf/congestion_ops.h",
        include: &[],
        items: &["tcp_congestion_ops", "TCP_CONG_NON_RESTRICTED"],
        bytes: &[],
        own: &[],
    };
    header.generate()?;
    for read in [SOURCES, TEST_SOURCES, "../cc/algo"] {
        println!("cargo:rerun-if-changed={read}");
    }
    Ok(())
}

/// What programs are made with of controls that are not here: all headers, by name.
fn glue() -> Result<String> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let mut names = Vec::new();
    for entry in fs::read_dir(SOURCES)? {
        let file = entry?.file_name().into_string().unwrap_or_default();
        names.extend(file.ends_with(".h").then_some(file));
    }
    names.sort();
    let mut list = String::from("&[\n");
    for name in names {
        writeln!(list, "({name:?}, include_str!({:?})),", root.join(SOURCES).join(&name))?;
    }
    list.push(']');
    Ok(list)
}

/// The names of the programs in `folder`, each of which is an object in `out` now.
fn compile(folder: &str, out: &Path) -> Result<Vec<String>> {
    let architecture = env::var("CARGO_CFG_TARGET_ARCH")?;
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let file = entry?.file_name().into_string().unwrap_or_default();
        names.extend(file.strip_suffix(".bpf.c").map(str::to_owned));
    }
    names.sort();
    for name in &names {
        SkeletonBuilder::new()
            .source(format!("{folder}/{name}.bpf.c"))
            .obj(out.join(format!("{name}.bpf.o")))
            .clang_args([
                "-I../cc/algo",
                &format!("-I{SOURCES}"),
                // Where Debian and its kin keep <asm/types.h>.
                &format!("-I/usr/include/{architecture}-linux-gnu"),
                // Comparisons in 32 bits, which the verifier follows better than shifts.
                "-mcpu=v3",
                "-Wall",
                "-Wextra",
                "-Wno-sign-compare",
                "-Wno-unused-parameter",
                "-Werror",
            ])
            .build()
            .with_context(|| {
                format!("{folder}/{name}.bpf.c cannot be compiled (is clang installed?)")
            })?;
    }
    Ok(names)
}
