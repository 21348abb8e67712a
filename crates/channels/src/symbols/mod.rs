//! Search for variables of a process by name: in the symbol tables of its executable and libraries, and in their debug
//! information.

mod dwarf;
mod names;
mod objects;
mod types;

use std::io;

use object::{Object as _, ObjectSegment as _, ObjectSymbol as _, SymbolKind};
use thiserror::Error;

use crate::symbols::names::{demangle, is_qualified_match};
use crate::symbols::objects::Object;

pub use crate::symbols::dwarf::FieldError;
pub use crate::symbols::names::{closest, did_you_mean};

/// A variable of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Name of the variable in the source.
    pub name: String,
    /// Address of the variable in the process.
    pub address: u64,
    /// Length of the variable in bytes, if known.
    pub bytes: Option<u64>,
    /// Name of the executable or library that has the variable.
    pub object: String,
}

/// Reason why a variable is not found.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum SymbolError {
    /// Process that does not exist, or has ended.
    #[error("there is no process {pid}")]
    NoProcess { pid: u32 },
    /// Process to which the system refuses access.
    #[error("cannot read the memory map of process {pid}: {source}{}", permission_hint(.source))]
    Map { pid: u32, source: io::Error },
    /// Name that no variable of the process has.
    #[error("process {pid} has no variable {name}{}{}", did_you_mean(.close), stripped_hint(*.stripped))]
    NotFound { pid: u32, name: String, close: Vec<String>, stripped: bool },
    /// Variable whose type is unknown.
    #[error(
        "the fields of {variable} in {object} are not known; install the debug symbols of {object}, or name a place in \
         bytes, as in mem:{variable}+16/u64"
    )]
    NoDebug { variable: String, object: String },
    /// Name of a function, not of a variable.
    #[error("{name} is a function of {object}, not a variable; name a variable")]
    Function { name: String, object: String },
    /// Field that a pointer leads to.
    #[error(
        "cannot observe {name} by name: the target of a pointer changes its place; name its address, as in \
         mem:PID:0x7f00/u64 (`gdb -p PID -batch -ex 'print &NAME'` prints it)"
    )]
    Pointer { name: String },
    /// Variable that is thread-local.
    #[error(
        "cannot observe {name} of {object}: it is thread-local, so each thread has its own; name an address, as in \
         mem:PID:0x7f00/u64 (`gdb -p PID -batch -ex 'print &NAME'` prints it)"
    )]
    ThreadLocal { name: String, object: String },
    /// Name that several variables match.
    #[error(
        "{name} may be any of these: {}; name one by its address, as in mem:{pid}:0x{:x}",
        listed(.candidates),
        .candidates[0].address
    )]
    Ambiguous { pid: u32, name: String, candidates: Vec<Variable> },
    /// Field that does not exist in the variable.
    #[error("{name} of {object}: {source}")]
    Field { name: String, object: String, source: FieldError },
}

/// Returns advice on how to get the right to read a process, if `error` is the lack of this right; otherwise an empty
/// text.
pub fn permission_hint(error: &io::Error) -> String {
    if error.kind() != io::ErrorKind::PermissionDenied {
        return String::new();
    }
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    match scope.trim() {
        "" | "0" => "; run as root, or as the user of the process".into(),
        scope => format!("; run as root (kernel.yama.ptrace_scope is {scope})"),
    }
}

fn stripped_hint(stripped: bool) -> &'static str {
    if stripped {
        "; its executable is stripped; install its debug symbols, or name an address, as in mem:PID:0x7f00/u64"
    } else {
        ""
    }
}

fn listed(candidates: &[Variable]) -> String {
    const SHOWN: usize = 8;
    let one = |variable: &Variable| format!("{} at 0x{:x} in {}", variable.name, variable.address, variable.object);
    let mut shown: Vec<String> = candidates.iter().take(SHOWN).map(one).collect();
    if candidates.len() > SHOWN {
        shown.push(format!("{} more", candidates.len() - SHOWN));
    }
    shown.join(", ")
}

/// Finds the variable `name` of a process, or a field of a variable (`server.clients`, `queues[2].length`).
///
/// An exact linker name comes first, then a name in some namespace, then debug information. At each step the executable
/// comes before its libraries.
pub fn find(pid: u32, name: &str) -> Result<Variable, SymbolError> {
    if name.contains("->") {
        return Err(SymbolError::Pointer { name: name.to_owned() });
    }
    let objects = open_objects(pid)?;
    let search = Search { pid, name };
    for look in [Search::find_exact_name, Search::find_in_namespaces, Search::find_in_debug_info] {
        if let Some(variable) = search.find_first(&objects, look)? {
            return Ok(variable);
        }
    }
    Err(search.not_found_error(&objects))
}

/// Returns the variables in the symbol tables of a process's executable, without constants.
pub fn variables(pid: u32) -> Result<Vec<Variable>, SymbolError> {
    let objects = open_objects(pid)?;
    let Some(executable) = objects.first() else { return Ok(vec![]) };
    let elf = executable.elf();
    let is_written = |address| {
        let mut written = elf.segments().filter(|segment| segment.permissions().writable());
        written.any(|part| segment_contains(&part, address))
    };
    let is_variable =
        |symbol: &Symbol| symbol.kind == SymbolKind::Data && symbol.bytes > 0 && is_written(symbol.address);
    let symbols = all_symbols(executable).into_iter().filter(is_variable);
    let mut variables: Vec<Variable> = symbols.map(|symbol| symbol.to_variable(executable)).collect();
    variables.sort_by(|a, b| (&a.name, a.address).cmp(&(&b.name, b.address)));
    variables.dedup();
    Ok(variables)
}

fn open_objects(pid: u32) -> Result<Vec<Object>, SymbolError> {
    objects::process_objects(pid).map_err(|source| match source.raw_os_error() {
        Some(libc::ENOENT | libc::ESRCH) => SymbolError::NoProcess { pid },
        _ => SymbolError::Map { pid, source },
    })
}

/// Defined symbol that may be a variable.
struct Symbol {
    name: String,
    address: u64,
    bytes: u64,
    kind: SymbolKind,
}

impl Symbol {
    fn to_variable(&self, object: &Object) -> Variable {
        Variable {
            name: demangle(&self.name).into_owned(),
            address: self.address.wrapping_add(object.bias),
            bytes: Some(self.bytes).filter(|bytes| *bytes > 0),
            object: object.name(),
        }
    }
}

/// Returns all symbols of the file, of its debug file, and of its export table.
fn all_symbols(object: &Object) -> Vec<Symbol> {
    let (elf, debug) = (object.elf(), object.debug_elf());
    let code: Vec<_> = elf.segments().filter(|segment| segment.permissions().executable()).collect();
    let is_code = |address| code.iter().any(|part| segment_contains(part, address));
    let all = elf.symbols().chain(debug.iter().flat_map(|debug| debug.symbols())).chain(elf.dynamic_symbols());
    let symbol = |symbol: object::Symbol<'_, '_>| {
        let kind = match symbol.kind() {
            // Treat a symbol of unknown kind in executable code as code: it is a label of assembly code.
            SymbolKind::Unknown if is_code(symbol.address()) => SymbolKind::Text,
            kind => kind,
        };
        let is_place = matches!(kind, SymbolKind::Data | SymbolKind::Unknown | SymbolKind::Text | SymbolKind::Tls);
        let name = symbol.name().ok().filter(|name| !name.is_empty() && is_place && !symbol.is_undefined())?;
        // The name of an exported symbol ends with its version.
        let name = name.split('@').next().unwrap_or(name).to_owned();
        Some(Symbol { name, address: symbol.address(), bytes: symbol.size(), kind })
    };
    all.filter_map(symbol).collect()
}

fn segment_contains(segment: &object::Segment<'_, '_>, address: u64) -> bool {
    address.checked_sub(segment.address()).is_some_and(|offset| offset < segment.size())
}

struct Search<'a> {
    pid: u32,
    name: &'a str,
}

impl Search<'_> {
    /// Returns the variable in the first object in which `search` finds one. Fails if it finds several in this object.
    fn find_first(
        &self,
        objects: &[Object],
        search: fn(&Self, &Object) -> Result<Vec<Variable>, SymbolError>,
    ) -> Result<Option<Variable>, SymbolError> {
        for object in objects {
            let mut found = search(self, object)?;
            found.sort_by_key(|variable| variable.address);
            found.dedup_by_key(|variable| variable.address);
            match found.len() {
                0 => {}
                1 => return Ok(found.pop()),
                _ => return Err(self.ambiguous_name_error(found)),
            }
        }
        Ok(None)
    }

    fn find_exact_name(&self, object: &Object) -> Result<Vec<Variable>, SymbolError> {
        self.find_symbols(object, |name| name == self.name)
    }

    fn find_in_namespaces(&self, object: &Object) -> Result<Vec<Variable>, SymbolError> {
        self.find_symbols(object, |name| is_qualified_match(&demangle(name), self.name))
    }

    fn find_symbols(&self, object: &Object, is_match: impl Fn(&str) -> bool) -> Result<Vec<Variable>, SymbolError> {
        let is_place = |symbol: &Symbol| matches!(symbol.kind, SymbolKind::Data | SymbolKind::Unknown);
        let found = all_symbols(object).into_iter().filter(|symbol| is_place(symbol) && is_match(&symbol.name));
        Ok(found.map(|symbol| symbol.to_variable(object)).collect())
    }

    fn find_in_debug_info(&self, object: &Object) -> Result<Vec<Variable>, SymbolError> {
        let field = |source| SymbolError::Field { name: self.name.to_owned(), object: object.name(), source };
        let files = [Some(object.elf()), object.debug_elf()];
        let mut all = Vec::new();
        for file in files.iter().flatten() {
            match dwarf::find_variables(file, self.name) {
                Ok(found) => all.extend(found),
                // A library that cannot be parsed must not hide the variables of other libraries.
                Err(FieldError::Format(_)) if !object.is_executable => {}
                Err(error) => return Err(field(error)),
            }
        }
        let variable = |found: dwarf::VariableLocation| Variable {
            name: self.name.to_owned(),
            address: found.address.wrapping_add(object.bias),
            bytes: found.bytes,
            object: object.name(),
        };
        Ok(all.into_iter().map(variable).collect())
    }

    fn ambiguous_name_error(&self, candidates: Vec<Variable>) -> SymbolError {
        SymbolError::Ambiguous { pid: self.pid, name: self.name.to_owned(), candidates }
    }

    fn not_found_error(&self, objects: &[Object]) -> SymbolError {
        let name = self.name.to_owned();
        let mut names = Vec::new();
        for object in objects {
            for symbol in all_symbols(object) {
                let readable = demangle(&symbol.name).into_owned();
                let object = object.name();
                match symbol.kind {
                    SymbolKind::Tls if is_qualified_match(&readable, &name) => {
                        return SymbolError::ThreadLocal { name, object };
                    }
                    SymbolKind::Text if symbol.name == name => return SymbolError::Function { name, object },
                    SymbolKind::Data if is_field_of(&name, &readable) => {
                        return SymbolError::NoDebug { variable: readable, object };
                    }
                    SymbolKind::Data => names.push(readable),
                    _ => {}
                }
            }
        }
        let close = closest(&name, names.iter().map(String::as_str));
        let stripped = objects.first().is_some_and(is_stripped);
        SymbolError::NotFound { pid: self.pid, name, close, stripped }
    }
}

/// Returns whether `name` is a field of `variable`.
fn is_field_of(name: &str, variable: &str) -> bool {
    name.strip_prefix(variable).is_some_and(|path| path.starts_with(['.', '[']))
}

fn is_stripped(object: &Object) -> bool {
    object.elf().symbol_table().is_none() && object.debug_elf().is_none()
}
