//! Clients come, and too many are turned away.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_local;
use tokio::time::sleep;

use super::patience::Patience;
use super::shared::Shared;
use super::{http, resp};
use crate::config::{Limits, Protocol};
use crate::http::write_error;

const BACKLOG: i32 = 4096;
/// A client may need so many open files: its own connection and one to each server.
const FILES_OF_CLIENT: u64 = 3;
/// Open files that are for all else.
const FILES_KEPT: u64 = 64;
/// Clients that are told at once that there are too many; more are turned away without a word.
const TOLD_MAX: usize = 16;
/// How long is waited when the system has no open files left.
const WITHOUT_FILES: Duration = Duration::from_millis(10);

pub(super) fn open(at: SocketAddr) -> io::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind(at)?;
    // It listens already, with a shorter queue of clients.
    rustix::net::listen(&listener, BACKLOG)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// How many clients there may be at once.
fn clients_max(limits: &Limits) -> usize {
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let allowed = (files.saturating_sub(FILES_KEPT) / FILES_OF_CLIENT).max(1);
    let allowed = usize::try_from(allowed).unwrap_or(usize::MAX);
    limits.clients.map_or(allowed, |wanted| wanted.min(allowed))
}

pub(super) async fn accept(shared: &Rc<Shared>, listener: &TcpListener) -> io::Result<()> {
    let clients_max = clients_max(&shared.config.limits);
    loop {
        match listener.accept().await {
            Ok((stream, _)) if shared.clients.get() < clients_max => welcome(shared, stream),
            Ok((stream, _)) => turn_away(shared, stream, clients_max),
            // Of one client, or of the system: others come.
            Err(error) if is_about_files(&error) => sleep(WITHOUT_FILES).await,
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Err(error),
            Err(_) => {}
        }
    }
}

fn is_about_files(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(rustix::io::Errno::from_raw_os_error);
    use rustix::io::Errno;
    matches!(code, Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM))
}

fn welcome(shared: &Rc<Shared>, stream: TcpStream) {
    // Without it answers are only later.
    let _ = stream.set_nodelay(true);
    shared.clients.set(shared.clients.get() + 1);
    let shared = Rc::clone(shared);
    drop(spawn_local(async move {
        match shared.config.protocol {
            Protocol::Http => http::serve(Rc::clone(&shared), stream).await,
            Protocol::Redis => resp::serve(Rc::clone(&shared), stream).await,
        }
        shared.clients.set(shared.clients.get() - 1);
    }));
}

fn turn_away(shared: &Rc<Shared>, stream: TcpStream, clients_max: usize) {
    shared.turned_away.set(shared.turned_away.get() + 1);
    let mut answer = Vec::new();
    match shared.config.protocol {
        Protocol::Http => write_error(503, "too many clients", &mut answer),
        Protocol::Redis => answer.extend_from_slice(b"-ERR sidelane: too many clients\r\n"),
    }
    // If it does not fit into an empty socket, the client is gone.
    let _ = stream.try_write(&answer);
    if shared.clients.get() < clients_max + TOLD_MAX {
        shared.clients.set(shared.clients.get() + 1);
        let shared = Rc::clone(shared);
        drop(spawn_local(async move {
            http::linger(&stream, &mut Patience::new(&shared.config.limits)).await;
            shared.clients.set(shared.clients.get() - 1);
        }));
    }
}
