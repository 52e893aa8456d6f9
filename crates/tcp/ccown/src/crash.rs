//! Who crashed: a control's own code, in this process, may do anything. A fault whose instruction is in a control's
//! shared object ends the process with a line that names the control's file; any other goes where it went before.

use std::ffi::{c_int, c_void};
use std::fs;
use std::mem::MaybeUninit;
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// What a fault comes as, and what is most likely behind it.
const SIGNALS: [(c_int, &str); 5] = [
    (libc::SIGSEGV, "crashed: SIGSEGV, memory that is not its own"),
    (libc::SIGBUS, "crashed: SIGBUS, memory that is not there"),
    (libc::SIGFPE, "crashed: SIGFPE, a division by zero"),
    (libc::SIGILL, "crashed: SIGILL, what C leaves undefined, such as a division by zero"),
    (libc::SIGTRAP, "crashed: SIGTRAP, what C leaves undefined, such as a division by zero"),
];

/// More are not named; nobody has so many.
const MOST: usize = 64;

/// Code of one control.
struct Code {
    from: usize,
    to: usize,
    /// `midspan: FILE: the control `.
    said: String,
}

/// Pointers to [`Code`] that is never freed: a handler of signals may not take locks.
static CODES: [AtomicPtr<Code>; MOST] = [const { AtomicPtr::new(null_mut()) }; MOST];
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// What faults went to before.
static BEFORE: OnceLock<[libc::sigaction; SIGNALS.len()]> = OnceLock::new();

/// Names `file` where code crashes that is in the same mapped file as `inside`.
pub(crate) fn name(inside: *const c_void, file: &Path) {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for (from, to) in code_around(inside as usize, &maps) {
        let at = COUNT.fetch_add(1, Ordering::Relaxed);
        let said = format!("midspan: {}: the control ", file.display());
        if let Some(place) = CODES.get(at) {
            place.store(Box::into_raw(Box::new(Code { from, to, said })), Ordering::Release);
        }
    }
    BEFORE.get_or_init(|| SIGNALS.map(|(signal, _)| install(signal)));
}

/// The executable parts of the file that is mapped around an address (proc(5), `/proc/pid/maps`).
fn code_around(address: usize, maps: &str) -> Vec<(usize, usize)> {
    let parts = maps.lines().filter_map(|line| {
        let mut fields = line.split_whitespace();
        let (from, to) = fields.next()?.split_once('-')?;
        let range = (usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?);
        let rights = fields.next()?;
        // Behind the offset: device and inode say which file it is.
        Some((range, rights, fields.nth(1)?, fields.next()?))
    });
    let parts: Vec<_> = parts.collect();
    let around = parts.iter().find(|((from, to), ..)| (*from..*to).contains(&address));
    let Some((_, _, device, inode)) = around else { return Vec::new() };
    let same = parts.iter().filter(|(_, _, on, of)| (on, of) == (device, inode));
    same.filter(|(_, rights, ..)| rights.contains('x')).map(|(range, ..)| *range).collect()
}

fn install(signal: c_int) -> libc::sigaction {
    let mut before = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: all zeroes are a valid sigaction, whose handler is set, and which the kernel copies; `before` has room for one.
    #[allow(unsafe_code)]
    unsafe {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
        action.sa_sigaction = on_fault as *const () as usize;
        // A thread whose stack is full has another for this, which Rust's runtime gives each.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigaction(signal, &action, before.as_mut_ptr());
        before.assume_init()
    }
}

extern "C" fn on_fault(signal: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    let at = instruction(context);
    for place in &CODES {
        let code = place.load(Ordering::Acquire);
        // SAFETY: null, or what `name` has leaked.
        #[allow(unsafe_code)]
        let Some(code) = (unsafe { code.as_ref() }) else { break };
        if (code.from..code.to).contains(&at) {
            let what = SIGNALS.iter().find(|(known, _)| *known == signal);
            for part in [&*code.said, what.map_or("crashed", |(_, what)| what), "\n"] {
                // SAFETY: it writes that many bytes of the text, and may be called in a handler.
                #[allow(unsafe_code)]
                let _ = unsafe { libc::write(2, part.as_ptr().cast(), part.len()) };
            }
            // SAFETY: it ends the process, and may be called in a handler.
            #[allow(unsafe_code)]
            unsafe {
                libc::_exit(2)
            }
        }
    }
    let index = SIGNALS.iter().position(|(known, _)| *known == signal);
    let before = BEFORE.get().zip(index).map(|(before, index)| &before[index]);
    // SAFETY: what was there before is put back, or else what the system does; the instruction is run again then, and
    // faults again.
    #[allow(unsafe_code)]
    unsafe {
        match before {
            Some(before) => drop(libc::sigaction(signal, before, null_mut())),
            None => drop(libc::signal(signal, libc::SIG_DFL)),
        }
    }
}

/// Where the processor was when the signal came.
fn instruction(context: *mut c_void) -> usize {
    let context: *const libc::ucontext_t = if context.is_null() { null() } else { context.cast() };
    // SAFETY: null, or the context that the kernel gives a handler with SA_SIGINFO.
    #[allow(unsafe_code)]
    let Some(context) = (unsafe { context.as_ref() }) else { return 0 };
    #[cfg(target_arch = "x86_64")]
    let at = context.uc_mcontext.gregs[libc::REG_RIP as usize] as usize;
    #[cfg(target_arch = "aarch64")]
    let at = context.uc_mcontext.pc as usize;
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let at = {
        let _ = context;
        0
    };
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_found_in_what_is_mapped() {
        let maps = "\
            1000-2000 r--p 00000000 08:01 77 /x/gentle.so\n\
            2000-3000 r-xp 00001000 08:01 77 /x/gentle.so\n\
            3000-4000 rw-p 00002000 08:01 77 /x/gentle.so\n\
            5000-6000 r-xp 00000000 08:01 78 /x/libc.so\n\
            7000-8000 rw-p 00000000 00:00 0\n";
        assert_eq!(code_around(0x3010, maps), [(0x2000, 0x3000)]);
        assert_eq!(code_around(0x5000, maps), [(0x5000, 0x6000)]);
        assert_eq!(code_around(0x4000, maps), []);
    }
}
