//! Prints the status as text, the most important parts first.

use std::fmt;

use super::{
    ContainerStatus, CpuStatus, FlightStatus, HurryStatus, LaneStatus, NoteStatus, ObservedDay, ObservedStatus,
    OfferStatus, OverlapStatus, ProxyStatus, ServiceStatus, SlowdownStatus, SlowerStatus, Snapshot,
};
use sidelane_hurry::format_threshold;
use sidelane_report::Unit;

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_summary(f)?;
        let is_above = |note: &NoteStatus| self.unmatched_rules.contains(&note.note);
        self.notes.iter().filter(|note| !is_above(note)).try_for_each(|note| write_note(f, note))?;
        let left_out = [
            (self.notes_left_out, "notes"),
            (self.services_left_out, "services"),
            (self.containers_left_out, "containers"),
        ];
        for (count, what) in left_out.into_iter().filter(|(count, _)| *count > 0) {
            writeln!(f, "  ! {count} more {what} are left out, because the answer would be too long")?;
        }
        if !self.services.is_empty() {
            writeln!(f, "\nservices")?;
        }
        for service in &self.services {
            write_service(f, service)?;
            let lanes = self.lanes.iter().filter(|lane| lane.service == service.name);
            lanes.into_iter().try_for_each(|lane| write_offer(f, lane))?;
        }
        if !self.containers.is_empty() {
            writeln!(f, "\ncontainers")?;
        }
        self.containers.iter().try_for_each(|container| write_container(f, container))?;
        if !self.proxies.is_empty() {
            writeln!(f, "\nproxies")?;
        }
        self.proxies.iter().try_for_each(|proxy| write_proxy(f, proxy))?;
        if !self.flights.is_empty() {
            writeln!(f, "\nflight recorders")?;
        }
        self.flights.iter().try_for_each(|flight| write_flight(f, flight))?;
        if !self.hurries.is_empty() {
            writeln!(f, "\nthreads on big and little cores")?;
        }
        self.hurries.iter().try_for_each(|hurry| write_hurry(f, hurry))?;
        writeln!(f, "\nCPUs")?;
        self.cpus.iter().try_for_each(|cpu| write_cpu(f, cpu))?;
        if !self.decisions.is_empty() {
            writeln!(f, "\ndecisions")?;
        }
        self.decisions.iter().try_for_each(|one| writeln!(f, "  {:>8} x {:8} {}", one.count, one.action, one.why))
    }
}

impl Snapshot {
    fn write_summary(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let broken = self.services.iter().filter_map(|service| service.overlap.as_ref()?.broken.as_ref());
        broken.into_iter().try_for_each(|broken| writeln!(f, "{broken}"))?;
        if let Some(first) = self.unmatched_rules.first() {
            let unprotected = if self.services.is_empty() { "; no service is protected" } else { "" };
            writeln!(f, "! {first}{unprotected}")?;
        }
        self.unmatched_rules.iter().skip(1).try_for_each(|rule| writeln!(f, "! {rule}"))?;
        let agent = &self.agent;
        let paused = self.containers.iter().filter(|container| container.state == "paused").count();
        let services = self.services.len() + self.services_left_out;
        let containers = self.containers.len() + self.containers_left_out;
        writeln!(
            f,
            "{services} service(s), {containers} batch container(s), {paused} of them paused; last action: {}",
            agent.why
        )?;
        let threshold = agent.threshold.map_or_else(String::new, |e| format!(", threshold {e}"));
        match agent.policy.as_str() {
            "observe" => writeln!(f, "policy observe: nothing is held, moved or lent")?,
            policy => writeln!(f, "policy {policy}; interference by {}{threshold}", agent.metric)?,
        }
        if let (Some(p50), Some(p99)) = (agent.reaction_p50_ns, agent.reaction_p99_ns) {
            let (p50, p99, count) = (p50 as f64 / 1e3, p99 as f64 / 1e3, agent.reactions_count);
            writeln!(f, "batch off the core after an onset within p50 {p50:.0} µs, p99 {p99:.0} µs ({count} onsets)")?;
        }
        let cpu = agent.cpu_percent.map_or_else(|| "not measured yet".to_owned(), |cpu| format!("{cpu:.2} % of a CPU"));
        let memory = agent.resident_bytes.map_or(0.0, |bytes| bytes as f64 / 1e6);
        let uptime = agent.uptime_s;
        writeln!(
            f,
            "agent {} (process {}) for {uptime:.0} s: {cpu}, {memory:.1} MB; file {}",
            agent.version, agent.pid, agent.config
        )
    }
}

fn write_note(f: &mut fmt::Formatter<'_>, note: &NoteStatus) -> fmt::Result {
    let times = if note.times > 1 { format!(" ({} times)", note.times) } else { String::new() };
    writeln!(f, "  ! {}{times}", note.note)
}

fn write_service(f: &mut fmt::Formatter<'_>, service: &ServiceStatus) -> fmt::Result {
    let ran_on =
        if service.ran_on.is_empty() { "no CPU recently".to_owned() } else { format!("CPUs {}", service.ran_on) };
    let placed = service.placed.as_ref().map_or_else(String::new, |cpus| format!(", placed on {cpus}"));
    write!(
        f,
        "  {}: on {ran_on} (may use {}{placed}), {:.1} % of a CPU",
        service.name, service.allowed, service.used_percent
    )?;
    if let Some(interference) = service.interference {
        write!(f, ", interference {interference:.3}")?;
    }
    if let Some(requests) = &service.requests {
        let us = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), |ns| format!("{:.0} µs", ns as f64 / 1e3));
        let (p50, p99) = (us(requests.latency_p50_ns), us(requests.latency_p99_ns));
        write!(f, "; {} requests, p50 {p50}, p99 {p99}", requests.count)?;
        if let (Some(slo), Some(percent)) = (&requests.slo, requests.in_time_percent) {
            write!(f, ", {percent:.2} % met {slo}")?;
        }
    }
    writeln!(f)?;
    service.slowdown.as_ref().map_or(Ok(()), |slowdown| write_slowdown(f, slowdown))?;
    service.overlap.as_ref().map_or(Ok(()), |overlap| write_overlap(f, overlap))?;
    service.idle_time.iter().try_for_each(|idle_time| writeln!(f, "    {}", idle_time.text))?;
    service.observed.as_ref().map_or(Ok(()), |observed| write_observed(f, observed))
}

fn write_observed(f: &mut fmt::Formatter<'_>, observed: &ObservedStatus) -> fmt::Result {
    let text = |(name, day): (&str, &ObservedDay)| {
        format!("{} of {} {name}", format_long_time(day.lendable_s), format_long_time(day.observed_s))
    };
    let days = ["today (UTC)", "the day before"].into_iter().zip(observed.days.iter().rev());
    let days: Vec<String> = days.map(text).collect();
    if !days.is_empty() {
        writeln!(f, "    lane(s) {} could be lent for {}", observed.lanes, days.join(", "))?;
    }
    observed.recordings.iter().try_for_each(|folder| {
        let count = observed.recordings_count;
        writeln!(f, "    {count} recording(s); what policies would give: `sidelane estimate {folder}`")
    })
}

fn format_long_time(seconds: f64) -> String {
    match seconds {
        ..60.0 => format!("{seconds:.0} s"),
        60.0..3_600.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3_600.0),
    }
}

fn write_offer(f: &mut fmt::Formatter<'_>, lane: &LaneStatus) -> fmt::Result {
    let Some(OfferStatus { share_percent, withdrawn_because, .. }) = &lane.offer else { return Ok(()) };
    let state = withdrawn_because.as_ref().map_or_else(|| "offered".to_owned(), |why| format!("not offered: {why}"));
    writeln!(f, "    lane {} {state}; {share_percent:.0} % of it was open to batch in the last minute", lane.cpu)
}

fn write_overlap(f: &mut fmt::Formatter<'_>, overlap: &OverlapStatus) -> fmt::Result {
    let Some(percent) = overlap.percent else { return Ok(()) };
    let (percent, bound) = (Unit::Percent.human(percent), Unit::Percent.human(overlap.bound_percent));
    writeln!(f, "    overlap of batch in the last minute: {percent} of its time; {bound} allowed")
}

fn write_slowdown(f: &mut fmt::Formatter<'_>, slowdown: &SlowdownStatus) -> fmt::Result {
    let told = [("p50", slowdown.p50), ("p99", slowdown.p99)].into_iter().filter_map(|(name, slower)| {
        let SlowerStatus { percent, low_percent, high_percent } = slower?;
        Some(format!("{name} {percent:+.0} % ({low_percent:+.0} to {high_percent:+.0})"))
    });
    let told: Vec<String> = told.collect();
    let cost = if told.is_empty() { "not known yet: too few requests".to_owned() } else { told.join(", ") };
    let wait = slowdown.min_idle_ns.map_or_else(
        || "batch is kept off its lanes".to_owned(),
        |ns| format!("batch waits until the service is idle for {:.0} µs", ns as f64 / 1e3),
    );
    writeln!(f, "    cost of batch beside it: {cost}; {:.0} % allowed; {wait}", slowdown.allowed_percent)
}

fn write_container(f: &mut fmt::Formatter<'_>, container: &ContainerStatus) -> fmt::Result {
    let ContainerStatus { name, state, cpus, allowed, wanted, wanted_from, .. } = container;
    writeln!(f, "  {name}: {state} on CPUs {cpus} (may use {allowed}, wants {wanted} by {wanted_from})")
}

fn write_proxy(f: &mut fmt::Formatter<'_>, proxy: &ProxyStatus) -> fmt::Result {
    let ProxyStatus { listen, active, clients, in_flight, requests, answered, hedges, hedge_wins, swaps, .. } = proxy;
    let why = proxy.why.as_ref().map_or_else(String::new, |why| format!(" ({why})"));
    let state = if proxy.draining { "drains; " } else { "" };
    writeln!(
        f,
        "  {listen}: {state}active {active}{why}; {clients} client(s), {in_flight} request(s) in flight; {requests} came, \
         {answered} answered, {hedges} hedged, {hedge_wins} of them won; {swaps} swap(s)"
    )?;
    proxy.out_of_service.iter().try_for_each(|server| writeln!(f, "    {server}"))
}

fn write_flight(f: &mut fmt::Formatter<'_>, flight: &FlightStatus) -> fmt::Result {
    let FlightStatus { service, state, slo, recordings, .. } = flight;
    let why = flight.why.as_ref().map_or_else(String::new, |why| format!(" ({why})"));
    let last = flight.last.as_ref().map_or_else(String::new, |page| format!(", the last in {page}"));
    writeln!(f, "  {service}: {state}{why}; {recordings} recording(s) of what broke {slo}{last}")
}

fn write_hurry(f: &mut fmt::Formatter<'_>, hurry: &HurryStatus) -> fmt::Result {
    let HurryStatus { service, state, sizes, threshold_from, .. } = hurry;
    let why = hurry.why.as_ref().map_or_else(String::new, |why| format!(" ({why})"));
    write!(f, "  {service}: {state}{why}; {sizes}")?;
    if let (Some(threads), Some(moved), Some(requests)) = (hurry.threads, hurry.moved, hurry.requests) {
        let refused = hurry.refused.filter(|refused| *refused > 0);
        let refused = refused.map_or_else(String::new, |refused| format!(", {refused} move(s) refused"));
        write!(f, "; {threads} thread(s), {moved} of {requests} request(s) moved{refused}")?;
    }
    if let Some(threshold_ns) = hurry.threshold_ns {
        write!(f, "; threshold {} ({threshold_from})", format_threshold(threshold_ns))?;
    }
    let cost = hurry.own_percent.map_or_else(String::new, |percent| format!("; {percent:.2} % of a CPU"));
    writeln!(f, "{cost}")
}

fn write_cpu(f: &mut fmt::Formatter<'_>, cpu: &CpuStatus) -> fmt::Result {
    let CpuStatus { cpu: number, owner, containers_count, busy_percent, service_percent, batch_percent, .. } = cpu;
    let reserved = if cpu.reserved { ", reserved" } else { "" };
    let interference = cpu.interference.map_or_else(String::new, |value| format!(", interference {value:.3}"));
    writeln!(
        f,
        "  {number:>4}: busy {busy_percent:5.1} %, services {service_percent:5.1} %, batch {batch_percent:5.1} %; \
         {containers_count} container(s); owner: {owner}{reserved}{interference}"
    )
}

#[cfg(test)]
mod tests {
    use super::super::{AgentStatus, IdleTimeStatus};
    use super::*;

    #[test]
    fn first_line_of_the_status_is_the_summary() {
        let container = ContainerStatus { name: "/batch/a".into(), state: "paused".into(), ..Default::default() };
        let agent = AgentStatus { why: "interference".into(), policy: "holmes".into(), ..Default::default() };
        let snapshot = Snapshot { agent, containers: vec![container], ..Default::default() };
        let shown = snapshot.to_string();
        let first = shown.lines().next().unwrap();
        assert_eq!(first, "0 service(s), 1 batch container(s), 1 of them paused; last action: interference");
        assert!(shown.contains("  /batch/a: paused"), "{shown}");
    }

    #[test]
    fn rule_that_matches_nothing_is_the_first_line_of_the_status() {
        let rule = "service redis: no process is found by port 1".to_owned();
        let notes = vec![NoteStatus { note: rule.clone(), times: 1 }];
        let shown = Snapshot { notes, unmatched_rules: vec![rule.clone()], ..Default::default() }.to_string();
        assert!(shown.starts_with(&format!("! {rule}; no service is protected\n0 service(s), ")), "{shown}");
        assert_eq!(shown.matches(&rule).count(), 1, "{shown}");
    }

    #[test]
    fn proxies_and_flight_recorders_have_a_line_each() {
        let [listen, active] = ["127.0.0.1:1", "127.0.0.1:2"].map(str::to_owned);
        let out_of_service = vec!["127.0.0.1:3 is out of service".to_owned()];
        let proxy =
            ProxyStatus { listen, active, requests: 5, answered: 4, hedges: 1, out_of_service, ..Default::default() };
        let draining = ProxyStatus { draining: true, out_of_service: Vec::new(), ..proxy.clone() };
        let [service, state, slo] = ["redis", "records", "p99=5ms"].map(str::to_owned);
        let flight =
            FlightStatus { service, state, slo, recordings: 1, last: Some("/a.html".into()), ..Default::default() };
        let shown =
            Snapshot { proxies: vec![proxy, draining], flights: vec![flight], ..Default::default() }.to_string();
        let expected = "
proxies
  127.0.0.1:1: active 127.0.0.1:2; 0 client(s), 0 request(s) in flight; 5 came, 4 answered, 1 hedged, 0 of them won; \
                        0 swap(s)
    127.0.0.1:3 is out of service
  127.0.0.1:1: drains; active 127.0.0.1:2; 0 client(s), 0 request(s) in flight; 5 came, 4 answered, 1 hedged, 0 of \
                        them won; 0 swap(s)

flight recorders
  redis: records; 1 recording(s) of what broke p99=5ms, the last in /a.html
";
        assert!(shown.contains(expected), "{shown}");
    }

    #[test]
    fn mappers_have_a_line_each_with_what_is_known() {
        let sizes = "big CPUs 0-3 and little CPUs 4-7 (given)";
        let [service, state, sizes, learnt] = ["web", "maps", sizes, "learnt"].map(str::to_owned);
        let begins =
            HurryStatus { service, state: "begins".into(), sizes, threshold_from: learnt, ..Default::default() };
        let maps = HurryStatus {
            state,
            threads: Some(8),
            requests: Some(90),
            moved: Some(7),
            threshold_ns: Some(50_000_000),
            own_percent: Some(0.25),
            ..begins.clone()
        };
        let refused = HurryStatus { refused: Some(2), ..maps.clone() };
        let shown = Snapshot { hurries: vec![begins, maps, refused], ..Default::default() }.to_string();
        let expected = "
threads on big and little cores
  web: begins; big CPUs 0-3 and little CPUs 4-7 (given)
  web: maps; big CPUs 0-3 and little CPUs 4-7 (given); 8 thread(s), 7 of 90 request(s) moved; threshold 50.0 ms \
                        (learnt); 0.25 % of a CPU
  web: maps; big CPUs 0-3 and little CPUs 4-7 (given); 8 thread(s), 7 of 90 request(s) moved, 2 move(s) refused; \
                        threshold 50.0 ms (learnt); 0.25 % of a CPU
";
        assert!(shown.contains(expected), "{shown}");
    }

    #[test]
    fn cost_of_batch_is_a_line_below_its_service() {
        let slower = SlowerStatus { percent: 1.4, low_percent: -0.6, high_percent: 3.0 };
        let measured =
            SlowdownStatus { p50: Some(slower), allowed_percent: 5.0, min_idle_ns: Some(32_000), ..Default::default() };
        let unknown = SlowdownStatus { allowed_percent: 5.0, ..Default::default() };
        let of = |slowdown| ServiceStatus { name: "web".into(), slowdown: Some(slowdown), ..Default::default() };
        let shown = Snapshot { services: vec![of(measured), of(unknown)], ..Default::default() }.to_string();
        let lines: Vec<&str> = shown.lines().filter(|line| line.contains("cost of batch")).collect();
        let expected = [
            "    cost of batch beside it: p50 +1 % (-1 to +3); 5 % allowed; batch waits until the service is idle for \
             32 µs",
            "    cost of batch beside it: not known yet: too few requests; 5 % allowed; batch is kept off its lanes",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn uses_of_the_idle_time_are_a_line_below_the_service() {
        let text = "the service was idle for 43 % of the time: batch 90.2 %, client 9.8 %";
        let idle_time = IdleTimeStatus { text: text.into(), ..Default::default() };
        let service = ServiceStatus { idle_time: Some(idle_time), ..Default::default() };
        let shown = Snapshot { services: vec![service], ..Default::default() }.to_string();
        assert!(shown.contains(&format!("\n    {text}\n")), "{shown}");
    }

    #[test]
    fn what_could_be_lent_is_below_its_service() {
        let day = |begin_unix_s, lendable_s| ObservedDay { begin_unix_s, observed_s: 36_000.0, lendable_s };
        let mut observed = ObservedStatus {
            lanes: "1".into(),
            days: vec![day(0, 27_000.0), day(86_400, 18_000.0)],
            ..Default::default()
        };
        let shown = |observed: &ObservedStatus| {
            let service = ServiceStatus { observed: Some(observed.clone()), ..Default::default() };
            let agent = AgentStatus { policy: "observe".into(), ..Default::default() };
            Snapshot { agent, services: vec![service], ..Default::default() }.to_string()
        };
        let text = shown(&observed);
        let days = "\n    lane(s) 1 could be lent for 5.0 h of 10.0 h today (UTC), 7.5 h of 10.0 h the day before\n";
        assert!(text.contains(days) && text.contains("policy observe: nothing is held"), "{text}");
        assert!(!text.contains("recording(s)"), "{text}");
        (observed.recordings_count, observed.recordings) = (2, Some("/var/lib/sidelane/web".into()));
        let text = shown(&observed);
        assert!(text.contains("2 recording(s); what policies would give: `sidelane estimate /var/lib/sidelane/web`"));
    }

    #[test]
    fn offer_of_a_lane_is_a_line_below_its_service() {
        let offer = OfferStatus { lent: true, share_percent: 41.6, withdrawn_because: None };
        let why = Some("the service leaves too little of the lane".to_owned());
        let withdrawn = OfferStatus { lent: false, share_percent: 4.0, withdrawn_because: why };
        let lane = |cpu, offer| LaneStatus { cpu, service: "web".into(), offer: Some(offer), ..Default::default() };
        let service = ServiceStatus { name: "web".into(), ..Default::default() };
        let lanes = vec![lane(1, offer), lane(3, withdrawn), LaneStatus { offer: None, ..lane(0, Default::default()) }];
        let shown = Snapshot { services: vec![service], lanes, ..Default::default() }.to_string();
        let lines: Vec<&str> = shown.lines().filter(|line| line.starts_with("    lane ")).collect();
        let expected = [
            "    lane 1 offered; 42 % of it was open to batch in the last minute",
            "    lane 3 not offered: the service leaves too little of the lane; 4 % of it was open to batch in the \
             last minute",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn a_broken_promise_is_the_first_line() {
        let of = |broken: Option<&str>| ServiceStatus {
            overlap: Some(OverlapStatus { percent: Some(12.0), bound_percent: 1.0, broken: broken.map(str::to_owned) }),
            ..Default::default()
        };
        let shown = |service| Snapshot { services: vec![service], ..Default::default() }.to_string();
        let broken = shown(of(Some("promise broken: batch ran beside redis")));
        assert!(broken.starts_with("promise broken: batch ran beside redis\n1 service(s)"), "{broken}");
        assert!(
            broken.contains("    overlap of batch in the last minute: 12.0 % of its time; 1.0 % allowed\n"),
            "{broken}"
        );
        assert!(shown(of(None)).starts_with("1 service(s)"));
        assert!(!shown(ServiceStatus::default()).contains("overlap"));
    }

    #[test]
    fn snapshot_is_read_as_it_was_written() {
        let snapshot =
            Snapshot { services: vec![ServiceStatus { name: "a".into(), ..Default::default() }], ..Default::default() };
        let text = serde_json::to_string(&snapshot).unwrap();
        assert_eq!(serde_json::from_str::<Snapshot>(&text).unwrap(), snapshot);
    }
}
