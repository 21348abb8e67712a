//! The address to which the client sends: the server itself, or `sidelane proxy` in front of two servers.
//!
//! With a backup, the active server is restarted while the proxy watches it. A run therefore begins in the same way for
//! all variants: with a server that has just been started.

use anyhow::Result;

use super::LuceneVariant;
use super::jar::Lucene;
use super::load::{CONNECTIONS, LuceneLoad};
use super::server::{HeapSettings, Server};
use crate::bench::tail::fixture::TailFixture;
use crate::bench::tail::proxied::{ProxySettings, RunningProxy};

const WANTED: ProxySettings<'static> = ProxySettings {
    hazards: "jvm-gc,safepoint,stopped,restart",
    hedge: "hazard",
    clients: CONNECTIONS,
    priority: None,
};

/// Server that has just been started, with the proxy in front of it if there is one.
pub(super) struct LuceneFrontend {
    port: u32,
    _servers: Vec<Server>,
    _proxy: Option<RunningProxy>,
}

impl LuceneFrontend {
    /// Starts the server, and with a backup also the second server and the proxy.
    pub(super) fn start(fixture: &TailFixture<'_>, lucene: &Lucene, variant: LuceneVariant) -> Result<Self> {
        let start = |cpu, port| Server::start(lucene, variant, cpu, HeapSettings::SMALL, port);
        let active = start(fixture.place.request, 0)?;
        if variant != LuceneVariant::Backup {
            return Ok(Self { port: active.port()?, _servers: vec![active], _proxy: None });
        }
        let backup = start(fixture.place.batch, 0)?;
        let port = active.port()?;
        let proxy = RunningProxy::start(fixture, (port, backup.port()?), WANTED)?;
        LuceneLoad::WARM_UP.send(fixture, lucene, backup.port()?)?;
        drop(active);
        let active = start(fixture.place.request, port)?;
        Ok(Self { port: proxy.port(), _servers: vec![active, backup], _proxy: Some(proxy) })
    }

    /// Returns the port to which the client connects.
    pub(super) fn port(&self) -> u32 {
        self.port
    }
}
