//! Connection to a client: bytes as they are, or TLS.
//!
//! TLS keeps the meaning of readiness: a read takes in everything that the kernel has, so bytes wait in the kernel only.
//! A write counts bytes only after the kernel has their encrypted form. So callers wait for the socket in both cases.

use std::cell::{Cell, RefCell};
use std::io::{self, BufRead, IoSlice, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustls::{ServerConfig, ServerConnection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::buffer::Buffer;

/// Maximum number of encrypted bytes that are read at once.
const READ_BYTES: usize = 16 << 10;

thread_local! {
    /// Space for encrypted bytes between the kernel and rustls.
    static ENCRYPTED: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BYTES]);
}

/// Connection to a client.
pub(super) enum ClientStream {
    Plain(TcpStream),
    Tls(Box<TlsStream>),
}

impl ClientStream {
    /// Returns the socket, for what is the same with and without TLS.
    pub(super) fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(tls) => &tls.socket,
        }
    }

    pub(super) fn is_tls(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// Reads available bytes into `input`. Returns their number, or 0 at the end of the stream.
    pub(super) fn fill(&self, input: &mut Buffer) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => input.fill(socket),
            Self::Tls(tls) => tls.fill(input),
        }
    }

    /// Writes bytes, and returns how many. If the kernel has no room, the next call must begin with the same bytes.
    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.try_write(bytes),
            Self::Tls(tls) => tls.try_write(bytes),
        }
    }

    /// Polls whether [`Self::fill`] may have something to tell.
    pub(super) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tls(tls) if tls.has_ended.get() => Poll::Ready(Ok(())),
            _ => self.socket().poll_read_ready(cx),
        }
    }

    /// Waits until [`Self::fill`] may have something to tell.
    pub(super) async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Tls(tls) if tls.has_ended.get() => Ok(()),
            _ => self.socket().readable().await,
        }
    }

    /// Tells a client of TLS that nothing is missing at the end. Does not wait: if the kernel has no room, the client
    /// cannot know.
    pub(super) fn finish(&self) {
        if let Self::Tls(tls) = self {
            let mut session = tls.session.borrow_mut();
            session.send_close_notify();
            let _ = tls.flush(&mut session);
        }
    }
}

/// Connection to a client with TLS.
pub(super) struct TlsStream {
    socket: TcpStream,
    session: RefCell<ServerConnection>,
    /// Number of bytes that are encrypted, and not yet counted as written.
    unsent: Cell<usize>,
    /// Whether the client has ended its direction.
    has_ended: Cell<bool>,
    /// Decrypted bytes for a reader with less room. Only tunnels have such a reader.
    decrypted: Buffer,
}

impl TlsStream {
    /// Makes a connection whose handshake has not begun.
    pub(super) fn new(socket: TcpStream, config: &Arc<ServerConfig>) -> Result<Self, rustls::Error> {
        let session = RefCell::new(ServerConnection::new(Arc::clone(config))?);
        Ok(Self { socket, session, unsent: Cell::new(0), has_ended: Cell::new(false), decrypted: Buffer::default() })
    }

    /// Does the handshake. The client's first bytes after it may be in `input` then.
    pub(super) async fn handshake(&self, input: &mut Buffer) -> io::Result<()> {
        loop {
            match self.fill(input) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            while self.session.borrow().wants_write() {
                self.socket.writable().await?;
                match self.flush(&mut self.session.borrow_mut()) {
                    Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                    _ => {}
                }
            }
            if !self.session.borrow().is_handshaking() {
                return Ok(());
            }
            self.socket.readable().await?;
        }
    }

    fn fill(&self, input: &mut Buffer) -> io::Result<usize> {
        let mut session = self.session.borrow_mut();
        while !self.has_ended.get() {
            let count = ENCRYPTED.with_borrow_mut(|encrypted| {
                let received = self.socket.try_read(encrypted)?;
                if received == 0 {
                    // The end of the messages inside shows whether something is missing, as without TLS.
                    self.has_ended.set(true);
                }
                self.decrypt(&mut session, &encrypted[..received], input)
            })?;
            if count > 0 {
                return Ok(count);
            }
            if session.is_handshaking() && session.wants_write() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
        }
        Ok(0)
    }

    /// Decrypts all complete records, and returns the number of bytes in them. An incomplete record stays in the
    /// session.
    fn decrypt(&self, session: &mut ServerConnection, mut encrypted: &[u8], input: &mut Buffer) -> io::Result<usize> {
        let mut count = 0;
        while !encrypted.is_empty() && session.read_tls(&mut encrypted)? > 0 {
            let state = session.process_new_packets().map_err(|error| {
                // Tell the client why. It cannot know if the kernel has no room.
                let _ = self.flush(session);
                io::Error::new(io::ErrorKind::InvalidData, error)
            })?;
            let mut left = state.plaintext_bytes_to_read();
            count += left;
            while left > 0 {
                let mut reader = session.reader();
                let bytes = reader.fill_buf()?;
                input.push(bytes);
                let used = bytes.len();
                reader.consume(used);
                left -= used;
            }
            if state.peer_has_closed() {
                self.has_ended.set(true);
                break;
            }
        }
        Ok(count)
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut session = self.session.borrow_mut();
        if self.unsent.get() == 0 {
            self.unsent.set(session.writer().write(bytes)?);
        }
        self.flush(&mut session)?;
        Ok(self.unsent.take())
    }

    /// Writes all encrypted bytes. Fails with `WouldBlock` if the kernel has no room for some of them.
    fn flush(&self, session: &mut ServerConnection) -> io::Result<()> {
        while session.wants_write() {
            session.write_tls(&mut SocketWriter(&self.socket))?;
        }
        Ok(())
    }
}

/// Socket to which rustls writes encrypted bytes without waiting.
struct SocketWriter<'a>(&'a TcpStream);

impl Write for SocketWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(parts)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

// Tunnels copy bytes with `AsyncRead` and `AsyncWrite`.

impl AsyncRead for ClientStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let tls = match self.get_mut() {
            Self::Plain(socket) => return Pin::new(socket).poll_read(cx, into),
            Self::Tls(tls) => tls,
        };
        while tls.decrypted.is_empty() && !tls.has_ended.get() {
            let mut decrypted = std::mem::take(&mut tls.decrypted);
            let filled = tls.fill(&mut decrypted);
            tls.decrypted = decrypted;
            match filled {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready!(tls.socket.poll_read_ready(cx))?,
                filled => drop(filled?),
            }
        }
        let bytes = tls.decrypted.data();
        let count = bytes.len().min(into.remaining());
        into.put_slice(&bytes[..count]);
        tls.decrypted.consume(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let tls = match self.get_mut() {
            Self::Plain(socket) => return Pin::new(socket).poll_write(cx, bytes),
            Self::Tls(tls) => tls,
        };
        loop {
            match tls.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready!(tls.socket.poll_write_ready(cx))?,
                written => return Poll::Ready(written),
            }
        }
    }

    /// Does nothing: [`AsyncWrite::poll_write`] leaves nothing to write.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.finish();
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_shutdown(cx),
            Self::Tls(tls) => Pin::new(&mut tls.socket).poll_shutdown(cx),
        }
    }
}
