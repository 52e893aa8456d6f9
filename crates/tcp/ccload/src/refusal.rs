//! What the verifier has against a program, out of its log.

use std::fmt;

/// Why the verifier refused a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The program's function.
    program: String,
    /// What it says.
    why: String,
    /// The line of the source that it was at, where it knows.
    at: Option<String>,
}

impl Refusal {
    /// Reads it in what libbpf prints: `prog 'NAME': BPF program load failed`, and the log between two marks, whose last
    /// line before the statistics is the reason; lines of the source begin with a semicolon.
    pub(crate) fn read(said: &str) -> Option<Refusal> {
        let (before, log) = said.split_once("-- BEGIN PROG LOAD LOG --")?;
        let program = before.rsplit("prog '").next()?.split('\'').next()?;
        let log = log.split("-- END PROG LOAD LOG --").next()?;
        let lines = log.lines().map(str::trim).filter(|line| !line.is_empty());
        let lines: Vec<&str> = lines.take_while(|line| !line.starts_with("processed ")).collect();
        let why = lines.iter().rfind(|line| !line.starts_with(';'))?;
        let at = lines.iter().rfind(|line| line.starts_with(';'));
        Some(Refusal {
            program: program.to_owned(),
            why: (*why).to_owned(),
            at: at.map(|line| line.trim_start_matches([';', ' ']).to_owned()),
        })
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (in {}", self.why, self.program)?;
        if let Some(at) = &self.at {
            write!(f, ", at `{at}`")?;
        }
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_the_last_line_of_the_log() {
        let said = "libbpf: prog 'mine_avoid': BPF program load failed: -22\n\
            libbpf: prog 'mine_avoid': -- BEGIN PROG LOAD LOG --\n\
            0: R1=ctx() R10=fp0\n\
            ; for (u32 i = 0; i < n; i++) @ mine.h:12\n\
            3: (79) r1 = *(u64 *)(r1 +0)\n\
            infinite loop detected at insn 3\n\
            processed 9 insns (limit 1000000)\n\
            -- END PROG LOAD LOG --\n";
        assert_eq!(
            Refusal::read(said).unwrap().to_string(),
            "infinite loop detected at insn 3 (in mine_avoid, at `for (u32 i = 0; i < n; i++) @ mine.h:12`)"
        );
        assert_eq!(Refusal::read("libbpf: failed to find BTF\n"), None);
    }
}
