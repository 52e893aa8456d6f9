//! Compiles the BPF programs, and has what Rust shares with it generated from their headers. It takes clang with its libclang,
//! and the headers that the C library comes with.

use std::env;
use std::path::PathBuf;

use anyhow::{Context, Result};
use libbpf_cargo::SkeletonBuilder;
use midspan_intf::Header;

fn main() -> Result<()> {
    for name in ["steer", "first_window"] {
        compile(name)?;
    }
    let header = Header {
        path: "bpf/shared.h",
        include: &[],
        items: &[
            "because",
            "choice",
            "ending",
            "release",
            "stage",
            "verdict",
            "GENERATIONS",
            "FAMILIES",
            "FIRST_WINDOW_SET",
            "MARKED_SERVERS",
            "MOST_FIRST_WINDOW",
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
            "kept_ack",
            "syn_record",
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
    for read in ["bpf", "../../tcp/cc/algo/fixed.h", "../../tcp/reordering/algo"] {
        println!("cargo:rerun-if-changed={read}");
    }
    Ok(())
}

/// Makes an object of `bpf/NAME.bpf.c`.
fn compile(name: &str) -> Result<()> {
    let output = PathBuf::from(env::var("OUT_DIR")?).join(format!("{name}.bpf.o"));
    let architecture = env::var("CARGO_CFG_TARGET_ARCH")?;
    SkeletonBuilder::new()
        .source(format!("bpf/{name}.bpf.c"))
        .obj(output)
        .clang_args([
            // Where Debian and its kin keep <asm/types.h>.
            &format!("-I/usr/include/{architecture}-linux-gnu"),
            // Atomic exchange (Linux 5.12).
            "-mcpu=v3",
            "-I../../tcp/cc/algo",
            "-I../../tcp/reordering/algo",
            "-Wall",
            "-Wextra",
            "-Wno-sign-compare",
            "-Werror",
        ])
        .build()
        .with_context(|| format!("bpf/{name}.bpf.c could not be compiled (is clang installed?)"))?;
    Ok(())
}
