//! Compiles the BPF program, and has what Rust shares with it generated from its header. It takes clang with its libclang,
//! and the headers that the C library comes with.

use std::env;
use std::path::PathBuf;

use anyhow::{Context, Result};
use libbpf_cargo::SkeletonBuilder;
use midspan_intf::Header;

fn main() -> Result<()> {
    let output = PathBuf::from(env::var("OUT_DIR")?).join("steer.bpf.o");
    let architecture = env::var("CARGO_CFG_TARGET_ARCH")?;
    SkeletonBuilder::new()
        .source("bpf/steer.bpf.c")
        .obj(output)
        // Where Debian and its kin keep <asm/types.h>.
        .clang_args([
            &format!("-I/usr/include/{architecture}-linux-gnu"),
            // Atomic exchange (Linux 5.12).
            "-mcpu=v3",
            "-I../cc/algo",
            "-I../reordering/algo",
            "-Wall",
            "-Wextra",
            "-Wno-sign-compare",
            "-Werror",
        ])
        .build()
        .context("the BPF program could not be compiled (is clang installed?)")?;
    let header = Header {
        path: "bpf/intf.h",
        include: &[],
        items: &[
            "because",
            "choice",
            "ending",
            "release",
            "stage",
            "verdict",
            "BANKS",
            "FAMILIES",
            "PROCESSORS",
            "WORKERS",
        ],
        bytes: &[
            "address",
            "chance",
            "connection",
            "course",
            "flow",
            "held",
            "opening",
            "place",
            "prefix",
            "route",
            "service",
            "settings",
            "worker",
        ],
        own: &["__be16", "__be32"],
    };
    header.generate()?;
    for read in ["bpf", "../cc/algo/fixed.h", "../reordering/algo"] {
        println!("cargo:rerun-if-changed={read}");
    }
    Ok(())
}
