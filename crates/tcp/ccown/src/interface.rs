//! Which functions a control has, as the compiler sees them.

use std::fmt::Write;
use std::fs;

use crate::clang::{Clang, Said};
use crate::{Error, Name};

/// Room for the state of a control of CC_WINDOW, in the socket (`icsk_ca_priv` of Linux).
const SOCKET_ROOM: usize = 104;
/// Room for that of any (`STATE_WORDS` of table.h).
const MOST_ROOM: usize = 512;

/// A function of the interface (cc.h): its name, what it answers with, and its arguments behind the state.
struct Function {
    name: &'static str,
    answer: &'static str,
    arguments: &'static str,
}

const fn function(name: &'static str, answer: &'static str, arguments: &'static str) -> Function {
    Function { name, answer, arguments }
}

const SAMPLE: &str = "struct cc *, const struct cc_sample *";
const FUNCTIONS: [Function; 8] = [
    function("init", "void", "struct cc *"),
    function("measure", "void", SAMPLE),
    function("grow", "void", SAMPLE),
    function("control", "void", SAMPLE),
    function("ssthresh", "u32", "struct cc *"),
    function("undo", "u32", "struct cc *"),
    function("event", "void", "struct cc *, enum cc_event"),
    function("send", "u32", "struct cc *, const struct cc_feedback *"),
];

impl Function {
    fn declaration(&self, control: &Name) -> String {
        let Function { name, answer, arguments } = self;
        format!("{answer} {control}_{name}(struct {control} *, {arguments})")
    }
}

/// What a control has of the interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Interface {
    functions: Vec<&'static str>,
    /// Whether the header sets a pacing rate.
    pub(crate) names_rate: bool,
}

impl Interface {
    /// Asks the compiler what the control `name` has. Answers with the warnings of its header too.
    ///
    /// # Errors
    /// When the header is at fault, or lacks what every control needs.
    pub(crate) fn of(clang: &Clang<'_>, name: &Name) -> Result<(Interface, Said), Error> {
        let fault = |what: String| Error::Fault { at: clang.named.display().to_string(), what };
        let text = fs::read_to_string(clang.absolute).map_err(Error::file(clang.named))?;
        // One line for each thing asked, by whose number the compiler's complaints are told apart.
        let include = format!("#include {:?}\n", clang.absolute);
        let mut probe = format!("#include \"host.h\"\n{include}");
        let first = 3;
        writeln!(probe, "extern char state[sizeof(struct {name})];").expect("a string takes all");
        for function in &FUNCTIONS {
            let Function { name: of, answer, arguments } = function;
            let pointer = format!("{answer} (*const has_{of})(struct {name} *, {arguments})");
            writeln!(probe, "{pointer} = {name}_{of};").expect("a string takes all");
        }
        let source = clang.headers.path().join("probe.c");
        let ask = |probe: &str| {
            fs::write(&source, probe).map_err(Error::file(&source))?;
            clang.run(&source, ["-fsyntax-only"])
        };
        let complaints = ask(&probe)?.err().unwrap_or_default();
        let (of_probe, others): (Vec<_>, Vec<_>) =
            complaints.into_iter().partition(|one| one.file == source && one.line >= first);
        if !others.is_empty() {
            return Err(clang.fault(&others));
        }
        if of_probe.iter().any(|one| one.line == first) {
            return Err(fault(format!("no `struct {name}`, the state of a connection")));
        }
        let mut functions = Vec::new();
        for (line, function) in (first + 1..).zip(&FUNCTIONS) {
            // What it takes the name for instead, it complains about on the same line.
            let mut complaints = of_probe.iter().filter(|one| one.line == line).peekable();
            if complaints.peek().is_none() {
                functions.push(function.name);
            } else if !complaints.any(|one| one.what.contains("undeclared identifier")) {
                let declaration = function.declaration(name);
                return Err(fault(format!(
                    "{name}_{} is not as the interface has it: `{declaration}`",
                    function.name
                )));
            }
        }
        let interface = Interface { functions, names_rate: mentions(&text, "pacing_rate") };
        interface.check(name).map_err(fault)?;
        let room = if interface.is_window() { SOCKET_ROOM } else { MOST_ROOM };
        let size = format!("_Static_assert(sizeof(struct {name}) <= {room}, \"\");\n");
        let said = ask(&format!("#include \"host.h\"\n{include}{size}"))?;
        let said = said.map_err(|_| {
            let kind = if interface.is_window() { ", in a control that has grow," } else { "" };
            fault(format!("struct {name}{kind} has more than {room} bytes"))
        })?;
        Ok((interface, said))
    }

    fn check(&self, name: &Name) -> Result<(), String> {
        let declaration = |of: &str| {
            let function = FUNCTIONS.iter().find(|function| function.name == of);
            function.map_or(String::new(), |function| function.declaration(name))
        };
        match (self.has("grow"), self.has("control")) {
            (true, true) => {
                return Err(format!(
                    "both {name}_grow and {name}_control: a control grows the window, or sets it throughout"
                ));
            }
            (false, false) => {
                return Err(format!(
                    "neither {name}_grow nor {name}_control, of which every control has one: `{}`, or the same with control",
                    declaration("grow")
                ));
            }
            _ => {}
        }
        match ["ssthresh", "undo"].into_iter().find(|needed| !self.has(needed)) {
            Some(needed) => Err(format!(
                "no {name}_{needed}, which every control has: `{}`",
                declaration(needed)
            )),
            None => Ok(()),
        }
    }

    /// Whether it has the function.
    pub(crate) fn has(&self, function: &str) -> bool {
        self.functions.contains(&function)
    }

    /// CC_WINDOW, or else CC_RATE.
    pub(crate) fn is_window(&self) -> bool {
        self.has("grow")
    }
}

/// Whether code names something, outside of comments.
fn mentions(code: &str, name: &str) -> bool {
    let mut rest = code;
    while let Some(at) = rest.find(name) {
        let before = &rest[..at];
        let in_block = before.rfind("/*").is_some_and(|open| before[open..].find("*/").is_none());
        let line = before.rsplit('\n').next().unwrap_or(before);
        if !in_block && !line.contains("//") {
            return true;
        }
        // What is behind may be in the same comment.
        let skip = if in_block { rest[at..].find("*/") } else { rest[at..].find('\n') };
        let Some(skip) = skip else { return false };
        rest = &rest[at + skip..];
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_comments_name_is_not_named() {
        assert!(mentions("cc->pacing_rate = 1;", "pacing_rate"));
        assert!(!mentions("/* no\n pacing_rate, pacing_rate */ // pacing_rate\n", "pacing_rate"));
        assert!(mentions("/* pacing_rate */ x; // pacing_rate\n cc->pacing_rate", "pacing_rate"));
        assert!(!mentions("// pacing_rate", "pacing_rate"));
    }
}
