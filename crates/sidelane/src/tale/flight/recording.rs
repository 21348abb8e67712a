//! One recording: the last seconds as a log and a page.

use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, anyhow};

use sidelane_report::html;
use sidelane_tale::record::{Kinds, Record};

use super::super::bound::Bound;
use super::super::log::{LogEnd, LogHead, LogWriter};
use super::super::study::{Ended, Study};
use super::super::terminal::headline;
use super::super::told::Told;
use super::super::words::Names;
use super::event::{Event, Tell};

/// What a flight recorder held when the objective broke.
pub(super) struct Recording {
    pub records: Vec<Record>,
    pub service: String,
    pub bound: Bound,
    /// What was slow, where no objective was given.
    pub limit_ns: Option<u64>,
    pub recorded: Kinds,
    pub names: Names,
    pub lost: u64,
}

/// A recording that is being written, on a thread of its own: records go on to be read meanwhile.
pub(super) struct Writing(JoinHandle<Result<()>>);

impl Writing {
    /// Waits for it.
    pub(super) fn join(self) -> Result<()> {
        self.0.join().map_err(|_| anyhow!("the thread that wrote the recording ended early"))?
    }
}

impl Recording {
    /// Writes log and page into `dir`, beside whatever else goes on, and says where they are.
    pub(super) fn write_aside(self, dir: &Path, tell: Tell) -> Result<Writing> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let name = dir.join(format!("sidelane-trace-{}-{}", as_a_part_of_a_path(&self.service), since.as_secs()));
        let write = move || self.write(&name, &tell);
        Ok(Writing(thread::Builder::new().name("sidelane-record".into()).spawn(write)?))
    }

    fn write(self, name: &Path, tell: &Tell) -> Result<()> {
        let with = |ending: &str| PathBuf::from(format!("{}.{ending}", name.display()));
        let (log, page) = (with("log"), with("html"));
        let told = self.study(&log)?;
        html::write_page(&told.to_result(), &page)?;
        tell(Event::Diagnosed(headline(&told)));
        tell(Event::Written { page, log });
        Ok(())
    }

    /// Writes the log, and works out what it tells.
    fn study(self, path: &Path) -> Result<Told> {
        let bound = match (self.bound, self.limit_ns) {
            (Bound::P99, Some(limit_ns)) => Bound::Limit(Duration::from_nanos(limit_ns)),
            (bound, _) => bound,
        };
        let at_ns = |record: Option<&Record>| record.map_or(0, |record| record.at_ns);
        let (begin_ns, end_ns) = (at_ns(self.records.first()), at_ns(self.records.last()));
        let head = LogHead {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            service: self.service.clone(),
            slo: Some(bound.to_string()),
            kinds: LogHead::numbers(self.recorded),
            begin_ns,
        };
        let end = LogEnd { wall_s: (end_ns - begin_ns) as f64 / 1e9, lost: self.lost, cpu_percent: None };
        let mut log = LogWriter::create(path, &head)?;
        let mut study = Study::new(self.recorded, bound, begin_ns);
        for record in &self.records {
            log.record(record);
            study.add(record, &mut |_| ());
        }
        let notes = log.end(&self.names, &end).into_iter().collect();
        Ok(study.end(Ended { service: self.service, end, names: self.names, notes }))
    }
}

/// A service's name, as it can be in the name of a file.
pub fn as_a_part_of_a_path(service: &str) -> String {
    const CHARACTERS_MAX: usize = 64;
    let plain = |letter: char| if letter.is_ascii_alphanumeric() || letter == '.' { letter } else { '-' };
    service.chars().take(CHARACTERS_MAX).map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_services_are_plain_in_names_of_files() {
        assert_eq!(as_a_part_of_a_path("cgroup:/a/redis@1.service"), "cgroup--a-redis-1.service");
        assert_eq!(as_a_part_of_a_path(&"ä".repeat(100)), "-".repeat(64));
    }
}
