//! For build scripts: the Rust types of a C header, so that what C and Rust share is written once.
//!
//! By bindgen, which loads the libclang that clang comes with. What libbpf-cargo makes of an object's own types would do
//! for maps alone: it has neither constants nor functions, and knows nothing of C that the host runs.

use std::env;
use std::path::PathBuf;

use anyhow::{Context, Result};
use bindgen::callbacks::{DeriveInfo, DeriveTrait, ImplementsTrait, ParseCallbacks};
use bindgen::{Builder, EnumVariation, Formatter, RustEdition, RustTarget};

/// What a crate wants of a header.
///
/// Types keep the names that they have in C; an `enum` is a module of its constants. That each type is laid out as in C
/// is asserted where they are compiled.
#[derive(Debug, Clone, Copy)]
pub struct Header<'a> {
    /// Where it is, from the crate's folder.
    pub path: &'a str,
    /// Folders in which to look for what it includes.
    pub include: &'a [&'a str],
    /// Types, constants and functions, by regular expressions of whole names. What they are made of comes with them.
    pub items: &'a [&'a str],
    /// Structures beside those that are read from bytes and written as such: they get zerocopy's traits, which a structure with padding is
    /// refused, and can be compared.
    pub bytes: &'a [&'a str],
    /// Those that the crate has itself, by the same names: integers of another byte order.
    pub own: &'a [&'a str],
}

impl Header<'_> {
    /// Writes the types into `intf.rs` of `OUT_DIR`, for the crate to include.
    ///
    /// # Errors
    /// When the header cannot be read, which takes libclang.
    pub fn generate(&self) -> Result<()> {
        let out = PathBuf::from(env::var("OUT_DIR")?).join("intf.rs");
        let architecture = env::var("CARGO_CFG_TARGET_ARCH")?;
        // The workspace's `rust-version`.
        let target = RustTarget::stable(88, 0).map_err(|error| anyhow::anyhow!("{error}"))?;
        let builder = Builder::default()
            .header(self.path)
            .clang_args(self.include.iter().map(|folder| format!("-I{folder}")))
            // Where Debian and its kin keep <asm/types.h>.
            .clang_arg(format!("-I/usr/include/{architecture}-linux-gnu"))
            .rust_edition(RustEdition::Edition2024)
            .rust_target(target)
            .use_core()
            .default_enum_style(EnumVariation::ModuleConsts)
            .generate_comments(false)
            .formatter(Formatter::Prettyplease)
            .parse_callbacks(Box::new(Traits(
                self.bytes.iter().copied().map(Into::into).collect(),
            )));
        let items = self.items.iter().chain(self.bytes);
        let builder = items.fold(builder, |builder, name| builder.allowlist_item(name));
        let builder = self.own.iter().fold(builder, |builder, name| builder.blocklist_type(name));
        let types = builder.generate().with_context(|| {
            format!("{} cannot be read (is clang installed, and its libclang?)", self.path)
        })?;
        types.write_to_file(&out).with_context(|| out.display().to_string())
    }
}

/// The structures that get zerocopy's traits.
#[derive(Debug)]
struct Traits(Vec<String>);

impl ParseCallbacks for Traits {
    fn add_derives(&self, info: &DeriveInfo<'_>) -> Vec<String> {
        let bytes = ["FromBytes", "IntoBytes", "Immutable", "KnownLayout"];
        let wanted = self.0.iter().any(|name| name == info.name);
        let derives = bytes.iter().map(|name| format!("zerocopy::{name}"));
        derives.chain(["PartialEq".into(), "Eq".into()]).filter(|_| wanted).collect()
    }

    /// The crate's own have them all.
    fn blocklisted_type_implements_trait(
        &self,
        _name: &str,
        _trait: DeriveTrait,
    ) -> Option<ImplementsTrait> {
        Some(ImplementsTrait::Yes)
    }
}
