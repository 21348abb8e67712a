//! Capabilities that each verb keeps: `docs/reference/privileges.md` has the same table.

use sidelane_host::capabilities::{
    CAP_BPF, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_IPC_LOCK, CAP_KILL, CAP_NET_BIND_SERVICE, CAP_PERFMON, CAP_SETPCAP,
    CAP_SYS_NICE, CAP_SYS_PTRACE, Capabilities, StartedPrograms,
};
use sidelane_report::terminal::eprint_fitted;

use crate::cli::{Internal, Verb};

/// Files of other users, and processes with more rights: every verb that looks at services needs them.
const LOOK: Capabilities = Capabilities::of(&[CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_SYS_PTRACE]);
/// The kernel program and its memory. Services and runtimes that appear later are attached later.
const TRACK: Capabilities = LOOK.and(Capabilities::of(&[CAP_BPF, CAP_IPC_LOCK, CAP_PERFMON]));
/// CPUs and scheduling classes of other processes.
const PLACE: Capabilities = TRACK.and(Capabilities::of(&[CAP_SYS_NICE]));

/// Returns the capabilities that a verb keeps, if it has them. Returns `None` for verbs that end by themselves.
pub fn kept_capabilities(verb: &Verb) -> Option<Capabilities> {
    match verb {
        Verb::Run(_) => Some(PLACE.and(Capabilities::of(&[CAP_KILL, CAP_SETPCAP]))),
        Verb::Hurry(_) => Some(PLACE),
        // A reloaded file can have other proxies, and services of any kind.
        Verb::Agent(_) => Some(PLACE.and(Capabilities::of(&[CAP_NET_BIND_SERVICE]))),
        Verb::Requests(_) | Verb::Trace(_) | Verb::Observe(_) | Verb::Estimate(_) => Some(TRACK),
        Verb::Proxy(args) => {
            let ports = Capabilities::of(&[CAP_NET_BIND_SERVICE]);
            Some(if args.trace { TRACK.and(ports) } else { LOOK.and(ports) })
        }
        Verb::Hazards(_) => Some(LOOK.and(Capabilities::of(&[CAP_NET_BIND_SERVICE]))),
        Verb::Top(_) => Some(LOOK),
        Verb::Internal(Internal::Guardian { .. }) => Some(LOOK.and(Capabilities::of(&[CAP_KILL, CAP_SYS_NICE]))),
        Verb::Internal(Internal::Checks | Internal::Batch { .. })
        | Verb::Doctor(_)
        | Verb::Compare(_)
        | Verb::Calibrate(_)
        | Verb::List(_)
        | Verb::Report(_)
        | Verb::Sim(_)
        | Verb::Status(_)
        | Verb::Completions(_) => None,
    }
}

/// Returns what becomes of the capabilities in programs that the verb starts: a command of the user, or a browser with
/// `--open`, has the rights that it would have without Sidelane.
pub fn rights_of_started_programs(verb: &Verb) -> StartedPrograms {
    let starts_programs = match verb {
        Verb::Run(args) => args.adopt.is_none(),
        Verb::Observe(args) => !args.command.is_empty() || args.outputs.open,
        Verb::Trace(args) => args.outputs.open,
        // It starts none, and its parent may have given up the right to limit them.
        Verb::Internal(Internal::Guardian { .. }) => true,
        _ => false,
    };
    if starts_programs { StartedPrograms::KeepThem } else { StartedPrograms::LoseThem }
}

/// Gives up the capabilities that the verb does not need. It must come before the first thread, because each thread has
/// its own.
pub fn give_up_capabilities(verb: &Verb) {
    let Some(kept) = kept_capabilities(verb) else { return };
    // Without this right a verb that needs it fails, and says so. With fewer rights than its batch command it would fail
    // sooner, at a change of that process.
    if kept.has(CAP_SYS_NICE) && !Capabilities::own().has(CAP_SYS_NICE) {
        return;
    }
    if let Err(error) = kept.keep_only(rights_of_started_programs(verb)) {
        eprint_fitted(&format!(
            "sidelane: cannot give up capabilities that it does not need: {error}; allow capset and prctl, or start it \
             with the capabilities of docs/reference/privileges.md alone"
        ));
    }
}
