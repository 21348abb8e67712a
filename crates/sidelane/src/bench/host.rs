//! What the host of a virtual machine took while a bench ran.

use std::fs;

/// All CPUs' time so far, in the kernel's steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Spent {
    stolen: u64,
    all: u64,
}

impl Spent {
    fn now() -> Self {
        Self::parse(&fs::read_to_string("/proc/stat").unwrap_or_default()).unwrap_or_default()
    }

    /// From the text of /proc/stat: `cpu user nice system idle iowait irq softirq steal …`.
    fn parse(stat: &str) -> Option<Self> {
        const STEAL: usize = 7;
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let fields: Vec<u64> = line.split_whitespace().take(STEAL + 1).filter_map(|field| field.parse().ok()).collect();
        Some(Self { stolen: *fields.get(STEAL)?, all: fields.iter().sum() })
    }
}

/// The host, watched since a moment.
pub struct Host(Spent);

impl Host {
    /// Watches from now on.
    pub fn watch() -> Self {
        Self(Spent::now())
    }

    /// What it took of the CPUs' time since then; `None` where the kernel does not tell.
    pub fn stolen_percent(&self) -> Option<f64> {
        percent(self.0, Spent::now())
    }
}

fn percent(then: Spent, now: Spent) -> Option<f64> {
    let all = now.all.checked_sub(then.all).filter(|all| *all > 0)?;
    Some(now.stolen.saturating_sub(then.stolen) as f64 * 100.0 / all as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_is_the_eighth_number() {
        let stat = "cpu  10 0 20 60 0 0 5 5 7 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        let now = Spent::parse(stat).unwrap();
        assert_eq!(now, Spent { stolen: 5, all: 100 });
        assert_eq!(percent(Spent::default(), now), Some(5.0));
        assert_eq!(percent(now, now), None, "no time has passed");
        assert_eq!(Spent::parse("cpu 1 2 3\n"), None);
    }
}
