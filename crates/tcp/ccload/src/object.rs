//! The compiled programs, and what is set in one before it is loaded.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;

use libbpf_rs::libbpf_sys::BPF_F_LINK;
use libbpf_rs::{
    MapCore, MapMut, Object, ObjectBuilder, OpenMapMut, OpenObject, PrintLevel, set_print,
};

use midspan_ccown::{Built, Folder};

use crate::intf::{self, NAME_SIZE, TCP_CONG_NON_RESTRICTED};
use crate::refusal::Refusal;
use crate::{Error, Kernel, Options};

type Objects = &'static [(&'static str, &'static [u8])];
const OBJECTS: Objects = include!(concat!(env!("OUT_DIR"), "/objects.rs"));

/// An algorithm that can be loaded: Midspan's, or one that the user has built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Algorithm {
    name: &'static str,
    object: &'static [u8],
    /// The header that a user's own was built from.
    source: Option<&'static str>,
    takes_feedback: bool,
}

/// All of Midspan's, by name.
pub fn algorithms() -> impl Iterator<Item = Algorithm> {
    OBJECTS.iter().map(|&(name, object)| Algorithm {
        name,
        object,
        source: None,
        takes_feedback: matches!(name, "natcp" | "nacubic"),
    })
}

/// All that the user has built, by name; those that cannot be read are left out.
pub fn own_algorithms() -> Vec<Algorithm> {
    let folder = Folder::of_user().ok();
    let built = folder.map(|folder| folder.all()).unwrap_or_default();
    built.iter().filter_map(|built| Algorithm::of(built).ok()).collect()
}

/// Where a map is from that is not the program's own.
#[derive(Debug)]
pub(crate) enum MapFrom<'a> {
    /// It is pinned there, or is made and pinned.
    Pin(PathBuf),
    /// Somebody else has it.
    Shared(BorrowedFd<'a>),
}

impl Algorithm {
    /// The one called `name`: Midspan's, or else the one that the user has built.
    ///
    /// # Errors
    /// When there is none, or it cannot be read.
    pub fn named(name: &str) -> Result<Algorithm, Error> {
        if let Some(known) = algorithms().find(|algorithm| algorithm.name == name) {
            return Ok(known);
        }
        if let Some(built) = Folder::of_user().ok().and_then(|folder| folder.named(name)) {
            return Algorithm::of(&built);
        }
        let known = algorithms().chain(own_algorithms()).map(|known| known.name);
        Err(Error::Unknown { name: name.to_owned(), known: known.collect::<Vec<_>>().join(", ") })
    }

    /// One that the user has built. A process has to do with few of them, so what is read is kept for good.
    fn of(built: &Built) -> Result<Algorithm, Error> {
        let path = built.program();
        let failed = |error| Error::Pin { path: path.clone(), error };
        let object = fs::read(&path).map_err(failed)?;
        let source = built.source().display().to_string();
        listen();
        let open =
            ObjectBuilder::default().open_memory(&object).map_err(|_| Error::OwnRefused {
                file: source.clone(),
                why: format!("{} is no program: build it again", path.display()),
            })?;
        let takes_feedback = open.maps().any(|map| map.name() == "feedback");
        Ok(Algorithm {
            name: built.name().to_string().leak(),
            object: object.leak(),
            source: Some(source.leak()),
            takes_feedback,
        })
    }

    /// One that is loaded, whatever it was built from.
    pub(crate) fn loaded(name: &str) -> Algorithm {
        let name = name.to_owned().leak();
        Algorithm { name, object: &[], source: None, takes_feedback: false }
    }

    /// The header that it was built from, if it is a user's own.
    pub fn source(self) -> Option<&'static str> {
        self.source
    }

    /// The algorithm's name, without a prefix.
    pub fn name(self) -> &'static str {
        self.name
    }

    /// Whether it does what NetAssist says, which it reads in a map.
    pub fn takes_feedback(self) -> bool {
        self.takes_feedback
    }

    /// Loads its programs, to be registered as `registered`. Of its maps those that `maps` names are
    /// from there; the others are its own.
    pub(crate) fn load(
        self,
        registered: &str,
        options: &Options,
        kernel: &Kernel,
        maps: &[(&str, MapFrom<'_>)],
    ) -> libbpf_rs::Result<Object> {
        listen();
        SAID.take();
        let mut object = ObjectBuilder::default().open_memory(self.object)?;
        let mut control = open_map(&mut object, "control")?;
        if kernel.links {
            control.set_map_flags(BPF_F_LINK)?;
        }
        let ops = control.initial_value_mut().ok_or_else(|| missing("control"))?;
        set_registration(ops, &format!("ms_{}", self.name), registered, options.unrestricted)?;
        open_map(&mut object, ".rodata.config")?.set_initial_value(&options.config.to_bytes())?;
        if let Ok(mut arguments) = open_map(&mut object, ".rodata.kernel") {
            arguments.set_initial_value(&kernel.cong_control_arguments.to_ne_bytes())?;
        }
        for (name, from) in maps {
            if let Ok(mut map) = open_map(&mut object, name) {
                match from {
                    MapFrom::Pin(path) => map.set_pin_path(path)?,
                    MapFrom::Shared(shared) => map.reuse_fd(*shared)?,
                }
            }
        }
        object.load()
    }
}

thread_local! {
    /// Warnings of libbpf since the last object was begun to be loaded.
    static SAID: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Has what libbpf says told as the program tells things, and its warnings kept.
fn listen() {
    set_print(Some((PrintLevel::Debug, |level, said| match level {
        PrintLevel::Warn => {
            tracing::debug!("libbpf: {}", said.trim_end());
            SAID.with_borrow_mut(|all| all.push_str(&said));
        }
        _ => tracing::trace!("libbpf: {}", said.trim_end()),
    })));
}

/// Why the verifier refused what this thread tried to load last; none if it did not.
pub(crate) fn refusal() -> Option<Refusal> {
    SAID.with_borrow(|said| Refusal::read(said))
}

/// Writes name and flags into the operations ([`intf`]), which the object has under the name `compiled`.
fn set_registration(
    ops: &mut [u8],
    compiled: &str,
    name: &str,
    unrestricted: bool,
) -> io::Result<()> {
    if name.is_empty() || name.len() >= NAME_SIZE {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "a name of 1 to 15 bytes is wanted",
        ));
    }
    let field = ops.get_mut(intf::NAME).filter(|field| is_name(field, compiled));
    let field = field.ok_or_else(|| missing("name"))?;
    field.fill(0);
    field[..name.len()].copy_from_slice(name.as_bytes());
    if unrestricted {
        let flags = ops.get_mut(intf::FLAGS).and_then(|flags| flags.first_chunk_mut());
        let flags = flags.ok_or_else(|| missing("flags"))?;
        *flags = (u32::from_ne_bytes(*flags) | TCP_CONG_NON_RESTRICTED).to_ne_bytes();
    }
    Ok(())
}

/// Whether a field with a NUL at its end has this name.
fn is_name(field: &[u8], name: &str) -> bool {
    field.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&0))
}

fn open_map<'a>(object: &'a mut OpenObject, name: &str) -> io::Result<OpenMapMut<'a>> {
    object.maps_mut().find(|map| map.name() == OsStr::new(name)).ok_or_else(|| missing(name))
}

/// The map that holds the operations.
pub(crate) fn control(object: &mut Object) -> io::Result<MapMut<'_>> {
    object.maps_mut().find(|map| map.name() == "control").ok_or_else(|| missing("control"))
}

fn missing(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("the program has no `{what}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_algorithm_of_the_family_has_a_program() {
        let mut written: Vec<&str> = midspan_cc::names().collect();
        written.sort_unstable();
        let compiled: Vec<&str> = algorithms().map(Algorithm::name).collect();
        assert_eq!(compiled, written);
    }

    #[test]
    fn an_unknown_one_is_refused_with_those_that_there_are() {
        let said = Algorithm::named("vegas").unwrap_err().to_string();
        assert!(said.contains("`vegas`") && said.contains("cubic"), "{said}");
    }

    #[test]
    fn the_registration_is_written_where_the_object_has_it() {
        let mut ops = vec![0u8; intf::FLAGS.end + 16];
        ops[intf::NAME][..5].copy_from_slice(b"ms_lp");
        ops[intf::FLAGS.start] = 2;
        set_registration(&mut ops, "ms_lp", "mine", true).unwrap();
        assert_eq!(&ops[intf::NAME], b"mine\0\0\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(ops[intf::FLAGS.start], 3);
        assert!(set_registration(&mut ops, "mine", "", false).is_err());
        assert!(set_registration(&mut ops[..intf::NAME.end], "mine", "other", true).is_err());
        assert!(set_registration(&mut ops, "ms_lp", "other", true).is_err());
        assert!(set_registration(&mut ops, "mine", "a_name_that_is_too_long", false).is_err());
    }
}
