//! Final result of `sidelane hazards`, as text.

use std::fmt;
use std::time::Duration;

use sidelane_host::clock::now_ns;
use sidelane_policy::hedge::Hazard;

use super::counts::ServerCounts;
use super::options::HazardOptions;

/// Final result.
#[derive(Clone, Debug)]
pub struct Summary {
    servers: Vec<(String, ServerCounts, Duration)>,
}

impl Summary {
    pub(super) fn new(options: &HazardOptions, counts: Vec<ServerCounts>) -> Self {
        let now = now_ns();
        let server = |(name, counts): (String, ServerCounts)| {
            let drained = counts.drained(now);
            (name, counts, drained)
        };
        let names = options.servers.iter().map(|server| server.name.clone());
        Self { servers: names.zip(counts).map(server).collect() }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, counts, drained) in &self.servers {
            let begun = Hazard::ALL.into_iter().filter(|hazard| counts.begun[*hazard as usize] > 0);
            let begun: Vec<String> =
                begun.map(|hazard| format!("{} {hazard}", counts.begun[hazard as usize])).collect();
            let hazards = if begun.is_empty() { "no hazard".to_owned() } else { begun.join(", ") };
            let drains = match counts.drains {
                0 => "never drained".to_owned(),
                1 => format!("drained once, for {drained:.1?}"),
                count => format!("drained {count} times, {drained:.1?} in all"),
            };
            let cut = match counts.cut {
                0 => String::new(),
                cut => format!("; {cut} requests cut"),
            };
            writeln!(f, "{name}   {hazards}; {drains}{cut}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_says_what_happened_to_each_server() {
        let mut busy = ServerCounts::new(100);
        busy.set_hazards([Hazard::JvmGc, Hazard::Safepoint].into_iter().collect());
        busy.set_share(0, 0);
        busy.set_share(100, 25_300_000);
        let servers = vec!["web/s1=127.0.0.1:1".parse().unwrap(), "web/s2=127.0.0.1:2".parse().unwrap()];
        let options = HazardOptions { servers, ..HazardOptions::default() };
        let told = Summary::new(&options, vec![busy, ServerCounts::new(100)]).to_string();
        assert_eq!(
            told,
            "web/s1   1 jvm-gc, 1 safepoint; drained once, for 25.3ms\nweb/s2   no hazard; never drained\n"
        );
    }
}
