//! From a header to a program for the kernel and a shared object for the simulator.

use std::env::consts::ARCH;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use crate::clang::Clang;
use crate::headers::interface;
use crate::interface::Interface;
use crate::object::{GET, INTERFACE_IS};
use crate::{Built, Error, Folder, Headers, Name};

/// A control that was made, and what the compiler thinks of it.
#[derive(Debug)]
pub struct Made {
    /// What is in the folder now.
    pub built: Built,
    /// The compiler's warnings, a line each.
    pub warnings: Vec<String>,
}

/// Compiles the control that `header` is, and keeps what comes of it in `folder`. `programs` are the headers that make a
/// BPF program of it, as paths and texts: the glue, and libbpf's.
///
/// # Errors
/// When the header is at fault, or something to compile with is missing.
pub fn build<'a>(
    header: &Path,
    programs: impl IntoIterator<Item = (&'a str, &'a str)>,
    folder: &Folder,
) -> Result<Made, Error> {
    let name = Name::of(header)?;
    let absolute = fs::canonicalize(header).map_err(Error::file(header))?;
    let headers = Headers::write(programs)?;
    let clang = Clang { headers: &headers, named: header, absolute: &absolute };
    let (has, said) = Interface::of(&clang, &name)?;
    let include = format!("#include {absolute:?}\n");
    let [program, object] = ["program.o", "object.so"].map(|file| headers.path().join(file));
    let compile = |source: &str, file: &str, arguments: &[String]| {
        let at = headers.path().join(file);
        fs::write(&at, source).map_err(Error::file(&at))?;
        clang.run(&at, arguments)?.map_err(|complaints| clang.fault(&complaints)).map(drop)
    };
    let options = |fixed: &[&str], out: &Path| -> Vec<String> {
        let words = fixed.iter().copied().map(str::to_owned);
        words.chain(["-o".to_owned(), out.display().to_string()]).collect()
    };
    // As the programs of Midspan's own controls are compiled.
    let mut bpf = options(&["-target", "bpf", "-mcpu=v3", "-g", "-O2", "-c"], &program);
    bpf.push(format!("-D__TARGET_ARCH_{}", bpf_architecture()));
    // Where Debian and its kin keep <asm/types.h>.
    bpf.push(format!("-I/usr/include/{ARCH}-linux-gnu"));
    compile(&program_source(&name, &has, &include), "program.bpf.c", &bpf)?;
    // What is undefined in C ends the process, which then says whose it was.
    let host = [
        "-shared",
        "-fPIC",
        "-nostdlib",
        "-fvisibility=hidden",
        "-fsanitize=undefined",
        "-fsanitize-trap=undefined",
        "-g",
        "-O2",
    ];
    compile(&object_source(&name, &has, &include), "object.c", &options(&host, &object))?;
    let built = folder.keep(name, &absolute, &program, &object)?;
    Ok(Made { built, warnings: said.warnings })
}

/// As libbpf's bpf_tracing.h calls this processor.
fn bpf_architecture() -> &'static str {
    match ARCH {
        "x86_64" | "x86" => "x86",
        "aarch64" => "arm64",
        "riscv64" => "riscv",
        "s390x" => "s390",
        "powerpc64" => "powerpc",
        other => other,
    }
}

/// The control as a program of type struct_ops. The glue's headers are chosen by what it does: a control of CC_RATE
/// that names no rate is not paced, one of CC_WINDOW that names one has it as the socket's greatest, and one that
/// takes feedback has the map for it.
fn program_source(name: &Name, has: &Interface, include: &str) -> String {
    let mut source = String::new();
    let mut line = |text: &str| {
        source.push_str(text);
        source.push('\n');
    };
    let glue = |what: &str| format!("GLUE_{what}({name})");
    if has.has("send") {
        line("#include \"assisted.h\"");
    }
    match (has.is_window(), has.names_rate) {
        (true, true) => line("#include \"cap.h\""),
        (true, false) => {}
        (false, true) => line("#include \"rate.h\""),
        (false, false) => {
            line("#define PACED 0");
            line("#include \"rate.h\"");
        }
    }
    line("#include \"glue.h\"");
    line(include.trim_end());
    if has.is_window() {
        if has.has("init") {
            line(&glue("INIT"));
        }
        line(&glue(if has.has("measure") { "MEASURE" } else { "MEND" }));
        line(&glue("GROW"));
    } else {
        // It sets the window itself, and is asked for no threshold again.
        line("#undef MEND");
        line("#define MEND(algo, state, sk, cc) is_unanswered(sk, &(cc))");
        if !has.has("init") {
            let arguments = format!("struct {name} *state, struct cc *cc");
            line(&format!("CC_INLINE void {name}_init({arguments}) {{ }}"));
        }
        line(&format!("RATE_STATES({name})"));
        line(&glue("RATE_INIT"));
        if has.has("measure") {
            line(&glue("MEASURE"));
        }
        line(&glue("CONTROL"));
    }
    line(&glue("REDUCE"));
    for function in ["event", "send"] {
        if has.has(function) {
            line(&glue(&function.to_uppercase()));
        }
    }
    line("SEC(\".struct_ops\") struct tcp_congestion_ops control = {");
    line(&format!("GLUE_OPS({name}),"));
    let is_rate = !has.is_window();
    let operations = [
        ("init", "start", is_rate || has.has("init")),
        ("pkts_acked", "acked", !is_rate || has.has("measure")),
        ("cong_avoid", "avoid", !is_rate),
        ("cong_control", "main", is_rate),
        ("cwnd_event", "happened", has.has("event")),
        ("set_state", "changed", has.has("event")),
        ("min_tso_segs", "segments", has.has("send")),
    ];
    for (operation, program, _) in operations.into_iter().filter(|(.., is_there)| *is_there) {
        line(&format!(".{operation} = (void *){name}_{program},"));
    }
    line("};");
    source
}

/// The control as a table of one algorithm, as the crate `cc` has of its own.
fn object_source(name: &Name, has: &Interface, include: &str) -> String {
    let (kind, advance) =
        if has.is_window() { ("CC_WINDOW", "grow") } else { ("CC_RATE", "control") };
    let mut source = format!("#include \"host.h\"\n{include}");
    let mut table = format!("ALGORITHM({name}, {kind}, {advance})");
    let mut write = |text: String| source.push_str(&text);
    write(format!("REDUCE({name}) ON_SAMPLE({name}, {advance})\n"));
    for (function, wrap) in [
        ("init", format!("INIT({name})")),
        ("measure", format!("ON_SAMPLE({name}, measure)")),
        ("event", format!("EVENT({name})")),
        ("send", format!("SEND({name})")),
    ] {
        if has.has(function) {
            write(format!("{wrap}\n"));
            write!(table, ", .{function} = {name}_{function}_of").expect("a string takes all");
        }
    }
    let shown = "__attribute__((visibility(\"default\")))";
    write(format!("static const struct algorithm algorithm = {{ {table} }};\n"));
    write(format!(
        "{shown} const struct algorithm *{GET}(u32 index) {{ return index ? 0 : &algorithm; }}\n"
    ));
    write(format!("{shown} const char {INTERFACE_IS}[] = {:?};\n", interface()));
    source
}
