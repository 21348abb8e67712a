//! A service under `sidelane hurry`, from begin to end.
//!
//! Nobody is woken for a request. A request that begins after a look cannot be long before the threshold has passed since
//! that look, so looks that are no further apart than the threshold see each long request before it is due; and for those
//! that have been seen there is a look at that moment. With the paper's sampling, looks are that far apart.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use sidelane_host::clock::{now_ns, thread_cpu_ns};
use sidelane_host::cpulist::CpuSet;
use sidelane_host::energy::{Energy, EnergyError};
use sidelane_host::priority::{HOLDER_PRIORITY, make_only_this_thread_fifo};
use sidelane_host::service::Service;
use sidelane_host::topology::online_cpus;

use super::figures::{Figures, Summary};
use super::log::{ThreadAudit, ThreadLog};
use super::mapper::Mapper;
use super::pool::Pool;
use super::settings::Settings;
use super::work::WorkSource;
use crate::note::Note;
use crate::until::Until;

/// How often threads and cores are looked for that come and go.
const CENSUS_EVERY_NS: u64 = 500_000_000;
/// How often processes of the service are looked for that nobody has forked, as after a restart.
const CENSUSES_A_SEARCH: u32 = 10;

/// Maps the threads of a service until `until` ends it. `tell` hears when all is ready, and what has come of it some times
/// a second.
///
/// # Errors
/// If its requests cannot be seen, somebody else moves its threads, or there can be no guardian.
pub fn run(
    settings: &Settings,
    length: Option<Duration>,
    until: &Until,
    mut tell: impl FnMut(&Figures),
) -> Result<Summary> {
    let mut session = Session::begin(settings)?;
    let ends_ns = length.map_or(u64::MAX, |length| now_ns().saturating_add(length.as_nanos() as u64));
    tell(&session.figures());
    loop {
        let now_ns = now_ns();
        let next_ns = session.look(now_ns, &mut tell)?.min(ends_ns);
        let wait = Duration::from_nanos(next_ns.saturating_sub(now_ns));
        if now_ns >= ends_ns || !until.wait(wait)? {
            return session.end();
        }
    }
}

struct Session {
    settings: Settings,
    source: WorkSource,
    mapper: Mapper,
    log: Option<ThreadLog<BufWriter<File>>>,
    online: CpuSet,
    energy: Result<Energy, EnergyError>,
    began_ns: u64,
    cpu_began_ns: u64,
    census_ns: u64,
    censuses: u32,
    notes: Vec<Note>,
}

impl Session {
    fn begin(settings: &Settings) -> Result<Self> {
        let service = settings.service.find()?;
        let (log, audit) = open_log(settings)?;
        let source = WorkSource::begin(settings, &service)?;
        let pool = Pool::of(&service)?;
        let (began_ns, cpu_began_ns) = (now_ns(), thread_cpu_ns());
        let mapper = Mapper::new(settings.config, &settings.sizes, pool, audit);
        // The service must not keep it from its work.
        let urgent = make_only_this_thread_fifo(HOLDER_PRIORITY);
        let notes = urgent.err().map(|error| Note::MovedLate { error: error.to_string() }).into_iter().collect();
        let (settings, online) = (settings.clone(), CpuSet::default());
        let (census_ns, censuses) = (began_ns + CENSUS_EVERY_NS, 0);
        let energy = Energy::open(Path::new("/sys"));
        let mut session =
            Self { settings, source, mapper, log, online, energy, began_ns, cpu_began_ns, census_ns, censuses, notes };
        session.use_online(began_ns)?;
        Ok(session)
    }

    /// Hears what has happened, moves whoever is to be moved, and says when to look again.
    fn look(&mut self, now_ns: u64, tell: &mut impl FnMut(&Figures)) -> Result<u64> {
        if now_ns >= self.census_ns {
            self.census(now_ns)?;
            tell(&self.figures());
        }
        let Self { source, mapper, .. } = self;
        let mut outcome = Ok(());
        source.hear(&mut |work| {
            if outcome.is_ok() {
                outcome = mapper.hear(work);
            }
        })?;
        outcome?;
        Ok(self.mapper.decide(now_ns).min(self.census_ns))
    }

    /// Who and what has come and gone.
    fn census(&mut self, now_ns: u64) -> Result<()> {
        self.census_ns = now_ns + CENSUS_EVERY_NS;
        self.censuses += 1;
        let service = self.search();
        if let Some(service) = &service {
            self.source.look_again(&service.pids)?;
        }
        let gone = self.mapper.pool().look(service.as_ref())?;
        self.mapper.ended(now_ns, &gone);
        self.use_online(now_ns)?;
        self.log.as_mut().map_or(Ok(()), ThreadLog::drain).context("cannot write the log")
    }

    /// The service's processes, if it is time to look for them: a search takes a while.
    fn search(&mut self) -> Option<Service> {
        let is_time = self.censuses.is_multiple_of(CENSUSES_A_SEARCH) || !self.mapper.pool().is_there();
        is_time.then(|| self.settings.service.find().ok()).flatten()
    }

    /// A core may be taken offline, and come back.
    fn use_online(&mut self, now_ns: u64) -> Result<()> {
        let online = online_cpus().context("cannot read which CPUs are online")?;
        if online != self.online {
            self.mapper.use_online(now_ns, &online);
            self.online = online;
        }
        Ok(())
    }

    fn figures(&mut self) -> Figures {
        let mut figures = self.mapper.figures();
        figures.missed = self.source.lost();
        figures.energy_joules = self.energy.as_mut().ok().and_then(|energy| energy.joules().ok());
        figures.wall_ns = now_ns() - self.began_ns;
        figures.own_cpu_ns = thread_cpu_ns() - self.cpu_began_ns;
        figures
    }

    fn end(mut self) -> Result<Summary> {
        let figures = self.figures();
        self.mapper.end()?;
        self.log.as_mut().map_or(Ok(()), ThreadLog::drain).context("cannot write the log")?;
        let energy_of = self.energy.map_or_else(|error| error.to_string(), |energy| energy.to_string());
        let source = self.source.to_string();
        Ok(Summary { settings: self.settings, source, figures, energy_of, notes: self.notes })
    }
}

fn open_log(settings: &Settings) -> Result<(Option<ThreadLog<BufWriter<File>>>, ThreadAudit)> {
    let Some(path) = &settings.log else { return Ok((None, ThreadAudit::default())) };
    let file = File::create(path).with_context(|| format!("cannot write the log {}", path.display()))?;
    let (log, audit) = ThreadLog::new(BufWriter::new(file));
    Ok((Some(log), audit))
}
