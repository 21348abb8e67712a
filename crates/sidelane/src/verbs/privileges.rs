//! Capabilities that each verb keeps: `docs/reference/privileges.md` has the same table.

use sidelane_host::capabilities::{
    CAP_BPF, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_IPC_LOCK, CAP_KILL, CAP_PERFMON, CAP_SETPCAP, CAP_SYS_NICE,
    CAP_SYS_PTRACE, Capabilities, StartedPrograms,
};
use sidelane_report::terminal::eprint_fitted;

#[cfg(feature = "full")]
use crate::cli::FullVerb;
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
        #[cfg(feature = "full")]
        Verb::Full(verb) => capabilities_of_full_verb(verb),
        Verb::Internal(Internal::Guardian { .. }) => Some(LOOK.and(Capabilities::of(&[CAP_KILL, CAP_SYS_NICE]))),
        Verb::Internal(Internal::Checks | Internal::Batch { .. })
        | Verb::Doctor(_)
        | Verb::Compare(_)
        | Verb::Calibrate(_)
        | Verb::Completions(_) => None,
    }
}

#[cfg(feature = "full")]
fn capabilities_of_full_verb(verb: &FullVerb) -> Option<Capabilities> {
    let ports = Capabilities::of(&[sidelane_host::capabilities::CAP_NET_BIND_SERVICE]);
    match verb {
        FullVerb::Hurry(_) => Some(PLACE),
        // A reloaded file can have other proxies, and services of any kind.
        FullVerb::Agent(_) => Some(PLACE.and(ports)),
        FullVerb::Requests(_) | FullVerb::Trace(_) | FullVerb::Observe(_) | FullVerb::Estimate(_) => Some(TRACK),
        FullVerb::Proxy(args) => Some(if args.trace { TRACK.and(ports) } else { LOOK.and(ports) }),
        FullVerb::Hazards(_) => Some(LOOK.and(ports)),
        FullVerb::Top(_) => Some(LOOK),
        FullVerb::List(_) | FullVerb::Report(_) | FullVerb::Sim(_) | FullVerb::Status(_) => None,
    }
}

/// Returns what becomes of the capabilities in programs that the verb starts: a command of the user, or a browser with
/// `--open`, has the rights that it would have without Sidelane.
pub fn rights_of_started_programs(verb: &Verb) -> StartedPrograms {
    let starts_programs = match verb {
        Verb::Run(args) => args.adopt.is_none(),
        #[cfg(feature = "full")]
        Verb::Full(FullVerb::Observe(args)) => !args.command.is_empty() || args.outputs.open,
        #[cfg(feature = "full")]
        Verb::Full(FullVerb::Trace(args)) => args.outputs.open,
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
