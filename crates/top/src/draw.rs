//! Draws a state of the view. Nothing is read or changed here.
//!
//! A strip shows a lane over time, one column for each frame. A column has the two longest uses of that time, in the
//! order of [`Use`] from the bottom: the height of a block is the share of the lower one.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Widget};
use sidelane_agent::status::{ContainerStatus, RequestStatus, ServiceStatus, SlowdownStatus};
use sidelane_report::Unit;

use crate::view::{Connection, Lane, Mix, Use, View};

/// Narrowest column of lanes: a label, a short strip, and a figure.
const COLUMN_MIN: u16 = 30;
/// Width of a column from which each use has a figure.
const FIGURES_MIN: u16 = 74;
const FIGURES_WIDTH: u16 = 34;
/// Most rows of services, of batch and of notes on a high terminal.
const ROWS_MAX: usize = 12;
const NOTES_MAX: usize = 3;
/// Blocks of a strip by the share of the lower use, in eighths.
const BLOCKS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
/// Share of a use from which it is visible in a strip.
const VISIBLE: f64 = 0.004;

/// Colours of the view, or their absence.
#[derive(Clone, Copy, Debug)]
pub struct Paint {
    /// Whether colours are used. Without them, characters tell uses apart.
    pub has_color: bool,
}

impl Paint {
    fn fg(self, color: u8) -> Style {
        if self.has_color { Style::new().fg(Color::Indexed(color)) } else { Style::new() }
    }

    fn color_of(of: Use) -> u8 {
        match of {
            Use::Request => 74,
            Use::Batch => 108,
            Use::Other => 246,
            Use::Held => 179,
            Use::Stolen => 168,
            Use::Idle => 240,
        }
    }

    fn of_use(self, of: Use) -> Style {
        self.fg(Self::color_of(of))
    }

    fn title(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    fn quiet(self) -> Style {
        if self.has_color { self.fg(245) } else { Style::new().add_modifier(Modifier::DIM) }
    }

    fn good(self) -> Style {
        self.fg(108)
    }

    fn warning(self) -> Style {
        self.fg(179).add_modifier(Modifier::BOLD)
    }

    fn bad(self) -> Style {
        self.fg(168).add_modifier(Modifier::BOLD)
    }

    /// Returns the character of a use without colours.
    fn letter(of: Use) -> &'static str {
        match of {
            Use::Request => "#",
            Use::Batch => "=",
            Use::Other => "+",
            Use::Held => "-",
            Use::Stolen => "!",
            Use::Idle => "·",
        }
    }

    /// Returns the column of a strip.
    fn cell(self, mix: Option<Mix>) -> (&'static str, Style) {
        let Some(mix) = mix else { return (" ", Style::new()) };
        let (low, high, share) = mix.two_longest();
        if !self.has_color {
            return (Self::letter(if share >= 0.5 { low } else { high }), Style::new());
        }
        let eighths = (share * 8.0).round().clamp(0.0, 8.0) as usize;
        let eighths = if eighths == 0 && share > VISIBLE { 1 } else { eighths };
        let style = self.of_use(low);
        let is_mixed = eighths < 8 && high != Use::Idle;
        (BLOCKS[eighths], if is_mixed { style.bg(Color::Indexed(Self::color_of(high))) } else { style })
    }
}

/// Draws the view into the whole area.
pub fn draw(view: &View, paint: Paint, area: Rect, buffer: &mut Buffer) {
    let mut page = Page { view, paint, area, buffer, y: area.y };
    page.draw_header();
    let rows = page.share_out_rows();
    page.draw_broken_promises();
    page.draw_lanes(rows.lanes);
    page.draw_services(rows.services);
    page.draw_batch(rows.batch);
    page.draw_decisions(rows.decisions);
    page.draw_notes(rows.notes);
    page.draw_footer();
    if view.shows_help {
        draw_help(paint, area, buffer);
    }
}

/// Numbers of rows for each part.
#[derive(Clone, Copy, Debug, Default)]
struct Rows {
    lanes: usize,
    services: usize,
    batch: usize,
    decisions: usize,
    notes: usize,
}

struct Page<'a> {
    view: &'a View,
    paint: Paint,
    area: Rect,
    buffer: &'a mut Buffer,
    y: u16,
}

impl Page<'_> {
    /// Shares out the rows of the terminal. Each part gets a few; lanes get what is left, then decisions.
    fn share_out_rows(&self) -> Rows {
        let status = &self.view.status;
        let height = usize::from(self.area.height);
        // A part has a title and an empty row.
        let part = |rows: usize| if rows == 0 { 0 } else { rows + 2 };
        let few = (height / 8).clamp(1, ROWS_MAX);
        let services = status.services.len().min(few);
        let batch = status.containers.len().min(few);
        let notes = status.notes.len().min(NOTES_MAX).min(height / 12);
        let broken = broken_promises(self.view).count();
        // The header has a row below it. The empty row of the last part becomes the footer.
        let fixed = 2 + part(services) + part(batch) + part(notes) + broken;
        let left = height.saturating_sub(fixed);
        let known = status.last_decisions.len();
        let decisions_min = known.min(few);
        let wanted = self.view.sorted_lanes().len();
        let lanes = wanted.min(left.saturating_sub(part(decisions_min) + 2)).max(wanted.min(1));
        let decisions = known.min(left.saturating_sub(part(lanes) + 2));
        Rows { lanes, services, batch, decisions, notes }
    }

    fn bottom(&self) -> u16 {
        self.area.bottom().saturating_sub(1)
    }

    /// Draws a row, and goes to the next one. Rows below the last one are left out.
    fn row<'s>(&mut self, spans: impl IntoIterator<Item = Span<'s>>) {
        if self.y < self.bottom() {
            let line = Line::from_iter(spans);
            self.buffer.set_line(self.area.x, self.y, &line, self.area.width);
            self.y += 1;
        }
    }

    fn width(&self) -> usize {
        usize::from(self.area.width)
    }

    /// Draws the title of a part, with what is left out of it.
    fn title(&mut self, name: &'static str, left_out: usize, columns: Vec<Span<'static>>) {
        let more = if left_out > 0 { format!("  {left_out} more") } else { String::new() };
        let width = columns.first().map_or(0, |_| NAME_WIDTH).max(1);
        let title = fit(&format!("{name}{more}"), width.max(display_width(name) + display_width(&more)));
        self.row([Span::styled(title, self.paint.title())].into_iter().chain(columns));
    }

    fn draw_header(&mut self) {
        let (paint, view) = (self.paint, self.view);
        let agent = &view.status.agent;
        let parts = match (&agent.run, view.is_replay) {
            _ if agent.pid == 0 => vec![view.source.clone()],
            (Some(batch), _) => vec![format!("run {batch}"), format!("up {}", short_time(agent.uptime_s))],
            (None, _) => vec![
                format!("agent {}", agent.version),
                agent.policy.clone(),
                format!("up {}", short_time(agent.uptime_s)),
            ],
        };
        let (mark, style) = match &view.connection {
            _ if view.is_paused => ("‖ paused".to_owned(), paint.warning()),
            Connection::Ended => ("■ end of the recording".to_owned(), paint.quiet()),
            Connection::Live if view.is_replay => {
                (format!("▸ replay {}", short_time(view.now_ms() as f64 / 1e3)), paint.good())
            }
            Connection::Live => ("● live".to_owned(), paint.good()),
            Connection::Away { since_ms, .. } => {
                let seconds = view.now_ms().saturating_sub(*since_ms) as f64 / 1e3;
                (format!("○ away {}", short_time(seconds)), paint.bad())
            }
        };
        let mark = format!("{mark} ");
        let room = self.width().saturating_sub(display_width(&mark) + 1);
        let name = " sidelane top";
        let text = cut(&format!("   {}", parts.join(" · ")), room.saturating_sub(display_width(name)));
        let gap = room.saturating_sub(display_width(name) + display_width(&text)) + 1;
        self.row([
            Span::styled(name, paint.title()),
            Span::styled(text, paint.quiet()),
            Span::raw(" ".repeat(gap)),
            Span::styled(mark, style),
        ]);
        match &view.connection {
            Connection::Away { why, .. } => {
                let why = cut(&format!(" {why}; trying again"), self.width());
                self.row([Span::styled(why, paint.warning())]);
            }
            Connection::Live | Connection::Ended => self.row([]),
        }
    }

    fn draw_broken_promises(&mut self) {
        for broken in broken_promises(self.view) {
            let text = cut(&format!(" {broken}"), self.width());
            self.row([Span::styled(text, self.paint.bad())]);
        }
    }

    fn draw_lanes(&mut self, rows: usize) {
        let lanes = self.view.sorted_lanes();
        if lanes.is_empty() || rows == 0 {
            return;
        }
        let columns_max = usize::from(self.area.width / COLUMN_MIN).max(1);
        let columns = lanes.len().div_ceil(rows).clamp(1, columns_max);
        let rows = lanes.len().div_ceil(columns).min(rows);
        let shown = (rows * columns).min(lanes.len());
        let column_width = (self.area.width.saturating_sub(1 + 2 * (columns as u16 - 1))) / columns as u16;
        let layout = LaneLayout::of_column(column_width);
        let name = if self.view.status.lanes.is_empty() { " CPUs" } else { " lanes" };
        let (paint, span_ms) = (self.paint, self.view.span_ms(usize::from(layout.strip)));
        let more = if shown < lanes.len() { format!("  {} more", lanes.len() - shown) } else { String::new() };
        let mut legend = vec![Span::styled(format!("{name}{more}"), paint.title())];
        let mut left = self.width().saturating_sub(display_width(name) + display_width(&more));
        for of in Use::ALL.into_iter().filter(|of| *of != Use::Idle || !paint.has_color) {
            let mark = if paint.has_color { "■" } else { Paint::letter(of) };
            let name = format!(" {}", of.name());
            let Some(rest) = left.checked_sub(3 + display_width(&name)) else { break };
            legend.extend([Span::raw("  "), Span::styled(mark, paint.of_use(of)), Span::styled(name, paint.quiet())]);
            left = rest;
        }
        let span = format!("  {} ", short_time(span_ms as f64 / 1e3));
        if left >= display_width(&span) {
            legend.push(Span::styled(" ".repeat(left - display_width(&span)) + &span, paint.quiet()));
        }
        self.row(legend);
        let (top, bottom) = (self.y, self.bottom());
        for (index, lane) in lanes.iter().take(shown).enumerate() {
            let (column, y) = (index / rows, top + (index % rows) as u16);
            let x = self.area.x + 1 + column as u16 * (column_width + 2);
            if y < bottom {
                draw_lane(lane, paint, &layout, (x, y), self.buffer);
            }
        }
        self.y = (top + rows as u16).min(bottom);
        self.row([]);
    }

    fn draw_services(&mut self, rows: usize) {
        if rows == 0 {
            return;
        }
        let (paint, width) = (self.paint, self.width());
        let mut columns = service_columns(width);
        columns.retain(|(_, _, cell)| {
            self.view.status.services.iter().any(|service| !cell(self.view, service, paint).0.is_empty())
        });
        let titles = columns.iter().map(|(name, width, _)| Span::styled(right(name, *width), paint.quiet())).collect();
        self.title(" services", self.view.status.services.len() - rows, titles);
        let mut services: Vec<&ServiceStatus> = self.view.status.services.iter().collect();
        if self.view.sort == crate::view::Sort::Service {
            services.sort_by(|one, other| other.used_percent.total_cmp(&one.used_percent));
        }
        for service in services.into_iter().take(rows) {
            let mut spans = vec![Span::raw(format!(" {}", fit(&service.name, NAME_WIDTH - 1)))];
            match &service.requests_missing {
                Some(why) => {
                    let text = cut(&format!("  no request figures: {why}"), width.saturating_sub(NAME_WIDTH));
                    spans.push(Span::styled(text, paint.quiet()));
                }
                None => spans.extend(columns.iter().map(|(_, width, cell)| {
                    let (text, style) = cell(self.view, service, paint);
                    Span::styled(right(&text, *width), style)
                })),
            }
            self.row(spans);
        }
        self.row([]);
    }

    fn draw_batch(&mut self, rows: usize) {
        if rows == 0 {
            return;
        }
        let (paint, view) = (self.paint, self.view);
        let is_wide = self.width() >= 76;
        let mut titles = vec![("state", 9), ("CPUs", 9), ("CPU now", 10), ("CPU time", 11)];
        if is_wide {
            titles.push(("", METER_WIDTH + 2));
        }
        let titles = titles.iter().map(|(name, width)| Span::styled(right(name, *width), paint.quiet())).collect();
        self.title(" batch", view.status.containers.len() - rows, titles);
        let mut batch: Vec<&ContainerStatus> = view.status.containers.iter().collect();
        if view.sort == crate::view::Sort::Batch {
            let used = |one: &ContainerStatus| view.container_cpus(&one.name).unwrap_or(0.0);
            batch.sort_by(|one, other| used(other).total_cmp(&used(one)));
        }
        for one in batch.into_iter().take(rows) {
            let used = view.container_cpus(&one.name);
            let state = if one.state == "paused" { paint.warning() } else { Style::new() };
            let time = Unit::Ns.human_or_missing(one.cpu_ns.map(|ns| ns as f64));
            let mut spans = vec![
                Span::raw(format!(" {}", fit_end(&one.name, NAME_WIDTH - 1))),
                Span::styled(right(&one.state, 9), state),
                Span::raw(right(&one.cpus, 9)),
                Span::styled(
                    right(&used.map_or_else(String::new, |cpus| format!("{cpus:.2}")), 10),
                    paint.of_use(Use::Batch),
                ),
                Span::raw(right(&time, 11)),
            ];
            if is_wide {
                let share = used.unwrap_or(0.0) / f64::from(one.wanted.max(1));
                let full = ((share * METER_WIDTH as f64).round() as usize).min(METER_WIDTH);
                let (full_text, rest) = ("━".repeat(full), "┄".repeat(METER_WIDTH - full));
                spans.extend([
                    Span::styled(format!("  {full_text}"), paint.of_use(Use::Batch)),
                    Span::styled(rest, paint.of_use(Use::Idle)),
                ]);
            }
            self.row(spans);
        }
        self.row([]);
    }

    fn draw_decisions(&mut self, rows: usize) {
        if rows == 0 {
            return;
        }
        let (paint, width) = (self.paint, self.width());
        let action_width = (width / 2).saturating_sub(10).clamp(16, 48);
        self.title(" last decisions", 0, Vec::new());
        for decision in self.view.status.last_decisions.iter().rev().take(rows) {
            let why = cut(&decision.why, width.saturating_sub(action_width + 15));
            self.row([
                Span::styled(format!("{} ago  ", right(&short_time(decision.ago_s), 8)), paint.quiet()),
                Span::raw(fit(&decision.action, action_width)),
                Span::styled(format!(" {why}"), paint.quiet()),
            ]);
        }
        self.row([]);
    }

    fn draw_notes(&mut self, rows: usize) {
        if rows == 0 {
            return;
        }
        let notes = &self.view.status.notes;
        self.title(" notes", notes.len() + self.view.status.notes_left_out - rows, Vec::new());
        for note in notes.iter().take(rows) {
            let text = cut(&format!("  ! {}", note.note), self.width());
            self.row([Span::styled(text, self.paint.warning().remove_modifier(Modifier::BOLD))]);
        }
    }

    fn draw_footer(&mut self) {
        let paint = self.paint;
        let line = match &self.view.message {
            Some(message) => Line::from(Span::styled(cut(&format!(" {message}"), self.width()), paint.title())),
            None => {
                let sort = format!("sort: {}", self.view.sort.name());
                let pause = if self.view.is_paused { "go on" } else { "pause" };
                let keys = [("?", "help"), ("s", &sort), ("p", pause), ("t", "trace"), ("y", "copy"), ("q", "quit")];
                let spans = keys.into_iter().flat_map(|(key, name)| {
                    let gap = if self.width() >= 76 { "   " } else { "  " };
                    [
                        Span::styled(format!(" {key}"), paint.title()),
                        Span::styled(format!(" {name}{gap}"), paint.quiet()),
                    ]
                });
                Line::from_iter(spans)
            }
        };
        if self.area.height > 0 {
            self.buffer.set_line(self.area.x, self.bottom(), &line, self.area.width);
        }
    }
}

fn broken_promises(view: &View) -> impl Iterator<Item = &str> {
    view.status.services.iter().filter_map(|service| service.overlap.as_ref()?.broken.as_deref())
}

/// Widths of the parts of a lane's row.
struct LaneLayout {
    label: u16,
    strip: u16,
    /// Width of the figures; 0: only the figure of the lane's own use.
    figures: u16,
}

impl LaneLayout {
    fn of_column(width: u16) -> Self {
        let label = if width >= 50 { 16 } else { 11 };
        let figures = if width >= FIGURES_MIN { FIGURES_WIDTH } else { 0 };
        let right = if figures > 0 { figures + 1 } else { 6 };
        Self { label, strip: width.saturating_sub(label + right), figures }
    }
}

fn draw_lane(lane: &Lane, paint: Paint, layout: &LaneLayout, (x, y): (u16, u16), buffer: &mut Buffer) {
    let (own, name) = match lane.role.as_str() {
        "request" => (Use::Request, lane.service.as_str()),
        "batch" => (Use::Batch, "batch"),
        _ => (Use::Batch, ""),
    };
    let label = format!("{:>3} {}", lane.cpu, fit(name, usize::from(layout.label) - 5));
    let style = if lane.role.is_empty() { paint.quiet() } else { paint.of_use(own) };
    buffer.set_stringn(x, y, label, usize::from(layout.label), style);
    let (strip, start) = (usize::from(layout.strip), x + layout.label);
    let shown = lane.past.len().min(strip);
    for (index, mix) in lane.past.iter().skip(lane.past.len() - shown).enumerate() {
        let (symbol, style) = paint.cell(*mix);
        // A cell alone: a text would be split into characters and measured, which costs more than all the rest.
        if let Some(cell) = buffer.cell_mut((start + (strip - shown + index) as u16, y)) {
            cell.set_symbol(symbol).set_style(style);
        }
    }
    let (recent, end) = (lane.recent(), start + layout.strip);
    if recent.sum() == 0 {
        return;
    }
    if layout.figures == 0 {
        let text = right(&format!("{:.0} %", recent.share(own) * 100.0), 6);
        buffer.set_stringn(end, y, text, 6, paint.of_use(own));
        return;
    }
    let mut uses: Vec<Use> = Use::ALL.into_iter().filter(|of| recent.share(*of) >= 0.005).collect();
    uses.sort_by_key(|of| *of != own);
    let mut spans = Vec::new();
    let mut left = usize::from(layout.figures) + 1;
    for of in uses {
        let (figure, name) = (format!("  {:.0} %", recent.share(of) * 100.0), format!(" {}", of.name()));
        let Some(rest) = left.checked_sub(figure.len() + name.len()) else { break };
        spans.extend([Span::styled(figure, paint.of_use(of)), Span::styled(name, paint.quiet())]);
        left = rest;
    }
    buffer.set_line(end, y, &Line::from(spans), layout.figures + 1);
}

/// Width of the names of services and batch.
const NAME_WIDTH: usize = 18;
const METER_WIDTH: usize = 12;

type Cell = fn(&View, &ServiceStatus, Paint) -> (String, Style);

/// Returns the columns of services with their widths, as many as fit.
fn service_columns(width: usize) -> Vec<(&'static str, usize, Cell)> {
    let all: [(&str, usize, usize, Cell); 8] = [
        ("p50", 10, 0, |_, service, _| (latency(service, |requests| requests.latency_p50_ns), Style::new())),
        ("p99", 10, 0, p99_cell),
        ("objective", 11, 0, |_, service, _| {
            (service.requests.as_ref().and_then(|it| it.slo.clone()).unwrap_or_default(), Style::new())
        }),
        ("met", 10, 72, met_cell),
        ("batch costs", 14, 72, cost_cell),
        ("requests", 12, 96, |view, service, paint| {
            let rate = view.request_rate(&service.name).filter(|rate| *rate > 0.0);
            (rate.map_or_else(String::new, |rate| Unit::PerS.human(rate)), paint.quiet())
        }),
        ("CPU", 9, 96, |_, service, paint| (format!("{:.2}", service.used_percent / 100.0), paint.quiet())),
        ("batch has", 18, 120, |_, service, paint| {
            let share = service.idle_time.as_ref().map(|idle| format!("{:.0} % of idle", idle.batch_percent));
            (share.unwrap_or_default(), paint.of_use(Use::Batch))
        }),
    ];
    let fits = all.into_iter().filter(|(_, _, least, _)| *least <= width);
    fits.map(|(name, width, _, cell)| (name, width, cell)).collect()
}

fn latency(service: &ServiceStatus, figure: fn(&RequestStatus) -> Option<u64>) -> String {
    let ns = service.requests.as_ref().and_then(figure);
    ns.map_or_else(String::new, |ns| Unit::Ns.human(ns as f64))
}

fn p99_cell(_: &View, service: &ServiceStatus, paint: Paint) -> (String, Style) {
    let style = match is_objective_met(service) {
        Some(true) => paint.good(),
        Some(false) => paint.bad(),
        None => Style::new(),
    };
    (latency(service, |requests| requests.latency_p99_ns), style)
}

/// Returns whether enough requests kept the objective: 99 % of them for `p99=5ms`.
fn is_objective_met(service: &ServiceStatus) -> Option<bool> {
    let requests = service.requests.as_ref()?;
    let wanted: f64 = requests.slo.as_ref()?.strip_prefix('p')?.split('=').next()?.parse().ok()?;
    Some(requests.in_time_percent? >= wanted)
}

fn met_cell(_: &View, service: &ServiceStatus, paint: Paint) -> (String, Style) {
    let percent = service.requests.as_ref().and_then(|requests| requests.in_time_percent);
    let style = if is_objective_met(service) == Some(false) { paint.bad() } else { paint.good() };
    (percent.map_or_else(String::new, |percent| format!("{percent:.2} %")), style)
}

fn cost_cell(_: &View, service: &ServiceStatus, paint: Paint) -> (String, Style) {
    let Some(SlowdownStatus { p50, p99, allowed_percent, min_idle_ns }) = &service.slowdown else {
        return (String::new(), Style::new());
    };
    if min_idle_ns.is_none() {
        return ("kept off".to_owned(), paint.warning());
    }
    let Some((name, slower)) = p99.map(|p99| ("p99", p99)).or(p50.map(|p50| ("p50", p50))) else {
        return ("measuring".to_owned(), paint.quiet());
    };
    let style = if slower.low_percent > *allowed_percent { paint.bad() } else { paint.good() };
    (format!("{:+.1} % {name}", slower.percent), style)
}

const HELP: [&str; 15] = [
    "?   show or hide this help",
    "s   sort by core, by batch, by service",
    "p   pause the picture, go on",
    "t   save the last seconds as a trace for ui.perfetto.dev",
    "y   copy the agent's file, or the command of the run",
    "q   quit; also Esc and Ctrl-C",
    "",
    "A row is a lane. A column is the time since the frame before:",
    "a block is the share of the lower of its two longest uses.",
    "",
    "request   the service ran      batch    batch ran",
    "held      kept free of batch   stolen   taken by the host",
    "other     programs, the kernel, interrupts",
    "",
    "Figures at the right are of the last second.",
];

fn draw_help(paint: Paint, area: Rect, buffer: &mut Buffer) {
    let (width, height) = (68.min(area.width), (HELP.len() as u16 + 2).min(area.height));
    let (x, y) = (area.x + (area.width - width) / 2, area.y + (area.height - height) / 2);
    let place = Rect::new(x, y, width, height);
    Clear.render(place, buffer);
    ratatui::widgets::Block::bordered()
        .border_type(ratatui::widgets::BorderType::Rounded)
        .border_style(paint.quiet())
        .title(Span::styled(" help ", paint.title()))
        .render(place, buffer);
    for (line, y) in HELP.iter().zip(y + 1..(y + height).saturating_sub(1)) {
        buffer.set_stringn(x + 2, y, line, usize::from(width.saturating_sub(4)), Style::new());
    }
}

/// Returns a time in its largest unit.
fn short_time(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 10.0 => format!("{:.1} s", seconds.max(0.0)),
        seconds if seconds < 120.0 => format!("{seconds:.0} s"),
        seconds if seconds < 7_200.0 => format!("{:.0} min", seconds / 60.0),
        seconds if seconds < 172_800.0 => format!("{:.0} h", seconds / 3_600.0),
        seconds => format!("{:.0} days", seconds / 86_400.0),
    }
}

/// Returns the columns that a text takes on a terminal.
fn display_width(text: &str) -> usize {
    Span::raw(text).width()
}

/// Cuts a text to a width, with an ellipsis.
fn cut(text: &str, width: usize) -> String {
    if display_width(text) <= width {
        return text.to_owned();
    }
    let mut kept = String::new();
    for letter in text.chars() {
        if display_width(&kept) + display_width(letter.encode_utf8(&mut [0; 4])) + 1 > width {
            break;
        }
        kept.push(letter);
    }
    if width > 0 { kept + "…" } else { kept }
}

/// Cuts a text to a width, or fills it.
fn fit(text: &str, width: usize) -> String {
    let text = cut(text, width);
    let gap = width.saturating_sub(display_width(&text));
    text + &" ".repeat(gap)
}

/// Cuts the beginning of a path to a width, or fills it: the end of a path tells groups apart.
fn fit_end(text: &str, width: usize) -> String {
    let long = text.chars().count();
    match display_width(text) > width {
        true => fit(&format!("…{}", text.chars().skip(long.saturating_sub(width - 1)).collect::<String>()), width),
        false => fit(text, width),
    }
}

/// Aligns a text to the right of a width.
fn right(text: &str, width: usize) -> String {
    let text = cut(text, width.saturating_sub(1));
    " ".repeat(width.saturating_sub(display_width(&text))) + &text
}

#[cfg(test)]
pub(crate) mod tests;
