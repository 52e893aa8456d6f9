//! Shared objects of controls, and how they are made known to `midspan_cc`.

use std::ffi::{CStr, c_char, c_void};
use std::mem::forget;

use libloading::Library;

use crate::headers::interface;
use crate::{Built, Error, Folder, crash};

/// The function that answers with the control, as table.h has it.
pub(crate) const GET: &str = "midspan_cc_algorithm";
/// A text that says of which interface the object is.
pub(crate) const INTERFACE_IS: &str = "midspan_cc_interface";

/// Makes those controls among `names` known to `midspan_cc` that are none of its own, and that the user has built: a
/// simulation has them by these names then, with `ms_` or without. A name that nobody has stays unknown. Where one
/// crashes later, the process ends with status 2, and a line that names its header.
///
/// # Errors
/// The first that cannot be opened.
pub fn open_named<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<(), Error> {
    for name in names {
        let bare = name.strip_prefix("ms_").unwrap_or(name);
        // The kernel's own stand in for themselves.
        if of_midspan(bare) {
            continue;
        }
        // Without a folder nothing was built.
        let Ok(folder) = Folder::of_user() else { return Ok(()) };
        if let Some(built) = folder.named(bare) {
            open(&built)?;
        }
    }
    Ok(())
}

/// Whether `midspan_cc` has a control of this name in itself.
pub(crate) fn of_midspan(name: &str) -> bool {
    midspan_cc::names_of_midspan().any(|known| known == name)
}

fn open(built: &Built) -> Result<(), Error> {
    let (file, object) = (built.source(), built.object());
    let failed = |error: libloading::Error| Error::Object {
        file: file.clone(),
        object: object.clone(),
        why: error.to_string(),
    };
    // SAFETY: it has no initialization that `build` did not put there, which puts none; whose code it is else, its user
    // knows, and has asked for.
    #[allow(unsafe_code)]
    let library = unsafe { Library::new(&object) }.map_err(failed)?;
    // SAFETY: under this name `build` puts a text that ends with zero, or there is none.
    #[allow(unsafe_code)]
    let told = unsafe {
        let text = library.get::<*const c_char>(INTERFACE_IS.as_bytes()).map_err(failed)?;
        // The symbol is the text itself.
        CStr::from_ptr(text.try_as_raw_ptr().unwrap_or_default().cast())
    };
    if told.to_str() != Ok(&interface()) {
        return Err(Error::Stale { file, object });
    }
    type Get = unsafe extern "C" fn(u32) -> *const c_void;
    // SAFETY: it was built with the headers of this program, whose `GET` is of this type and touches nothing. The library
    // stays open for as long as the process lives.
    #[allow(unsafe_code)]
    unsafe {
        let algorithm = library.get::<Get>(GET.as_bytes()).map_err(failed)?(0);
        crash::name(algorithm, &file);
        midspan_cc::register(algorithm);
    }
    forget(library);
    Ok(())
}
