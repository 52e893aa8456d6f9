use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use libbpf_rs::{Link, MapHandle, Object};
use midspan_cc::{Config, feedback};
use rustix::fs::statfs;

use crate::object::{MapFrom, control, refusal};
use crate::{Algorithm, Error, Kernel, algorithms, ingress, own_algorithms, registration, sharing};

/// What every control's name begins with, so that none is taken for the kernel's own.
pub const PREFIX: &str = "ms_";

/// A map, and its pin.
const MARKS: &str = "marks";
/// The map of feedback, as the programs name it.
const FEEDBACK: &str = "feedback";
const FOLDER: &str = "/sys/fs/bpf/midspan/cc";
/// How long an unloaded name may linger; it is gone in milliseconds.
const PATIENCE: Duration = Duration::from_secs(2);
/// `BPF_FS_MAGIC`, of linux/magic.h.
const BPF_FS_MAGIC: u32 = 0xcafe_4a11;

/// How a control is loaded.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Of the algorithm.
    pub config: Config,
    /// Any socket may use it, and any network namespace as its default. Otherwise that takes
    /// CAP_NET_ADMIN, as with the kernel's own that are not in
    /// `net.ipv4.tcp_allowed_congestion_control`.
    pub unrestricted: bool,
}

/// What loading a control did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It was not there before.
    Loaded,
    /// It was, and connections that begin from now on get the new one.
    Replaced,
}

/// A control and whether it is loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The name for `setsockopt`, routes and scenarios.
    pub name: String,
    /// Loaded and pinned.
    pub loaded: bool,
    /// The kernel has a control of this name, whoever loaded it.
    pub registered: bool,
    /// Any socket may use it.
    pub unrestricted: bool,
}

/// The controls that are loaded on this machine: pinned in a folder of the BPF file system, under
/// names with a prefix.
#[derive(Debug, Clone)]
pub struct Controls {
    folder: PathBuf,
    prefix: String,
}

/// What unloading a control did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// Its name is free.
    Gone,
    /// Others [hold](Controls::hold) it: its name is there until the last of them lets go.
    InUse,
}

/// A control that is registered for as long as this lives, and its process does. Where others hold it too,
/// the last one's end is its end.
#[derive(Debug)]
pub struct RegisteredControl {
    name: String,
    _registration: Registration,
}

#[derive(Debug)]
#[allow(dead_code, reason = "kept for what dropping them does")]
enum Registration {
    // In this order: the registration goes before what it registers.
    Own(Link, Option<Link>, Object),
    Shared(Vec<OwnedFd>),
}

impl RegisteredControl {
    /// The name for `setsockopt`, routes and scenarios.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Default for Controls {
    /// Those of the machine: in `/sys/fs/bpf/midspan/cc`, named `ms_*`.
    fn default() -> Self {
        Controls::new(FOLDER, PREFIX)
    }
}

impl Controls {
    /// Controls pinned in `folder`, whose names are the algorithms' with `prefix` before them.
    pub fn new(folder: impl Into<PathBuf>, prefix: impl Into<String>) -> Controls {
        Controls { folder: folder.into(), prefix: prefix.into() }
    }

    /// The name that `algorithm` is registered by.
    pub fn name_of(&self, algorithm: Algorithm) -> String {
        format!("{}{}", self.prefix, algorithm.name())
    }

    /// What comes before the algorithms' names.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The algorithm called `name`, as [`Algorithm::named`] has it, or else what is loaded under the name: what it was
    /// built from may be gone.
    ///
    /// # Errors
    /// As of [`Algorithm::named`].
    pub fn named(&self, name: &str) -> Result<Algorithm, Error> {
        Algorithm::named(name).or_else(|error| {
            let known = self.known().into_iter().find(|known| known.name() == name);
            known.ok_or(error)
        })
    }

    /// Where NetAssist's feedback is pinned.
    pub fn feedback(&self) -> PathBuf {
        self.folder.join(feedback::PIN)
    }

    fn pin_of(&self, algorithm: Algorithm) -> PathBuf {
        self.folder.join(algorithm.name())
    }

    /// Where the link is pinned of what an algorithm has at its sockets' ingress.
    fn ingress_of(&self, algorithm: Algorithm) -> PathBuf {
        self.folder.join(format!("{}-ingress", algorithm.name()))
    }

    /// The maps that outlive a control that is replaced: what the network says of its paths, which stays
    /// when it is unloaded too, and what the network has marked on the acknowledgements of connections,
    /// as some keep what was replaced.
    fn maps(&self) -> [(&'static str, PathBuf); 2] {
        [(FEEDBACK, self.feedback()), (MARKS, self.folder.join(MARKS))]
    }

    /// Registers `algorithm` until it is unloaded. If it is loaded already it is replaced:
    /// connections that use it keep what they have.
    ///
    /// # Errors
    /// As [`Error`] has them. What was loaded before stays loaded then.
    pub fn load(&self, algorithm: Algorithm, options: &Options) -> Result<Change, Error> {
        self.make_folder()?;
        let change = self.register(algorithm, options);
        if change.is_err() && !self.pin_of(algorithm).exists() {
            self.remove_ingress(algorithm)?;
        }
        change
    }

    fn register(&self, algorithm: Algorithm, options: &Options) -> Result<Change, Error> {
        let kernel = Kernel::running()?;
        let (name, pin) = (self.name_of(algorithm), self.pin_of(algorithm));
        let mut object = self.load_object(algorithm, options, &kernel, &self.maps().map(pinned))?;
        ingress::pin(&mut object, &self.ingress_of(algorithm))?;
        let mut map = control(&mut object).map_err(|error| refused(&name, &kernel, error))?;
        match map.attach_struct_ops().map_err(|error| io_error(&error)) {
            Ok(mut link) => {
                // Left behind by a registration that is gone.
                let _ = fs::remove_file(&pin);
                if kernel.links {
                    link.pin(&pin).map_err(|error| pin_error(&pin, &error))?;
                } else {
                    map.pin(&pin).map_err(|error| pin_error(&pin, &error))?;
                    // The map is registered, which letting go of the link would end.
                    link.disconnect();
                }
                Ok(Change::Loaded)
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                if !pin.exists() {
                    return Err(self.taken(name));
                }
                if kernel.links {
                    let link = Link::open(&pin).map_err(|error| pin_error(&pin, &error))?;
                    registration::replace(link.as_fd(), map.as_fd())
                        .map_err(|error| refused(&name, &kernel, error))?;
                } else {
                    self.unregister_map(&pin)?;
                    let mut link = map
                        .attach_struct_ops()
                        .map_err(|error| refused(&name, &kernel, io_error(&error)))?;
                    map.pin(&pin).map_err(|error| pin_error(&pin, &error))?;
                    link.disconnect();
                }
                Ok(Change::Replaced)
            }
            Err(error) => Err(refused(&name, &kernel, error)),
        }
    }

    /// Keeps `algorithm` registered for as long as the answer lives. One that is registered already,
    /// loaded or held by whomever, is shared as it is, whatever `options` say; one that is not is
    /// registered, and its feedback is the pinned map's if there is one.
    ///
    /// # Errors
    /// As [`Error`] has them; [`Error::NameTaken`] if it is registered and cannot be shared: before Linux 6.4,
    /// or without CAP_SYS_ADMIN.
    pub fn hold(
        &self,
        algorithm: Algorithm,
        options: &Options,
    ) -> Result<RegisteredControl, Error> {
        let name = self.name_of(algorithm);
        // Between two looks at it, another's registration may come or go.
        let deadline = Instant::now() + PATIENCE;
        loop {
            if registered().contains(&name)
                && let Some(links) = sharing::keep(&name)
            {
                return Ok(RegisteredControl { name, _registration: Registration::Shared(links) });
            }
            let [feedback, _] = self.maps();
            let there = Some(feedback).filter(|(_, path)| path.exists());
            match self.hold_from(algorithm, options, there.map(pinned)) {
                Err(Error::NameTaken { .. }) if Instant::now() < deadline => {
                    thread::sleep(Duration::from_millis(5));
                }
                done => return done,
            }
        }
    }

    /// Registers `algorithm` for as long as the answer lives, with the feedback of `map`, which is laid out
    /// as [`midspan_cc::feedback`] says.
    ///
    /// # Errors
    /// As [`Error`] has them; [`Error::NameTaken`] if it is registered already, since feedback of this map
    /// would not reach it.
    pub fn hold_with(
        &self,
        algorithm: Algorithm,
        options: &Options,
        map: BorrowedFd<'_>,
    ) -> Result<RegisteredControl, Error> {
        self.hold_from(algorithm, options, Some((FEEDBACK, MapFrom::Shared(map))))
    }

    fn hold_from(
        &self,
        algorithm: Algorithm,
        options: &Options,
        feedback: Option<(&str, MapFrom<'_>)>,
    ) -> Result<RegisteredControl, Error> {
        let kernel = Kernel::running()?;
        let name = self.name_of(algorithm);
        let mut object = self.load_object(algorithm, options, &kernel, feedback.as_slice())?;
        let ingress = ingress::attach(&mut object)?;
        let mut map = control(&mut object).map_err(|error| refused(&name, &kernel, error))?;
        let link = map.attach_struct_ops().map_err(|error| match io_error(&error) {
            error if error.kind() == ErrorKind::AlreadyExists => self.taken(name.clone()),
            error => refused(&name, &kernel, error),
        })?;
        Ok(RegisteredControl { name, _registration: Registration::Own(link, ingress, object) })
    }

    /// Takes the name back, unless others hold it. Connections that use the control keep it until they end.
    ///
    /// # Errors
    /// [`Error::NotLoaded`], or when the user may not.
    pub fn unload(&self, algorithm: Algorithm) -> Result<Removal, Error> {
        let pin = self.pin_of(algorithm);
        let failed = |error: io::Error| match error.kind() {
            ErrorKind::NotFound => {
                Error::NotLoaded { name: self.name_of(algorithm), path: pin.clone() }
            }
            ErrorKind::PermissionDenied => Error::NotPermitted,
            _ => Error::Pin { path: pin.clone(), error },
        };
        fs::symlink_metadata(&pin).map_err(failed)?;
        // A link that nobody holds is gone; a map's registration stays.
        if !Kernel::running()?.links {
            self.unregister_map(&pin)?;
            return self.remove_ingress(algorithm).map(|()| Removal::Gone);
        }
        fs::remove_file(&pin).map_err(failed)?;
        self.remove_ingress(algorithm)?;
        // The kernel lets go of a link that nobody has hold of a moment later.
        let deadline = Instant::now() + PATIENCE;
        let name = self.name_of(algorithm);
        while registered().contains(&name) {
            if Instant::now() >= deadline {
                return Ok(Removal::InUse);
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(Removal::Gone)
    }

    fn taken(&self, name: String) -> Error {
        let holders = sharing::holders(&name);
        let by = match holders.as_slice() {
            [] => "by a pin or by somebody who cannot be seen".to_owned(),
            holders => format!("held by {}", holders.join(" and ")),
        };
        Error::NameTaken { name, folder: self.folder.clone(), by }
    }

    /// The maps that the controls which take feedback read, by identifier, of those that are registered,
    /// by whomever. Before Linux 6.4, or without CAP_SYS_ADMIN, none can be seen.
    pub fn feedback_in_use(&self) -> BTreeSet<u32> {
        let known = algorithms().chain(own_algorithms());
        let names = known.filter(|it| it.takes_feedback()).map(|it| self.name_of(it));
        let known = registered();
        names
            .filter(|name| known.contains(name))
            .filter_map(|it| sharing::feedback_of(&it))
            .collect()
    }

    /// What an algorithm has at its sockets' ingress, if it has something, and what that writes to.
    fn remove_ingress(&self, algorithm: Algorithm) -> Result<(), Error> {
        let ingress = self.ingress_of(algorithm);
        if !ingress.exists() {
            return Ok(());
        }
        for path in [ingress, self.folder.join(MARKS)] {
            fs::remove_file(&path).map_err(|error| Error::Pin { path, error })?;
        }
        Ok(())
    }

    /// Takes back everything that is loaded, and the map of feedback. Answers what was loaded, and what
    /// became of it.
    ///
    /// # Errors
    /// At the first that cannot be unloaded.
    pub fn unload_all(&self) -> Result<Vec<(Algorithm, Removal)>, Error> {
        let known = self.known().into_iter();
        let loaded = known.filter(|&algorithm| self.pin_of(algorithm).exists());
        let unloaded = loaded
            .map(|algorithm| Ok((algorithm, self.unload(algorithm)?)))
            .collect::<Result<Vec<_>, Error>>()?;
        for path in [self.feedback(), self.folder.clone()] {
            let removed =
                if path.is_dir() { fs::remove_dir(&path) } else { fs::remove_file(&path) };
            match removed {
                Err(error)
                    if !matches!(
                        error.kind(),
                        ErrorKind::NotFound | ErrorKind::DirectoryNotEmpty
                    ) =>
                {
                    return Err(Error::Pin { path, error });
                }
                _ => {}
            }
        }
        Ok(unloaded)
    }

    /// All algorithms, and which are loaded.
    pub fn status(&self) -> Vec<Status> {
        let (registered, allowed) = (registered(), names_in("tcp_allowed_congestion_control"));
        let known = self.known().into_iter();
        known
            .map(|algorithm| {
                let name = self.name_of(algorithm);
                Status {
                    algorithm,
                    loaded: self.pin_of(algorithm).exists(),
                    registered: registered.contains(&name),
                    unrestricted: allowed.contains(&name),
                    name,
                }
            })
            .collect()
    }

    fn load_object(
        &self,
        algorithm: Algorithm,
        options: &Options,
        kernel: &Kernel,
        maps: &[(&str, MapFrom<'_>)],
    ) -> Result<Object, Error> {
        let name = self.name_of(algorithm);
        algorithm.load(&name, options, kernel, maps).map_err(|error| {
            let error = io_error(&error);
            match (algorithm.source(), refusal()) {
                // The verifier's word beats that of the call, which is that permission is denied, too.
                (Some(file), Some(refusal)) => Error::OwnRefused {
                    file: file.to_owned(),
                    why: format!(
                        "Linux {} does not take `{name}`: {refusal} (`MIDSPAN_LOG=debug` shows all)",
                        kernel.release
                    ),
                },
                _ => refused(&name, kernel, error),
            }
        })
    }

    /// All algorithms that have to do with this machine: Midspan's, those that the user has built, and those of whoever
    /// else that are loaded.
    pub fn known(&self) -> Vec<Algorithm> {
        let mut known: Vec<Algorithm> = algorithms().chain(own_algorithms()).collect();
        let pins = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        for pin in pins.filter_map(|pin| pin.file_name().into_string().ok()) {
            let is_map = [MARKS, feedback::PIN].contains(&&*pin) || pin.ends_with("-ingress");
            if !is_map && known.iter().all(|algorithm| algorithm.name() != pin) {
                known.push(Algorithm::loaded(&pin));
            }
        }
        known
    }

    /// Makes the folder, if there is a BPF file system for it.
    ///
    /// # Errors
    /// [`Error::NoBpffs`], or when the user may not.
    pub fn make_folder(&self) -> Result<(), Error> {
        let there = self.folder.ancestors().find(|path| path.exists());
        let on_bpffs =
            there.is_some_and(|path| statfs(path).is_ok_and(|fs| fs.f_type as u32 == BPF_FS_MAGIC));
        if !on_bpffs {
            return Err(Error::NoBpffs { path: self.folder.clone() });
        }
        fs::create_dir_all(&self.folder).map_err(|error| match error.kind() {
            ErrorKind::PermissionDenied => Error::NotPermitted,
            _ => Error::Pin { path: self.folder.clone(), error },
        })
    }

    /// Ends the registration of a map that is pinned, and the pin.
    fn unregister_map(&self, pin: &Path) -> Result<(), Error> {
        let failed = |error: io::Error| Error::Pin { path: pin.to_owned(), error };
        let map = MapHandle::from_pinned_path(pin).map_err(|error| failed(io_error(&error)))?;
        registration::unregister(map.as_fd()).map_err(failed)?;
        fs::remove_file(pin).map_err(failed)
    }
}

fn pinned((name, path): (&'static str, PathBuf)) -> (&'static str, MapFrom<'static>) {
    (name, MapFrom::Pin(path))
}

/// The names of all controls that the kernel has.
fn registered() -> Vec<String> {
    names_in("tcp_available_congestion_control")
}

fn names_in(file: &str) -> Vec<String> {
    let text = fs::read_to_string(format!("/proc/sys/net/ipv4/{file}")).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}

fn refused(name: &str, kernel: &Kernel, error: io::Error) -> Error {
    match error.kind() {
        ErrorKind::PermissionDenied => Error::NotPermitted,
        _ => Error::Refused { name: name.to_owned(), release: kernel.release.clone(), error },
    }
}

fn pin_error(path: &Path, error: &libbpf_rs::Error) -> Error {
    Error::Pin { path: path.to_owned(), error: io_error(error) }
}

/// The kinds are the same, by another name.
pub(crate) fn io_error(error: &libbpf_rs::Error) -> io::Error {
    let kind = match error.kind() {
        libbpf_rs::ErrorKind::AlreadyExists => ErrorKind::AlreadyExists,
        libbpf_rs::ErrorKind::InvalidInput => ErrorKind::InvalidInput,
        libbpf_rs::ErrorKind::NotFound => ErrorKind::NotFound,
        libbpf_rs::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
        _ => ErrorKind::Other,
    };
    io::Error::new(kind, format!("{error:#}"))
}
