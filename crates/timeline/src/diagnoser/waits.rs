//! Waits as text: the system call, its object, the event that ended it, and the activity of the thread that ended it.

use crate::cause::Cause;
use crate::diagnoser::digest::Clue;
use crate::diagnoser::text::{Names, describe_task, format_time};
use crate::record::Task;
use crate::wait::{Activity, Object, Peer, Purpose, TCP, TIMEOUT_UNKNOWN, Wait, WaitEnd, call, syscall_name};

/// Port of name servers (DNS).
const NAMES: u16 = 53;
/// Lowest address of the kernel.
const KERNEL: u64 = 1 << 63;

/// Returns a peer as text, with the name of its process if that is on this machine and known.
fn describe_service(peer: Peer, names: Names) -> String {
    let peer_words = if peer.port() == NAMES { format!("the name server {peer}") } else { peer.to_string() };
    let peer_words = names.path_at(peer).unwrap_or(peer_words);
    match names.process_at(peer) {
        Some(pid) => format!("{peer_words} ({})", describe_task(Task { tid: 0, pid }, names)),
        None => peer_words,
    }
}

/// Returns the other service whose answer or connection a wait was for; `None` for other waits.
fn awaited_peer(wait: &Wait) -> Option<Peer> {
    match wait.object {
        Object::Service(peer) => Some(peer),
        _ => None,
    }
}

fn describe_asked_service(wait: &Wait, names: Names) -> String {
    awaited_peer(wait).map_or_else(|| "another service".to_owned(), |peer| describe_service(peer, names))
}

/// Returns the object of a wait in a system call, as text: "a pipe", for example.
fn describe_object(wait: &Wait, names: Names) -> Option<String> {
    match wait.object {
        Object::Unknown | Object::Futex(..) => None,
        Object::Pipe(_) => Some("a pipe".to_owned()),
        Object::UnixSocket => Some("a Unix socket".to_owned()),
        Object::Socket => Some("a socket".to_owned()),
        Object::Client => Some("the client's connection".to_owned()),
        Object::Service(peer) => Some(describe_service(peer, names)),
        Object::Event => Some("an eventfd".to_owned()),
        Object::Timer => Some("a timerfd".to_owned()),
        Object::File(number, _) => Some(format!("file {number}")),
    }
}

/// Returns the system call of a wait as text: "in epoll_wait", "in read from a pipe".
fn describe_call(wait: &Wait, names: Names) -> String {
    let Some(number) = wait.call else { return String::new() };
    match describe_object(wait, names) {
        Some(object) => format!(" in {} on {object}", syscall_name(number)),
        None => format!(" in {}", syscall_name(number)),
    }
}

/// Returns the activity of the thread that was waited for, as text after `before`: ", which ran".
fn describe_activity(wait: &Wait, prefix: &str, names: Names) -> String {
    let did = match wait.doing {
        Activity::Unknown => return String::new(),
        Activity::Ran => "ran",
        Activity::WaitedForCpu => "waited for a CPU",
        Activity::Slept => "slept until a set time",
        Activity::WaitedForDisk => "waited for a disk",
        Activity::Asked => "waited for another service",
        Activity::WaitedForRequest => "waited for the next request of its client",
        Activity::Waited => "slept",
    };
    match wait.root {
        Task { tid: 0, .. } => format!("{prefix}{did}"),
        root => format!("{prefix}waited for {}, which {did}", describe_task(root, names)),
    }
}

fn describe_timeout(wait: &Wait, longest_ns: u64) -> String {
    match wait.timeout_ms {
        0 if wait.purpose().is_event_loop_wait() => "until the program went on without it".to_owned(),
        0 | TIMEOUT_UNKNOWN => format!("within {}, when the program's timeout ended", format_time(longest_ns)),
        ms => {
            format!("within the {} that the program allows", format_time(u64::from(ms) * 1_000_000).replace(".0 ", " "))
        }
    }
}

/// Returns the evidence of a clue with a wait as text; `None` if it adds nothing to the name of the cause.
pub fn describe_wait(clue: &Clue, names: Names) -> Option<String> {
    let wait = clue.wait.as_ref()?;
    let by = describe_task(clue.by, names);
    let (asked, call) = (|| describe_asked_service(wait, names), || describe_call(wait, names));
    let said = match clue.cause {
        Cause::Downstream if wait.is_shared => {
            let service = asked();
            format!("{service} had not answered; several requests share the connection, so this time is an upper bound")
        }
        Cause::Downstream => format!("{} had not answered", asked()),
        Cause::ServiceQueue => {
            format!("the answer of {} had come, but {by} worked on other requests and had not read it", asked())
        }
        Cause::Retransmission => {
            format!("a segment of a request to {} was lost and sent again", asked())
        }
        Cause::Connect => format!("the connection to {} was not there yet", asked()),
        Cause::NoAnswer if wait.connects => {
            format!("no connection to {} {}", asked(), describe_timeout(wait, clue.longest_ns))
        }
        Cause::NoAnswer => format!("no answer from {} {}", asked(), describe_timeout(wait, clue.longest_ns)),
        Cause::Full => describe_full_buffer(wait, clue.by, names),
        Cause::Lock if wait.of_session => {
            let holder = describe_task(Task { tid: 0, pid: clue.by.pid }, names);
            let held = format_time(clue.longest_ns);
            format!("lock that {holder}, held for {held}{}", describe_activity(wait, " and ", names))
        }
        Cause::Lock if wait.of_peer => describe_peer_wait(wait, clue.by, names),
        Cause::Lock if wait.purpose() == Purpose::FileLock => {
            format!("{by} held the lock on {}{}", describe_file(wait, names), describe_activity(wait, " and ", names))
        }
        Cause::Lock if clue.detail >= KERNEL => {
            format!("{by} held a lock of the kernel{}{}", call(), describe_activity(wait, " and ", names))
        }
        Cause::Lock if clue.detail != 0 => {
            format!("{by} held the lock at {:#x}{}", clue.detail, describe_activity(wait, " and ", names))
        }
        Cause::HandOver => describe_hand_over(wait, &by, names),
        Cause::Timer if wait.purpose().is_event_loop_wait() => {
            format!("its thread waited{} until a timeout that it had set", call())
        }
        Cause::Timer if wait.purpose() == Purpose::Receive => {
            format!("its thread waited{} until a time that it had set", call())
        }
        Cause::NetworkReceive => format!("its thread waited{} for more data", call()),
        Cause::Inside => describe_inside_wait(wait, names),
        Cause::Disk if wait.purpose() == Purpose::Sync => {
            format!(
                "its thread waited in {} until {} was on its disk",
                wait.call.map_or("", syscall_name),
                describe_file(wait, names)
            )
        }
        Cause::Disk if clue.detail == 0 && wait.call.is_some() => {
            format!("its thread waited{} for its file system", call())
        }
        _ => return None,
    };
    Some(said)
}

/// Describes a wait for a lock, semaphore or pool that threads with requests of their own give to each other.
fn describe_peer_wait(wait: &Wait, by: Task, names: Names) -> String {
    let did = describe_activity(wait, " and ", names);
    format!("{} had the lock, semaphore or pool that it waited for in futex{did}", describe_task(by, names))
}

fn describe_file(wait: &Wait, names: Names) -> String {
    let Object::File(number, inode) = wait.object else { return "a file".to_owned() };
    names.path_of(inode).unwrap_or_else(|| format!("file {number}"))
}

/// Describes a write to a full pipe or socket that waited for its reader.
fn describe_full_buffer(wait: &Wait, by: Task, names: Names) -> String {
    let object = describe_object(wait, names).unwrap_or_else(|| "a pipe or socket".to_owned());
    let reader = match wait.object {
        _ if by.tid != 0 => Some(by.pid),
        Object::Pipe(inode) => names.reader_of(inode),
        _ => None,
    };
    let Some(pid) = reader else { return format!("write to {object} that was full: the other side did not read") };
    let (reader, did) = (describe_task(Task { tid: 0, pid }, names), describe_activity(wait, ", which ", names));
    format!("write to {object} that was full; its reader is {reader}{did}")
}

fn describe_hand_over(wait: &Wait, by: &str, names: Names) -> String {
    let how = match wait.ended {
        WaitEnd::Thread(Some(call::EXIT | call::EXIT_GROUP)) => "ended",
        _ => "woke it",
    };
    let did = describe_activity(wait, "; before that it ", names);
    format!("its thread waited{} until {by} {how}{did}", describe_call(wait, names))
}

/// Describes a wait inside the service. The thread that ended the wait may have worked for the same request, so the
/// text does not name it.
fn describe_inside_wait(wait: &Wait, names: Names) -> String {
    let ended = match wait.ended {
        WaitEnd::Thread(_) => {
            return format!(
                "it waited inside the service; its thread waited{} until another thread woke it",
                describe_call(wait, names)
            );
        }
        WaitEnd::Timer => ", until a timeout that it had set",
        WaitEnd::Interrupt => ", until data came",
        WaitEnd::Unknown => "",
    };
    format!("it waited inside the service, without a thread; its thread waited{}{ended}", describe_call(wait, names))
}

/// Returns the advice for a wait for another service. The advice has the next command to type if that service is on
/// this machine.
pub fn advice_for_service(clue: &Clue, names: Names) -> Option<String> {
    use Cause::{Connect, Downstream, Full, NoAnswer, Retransmission, ServiceQueue};
    let is_of_peer = matches!(clue.cause, Connect | Downstream | Full | NoAnswer | Retransmission | ServiceQueue);
    let wait = clue.wait.as_ref().filter(|_| is_of_peer)?;
    let peer = awaited_peer(wait)?;
    let said = match peer {
        _ if clue.cause == ServiceQueue => {
            "The answer had come, but its thread was busy: move long work to other threads or processes, or split it."
                .to_owned()
        }
        Peer::Address(ip, ..) if clue.cause == Retransmission => format!(
            "Segments to that address are lost: `ss -tin dst {ip}` counts them (retrans); check the drops of network \
             cards and switches on the path."
        ),
        Peer::Unix(_) => {
            "Check what that process does during that time (its log, a profiler), or ask it earlier; requests at Unix \
             sockets are not traced."
                .to_owned()
        }
        // Sidelane sees requests at TCP ports only.
        Peer::Address(_, port, TCP) if names.process_at(peer).is_some() => match wait.connects {
            true => format!(
                "`ss -ltn sport = :{port}` shows whether its accept queue is full (Recv-Q above Send-Q): let it accept \
                 sooner, allow a longer queue, or keep connections open."
            ),
            false => {
                format!(
                    "`sidelane trace --service port:{port}` shows why; ask that service earlier, or ask a copy of \
                         it, too."
                )
            }
        },
        _ => return None,
    };
    Some(said)
}
