//! A distant client, emulated by a delay of all packets between client and service.
//!
//! A helper process owns a network device. It receives each packet, waits, swaps source and destination address, and
//! returns the packet. A client that connects to [`CLIENT`] thus reaches the service at [`SERVICE`], which sees a
//! connection from `CLIENT`.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::mpsc::channel;
use std::thread;

use anyhow::{Context, Result, ensure};

use crate::clock::{Nanos, now_ns, sleep_until};
use crate::plant::accomplice::HelperProcess;
use crate::plant::cause::{PlantArgs, PlantedCause};
use crate::scheduling;

/// IP address of the service, from the range for benchmarks (RFC 2544).
pub const SERVICE: Ipv4Addr = Ipv4Addr::new(198, 18, 77, 1);
/// IP address of the distant client.
const CLIENT: Ipv4Addr = Ipv4Addr::new(198, 18, 77, 2);
/// Name of the network device.
const DEVICE: &str = "sidelane-far";
/// Size of a planted response: more than the first congestion window, and less than the client's first receive window.
const RESPONSE_BYTES: usize = 48 << 10;
/// Length of an IPv4 header without options.
const HEADER_BYTES: usize = 20;

/// Response that takes several round trips, each as long as the delay.
pub struct DelayedNetwork {
    /// Process that delays the packets.
    _network: HelperProcess,
}

impl DelayedNetwork {
    pub fn prepare(args: &PlantArgs) -> Result<Self> {
        let device = open_tun_device()
            .with_context(|| format!("cannot make the network device {DEVICE}; run as root, one at a time"))?;
        let (cpu, way_ns) = (args.other_cpu, args.delay_ns() / 2);
        let prepare = move || {
            scheduling::pin_to(cpu)?;
            start_delayed_return(device, way_ns)?;
            Ok(|| Ok(()))
        };
        Ok(Self { _network: HelperProcess::start(prepare, || ())? })
    }
}

impl PlantedCause for DelayedNetwork {
    fn disturb_request(&mut self) -> Result<()> {
        Ok(())
    }

    fn response_bytes(&self) -> usize {
        RESPONSE_BYTES
    }
}

/// Opens a TUN network device, which exists as long as the file is open.
fn open_tun_device() -> Result<File> {
    let file = OpenOptions::new().read(true).write(true).open("/dev/net/tun")?;
    // SAFETY: an ifreq consists of numbers, for which zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name.iter_mut().zip(DEVICE.bytes()).for_each(|(to, from)| *to = from as libc::c_char);
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: `request` is valid during the call.
    let made = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &request) };
    ensure!(made == 0, std::io::Error::last_os_error());
    run_ip_command(&["address", "add", &SERVICE.to_string(), "peer", &CLIENT.to_string(), "dev", DEVICE])?;
    run_ip_command(&["link", "set", DEVICE, "up"])?;
    Ok(file)
}

fn run_ip_command(arguments: &[&str]) -> Result<()> {
    let status = Command::new("ip").args(arguments).status().context("cannot run ip (package iproute2)")?;
    ensure!(status.success(), "`ip {}` failed", arguments.join(" "));
    Ok(())
}

/// Starts two threads that return each packet after `delay_ns`.
fn start_delayed_return(device: File, delay_ns: Nanos) -> Result<()> {
    let (mut reads, mut writes) = (device.try_clone()?, device);
    let (on_the_way, arrives) = channel();
    thread::spawn(move || -> Result<()> {
        let mut packet = [0; 1 << 16];
        loop {
            let length = reads.read(&mut packet)?;
            on_the_way.send((now_ns() + delay_ns, packet[..length].to_vec()))?;
        }
    });
    thread::spawn(move || -> Result<()> {
        for (due_ns, mut packet) in arrives {
            sleep_until(due_ns)?;
            if swap_addresses(&mut packet) {
                writes.write_all(&packet)?;
            }
        }
        Ok(())
    });
    Ok(())
}

/// Exchanges the addresses of an IPv4 packet, which keeps its checksums right. Returns whether the packet is IPv4.
fn swap_addresses(packet: &mut [u8]) -> bool {
    let is_v4 = packet.len() >= HEADER_BYTES && packet[0] >> 4 == 4;
    if is_v4 {
        let (from, to) = packet[12..HEADER_BYTES].split_at_mut(4);
        from.swap_with_slice(to);
    }
    is_v4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_addresses_are_swapped() {
        let mut packet: Vec<u8> = (0x40..0x60).collect();
        assert!(swap_addresses(&mut packet));
        assert_eq!(packet[12..20], [0x50, 0x51, 0x52, 0x53, 0x4c, 0x4d, 0x4e, 0x4f]);
        assert!(swap_addresses(&mut packet) && packet == (0x40..0x60).collect::<Vec<u8>>());
        assert!(!swap_addresses(&mut [0x60; 40]) && !swap_addresses(&mut packet[..19]));
    }
}
