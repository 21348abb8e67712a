//! Axes of charts: the position of a value in a picture, and the values of the ticks.

use crate::chart::ScaleKind;
use crate::unit::Unit;

/// Most ticks on a linear axis; more do not fit a small picture.
const TICKS_MAX: f64 = 5.0;

/// Axis of a chart: the mapping from values to positions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    kind: ScaleKind,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Axis {
    /// Returns an axis from position `from` to position `to` that covers all of `values`. Without values above zero
    /// it covers 0 to 1, or 1 to 10 if logarithmic.
    pub(super) fn from_values(kind: ScaleKind, values: impl Iterator<Item = f64>, (from, to): (f64, f64)) -> Self {
        let usable = values.filter(|value| value.is_finite() && (kind == ScaleKind::Linear || *value > 0.0));
        let (low, high) = usable.fold((f64::INFINITY, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
        let (low, high) = match kind {
            ScaleKind::Linear => (0.0, if high > 0.0 { high } else { 1.0 }),
            ScaleKind::Log if high <= 0.0 => (1.0, 10.0),
            // A margin of 20 % keeps points off the frame.
            ScaleKind::Log => (low / 1.2, high * 1.2),
        };
        Self { kind, low, high, from, to }
    }

    /// Returns the position of `value`.
    pub(super) fn position(&self, value: f64) -> f64 {
        let share = match self.kind {
            ScaleKind::Linear => (value - self.low) / (self.high - self.low),
            ScaleKind::Log => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
        };
        self.from + share * (self.to - self.from)
    }

    /// Returns the values at which the axis has ticks.
    pub(super) fn ticks(&self) -> Vec<f64> {
        match self.kind {
            ScaleKind::Linear => self.linear_ticks(),
            ScaleKind::Log => self.log_ticks(),
        }
    }

    /// Returns ticks in steps of 1, 2 or 5 times a power of ten.
    fn linear_ticks(&self) -> Vec<f64> {
        let span = self.high - self.low;
        let power = 10f64.powf((span / TICKS_MAX).log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|step| step * power).into_iter().find(|step| span / step <= TICKS_MAX);
        let step = step.unwrap_or(span);
        let first = (self.low / step).ceil();
        (0..).map(|tick| (first + f64::from(tick)) * step).take_while(|tick| *tick <= self.high * 1.0001).collect()
    }

    /// Returns ticks at 1, 2 and 5 times every power of ten; if these ticks are too many, only at the powers of ten.
    fn log_ticks(&self) -> Vec<f64> {
        let powers = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
        let steps: &[f64] = if self.high / self.low < 120.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let all = powers.flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)));
        all.filter(|tick| (self.low..=self.high).contains(tick)).collect()
    }
}

/// Returns the label of a tick: the value as in a table, but "5 ms" in place of "5.0 ms".
pub(super) fn tick_label(unit: Unit, value: f64) -> String {
    match unit {
        // 0 has no unit: with a unit, a time of 0 would get nanoseconds.
        _ if value == 0.0 && unit != Unit::Ratio => "0".to_owned(),
        // Shares of a lane are plain numbers; the axis title names the quantity.
        Unit::Ratio => format!("{value:.1}"),
        Unit::Cycles => unit.human(value).replace(" cycles", ""),
        Unit::Count => with_si_prefix(value),
        Unit::PerS => with_si_prefix(value) + "/s",
        unit => unit.human(value).replace(".0 ", " "),
    }
}

/// Writes a number in k, M or G, for labels beside an axis, where nine digits do not fit.
fn with_si_prefix(value: f64) -> String {
    const STEPS: [(f64, &str); 3] = [(1e9, " G"), (1e6, " M"), (1e3, " k")];
    let (scale, prefix) = STEPS.into_iter().find(|(scale, _)| value.abs() >= 0.9995 * scale).unwrap_or((1.0, " "));
    let scaled = match value / scale {
        few if few.abs() < 9.995 => format!("{few:.2}"),
        some if some.abs() < 99.95 => format!("{some:.1}"),
        many => format!("{many:.0}."),
    };
    let short = scaled.trim_end_matches('0').trim_end_matches('.');
    format!("{short}{prefix}").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(kind: ScaleKind, values: &[f64]) -> Axis {
        Axis::from_values(kind, values.iter().copied(), (100.0, 0.0))
    }

    #[test]
    fn ends_of_the_range_lie_at_the_ends_of_the_axis() {
        let linear = axis(ScaleKind::Linear, &[0.4, 2.0]);
        assert_eq!((linear.position(0.0), linear.position(2.0), linear.position(1.0)), (100.0, 0.0, 50.0));
        let log = axis(ScaleKind::Log, &[10.0, 1000.0]);
        assert!((log.position(100.0) - 50.0).abs() < 1e-9);
        assert!(log.position(10.0) < 100.0 && log.position(1000.0) > 0.0);
    }

    #[test]
    fn ticks_are_a_few_round_numbers() {
        assert_eq!(axis(ScaleKind::Linear, &[2.0]).ticks(), [0.0, 0.5, 1.0, 1.5, 2.0]);
        assert_eq!(axis(ScaleKind::Linear, &[100.0]).ticks(), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(axis(ScaleKind::Log, &[9.0, 45.0]).ticks(), [10.0, 20.0, 50.0]);
        assert_eq!(axis(ScaleKind::Log, &[9.0, 45_000.0]).ticks(), [10.0, 100.0, 1_000.0, 10_000.0]);
    }

    #[test]
    fn axis_without_values_does_not_divide_by_zero() {
        for kind in [ScaleKind::Linear, ScaleKind::Log] {
            let empty = axis(kind, &[]);
            assert!(empty.position(5.0).is_finite());
            assert!(empty.ticks().len() < 10);
        }
    }

    #[test]
    fn labels_carry_their_unit() {
        assert_eq!(tick_label(Unit::Us, 10_000.0), "10 ms");
        assert_eq!(tick_label(Unit::Percent, 50.0), "50 %");
        assert_eq!(tick_label(Unit::Ratio, 1.5), "1.5");
        assert_eq!(tick_label(Unit::S, 0.0), "0");
        assert_eq!(tick_label(Unit::PerS, 20_000_000.0), "20 M/s");
        assert_eq!(tick_label(Unit::PerS, 1.5), "1.5/s");
        assert_eq!(tick_label(Unit::Count, 1_250.0), "1.25 k");
        assert_eq!(tick_label(Unit::Count, 41_790.0), "41.8 k");
        assert_eq!(tick_label(Unit::Count, 200.0), "200");
    }
}
