//! Agent checks of HAProxy after the end of the process that answered them.
//!
//! HAProxy keeps the last answer of an agent that is gone. So a server that was drained by its last answer would stay
//! drained. After the end of the agent its address is served for a while, and each check is answered with the full
//! weight.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sidelane_host::listen::listen_beside;

/// Answer to an agent check that gives a server its full weight.
pub const FULL_WEIGHT: &[u8] = b"100%\n";
/// Time for which checks are answered. HAProxy asks every 2 s by default (`agent-inter`).
const TIME: Duration = Duration::from_secs(60);
/// Number of checks after which each of several servers and HAProxy processes has asked.
const CHECKS_PER_SERVER: usize = 10;
/// Longest time for which one check may hold up the others.
const WRITE_TIME: Duration = Duration::from_millis(100);

/// Gives all servers of an agent their full weight back, until they have been asked for ten times each, or for a
/// minute.
pub fn restore_weights(address: SocketAddr, servers: usize) -> io::Result<()> {
    let listener = listen_beside(address)?;
    answer_checks(&listener, servers * CHECKS_PER_SERVER, TIME)
}

fn answer_checks(listener: &TcpListener, checks: usize, time: Duration) -> io::Result<()> {
    let end = Instant::now() + time;
    for _ in 0..checks {
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            let timeout = Timespec::try_from(left).expect("a minute fits");
            if poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&timeout)).is_ok_and(|ready| ready > 0) {
                break;
            }
        }
        // The client may have gone again, and asks again later.
        if let Ok((mut check, _)) = listener.accept() {
            let _ = check.set_write_timeout(Some(WRITE_TIME)).and_then(|()| check.write_all(FULL_WEIGHT));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn checks_get_the_full_weight_until_each_has_asked() {
        let listener = listen_beside("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let answering = std::thread::spawn(move || answer_checks(&listener, 2, TIME));
        for _ in 0..2 {
            let mut answer = String::new();
            TcpStream::connect(address).unwrap().read_to_string(&mut answer).unwrap();
            assert_eq!(answer, "100%\n");
        }
        answering.join().unwrap().unwrap();
        assert!(TcpStream::connect(address).is_err());
    }

    #[test]
    fn without_checks_the_time_ends() {
        let listener = listen_beside("127.0.0.1:0".parse().unwrap()).unwrap();
        answer_checks(&listener, 2, Duration::from_millis(1)).unwrap();
    }
}
