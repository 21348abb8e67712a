//! Metrics as data, and their text.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use sidelane_tracker::histogram::Histogram;

/// Upper bound of the first bucket of a latency histogram: 50 µs. Each further bound is twice as large, up to half a
/// minute.
const LATENCY_FIRST_NS: u64 = 50_000;
const LATENCY_BUCKETS: u32 = 20;

/// Kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number that goes up and down.
    Gauge,
    /// A number that only goes up, as long as the agent runs.
    Counter,
    /// A histogram: the number of values up to each bound.
    Histogram,
}

/// Value of a metric.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Number of a gauge or a counter.
    Number(f64),
    /// Content of a histogram.
    Histogram {
        /// Sum of all values in the histogram.
        sum: f64,
        /// Number of values in the histogram.
        count: u64,
        /// Upper bound of each bucket, with the number of values above the previous bound and up to this one.
        buckets: Vec<(f64, u64)>,
    },
}

/// Metric with all its values.
#[derive(Clone, Debug)]
pub struct Family {
    /// Name of the metric, without `sidelane_` and unit.
    pub name: &'static str,
    /// Unit of the metric; `None` if it has none.
    pub unit: Option<Unit>,
    /// Help text of the metric.
    pub help: &'static str,
    /// Kind of the metric.
    pub kind: Kind,
    /// Values of the metric, each with its labels.
    pub values: Vec<(Vec<(&'static str, String)>, Value)>,
}

impl Family {
    /// Creates a gauge or counter with one number for each set of labels; unknown numbers are left out.
    pub fn from_numbers(
        (name, unit, kind, help): (&'static str, Option<Unit>, Kind, &'static str),
        values: impl Iterator<Item = (Vec<(&'static str, String)>, Option<f64>)>,
    ) -> Self {
        let known = values.filter_map(|(labels, value)| Some((labels, Value::Number(value?))));
        Self { name, unit, help, kind, values: known.collect() }
    }
}

/// Converts latencies to a histogram of seconds.
pub fn latency_histogram(latencies: &Histogram, sum_ns: u64) -> Value {
    const SECOND_NS: f64 = 1e9;
    let bounds: Vec<u64> = (0..LATENCY_BUCKETS).map(|power| LATENCY_FIRST_NS << power).chain([u64::MAX]).collect();
    let mut counts = vec![0; bounds.len()];
    for (value_ns, count) in latencies.latency_counts() {
        counts[bounds.partition_point(|bound| *bound < value_ns)] += count;
    }
    let in_s = |bound: u64| if bound == u64::MAX { f64::INFINITY } else { bound as f64 / SECOND_NS };
    let buckets = bounds.into_iter().map(in_s).zip(counts).collect();
    Value::Histogram { sum: sum_ns as f64 / SECOND_NS, count: latencies.count(), buckets }
}

/// All metrics at one moment.
#[derive(Clone, Debug, Default)]
pub struct Exposition(pub Vec<Family>);

impl Exposition {
    /// Writes the metrics as OpenMetrics text.
    pub fn text(self) -> Result<String, fmt::Error> {
        let mut registry = Registry::with_prefix("sidelane");
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        encode(&mut text, &registry)?;
        Ok(text)
    }
}

impl Collector for Exposition {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        for family in self.0.iter().filter(|family| !family.values.is_empty()) {
            family.encode(encoder.encode_descriptor(
                family.name,
                family.help,
                family.unit.as_ref(),
                family.metric_type(),
            )?)?;
        }
        Ok(())
    }
}

impl EncodeMetric for Family {
    fn encode(&self, mut encoder: MetricEncoder) -> Result<(), fmt::Error> {
        for (labels, value) in &self.values {
            match labels.is_empty() {
                true => self.encode_value(value, &mut encoder)?,
                false => self.encode_value(value, &mut encoder.encode_family(labels)?)?,
            }
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        match self.kind {
            Kind::Gauge => MetricType::Gauge,
            Kind::Counter => MetricType::Counter,
            Kind::Histogram => MetricType::Histogram,
        }
    }
}

impl Family {
    fn encode_value(&self, value: &Value, encoder: &mut MetricEncoder) -> Result<(), fmt::Error> {
        match (value, self.kind) {
            (Value::Number(number), Kind::Counter) => encoder.encode_counter::<NoLabelSet, _, f64>(number, None),
            (Value::Number(number), _) => encoder.encode_gauge(number),
            (Value::Histogram { sum, count, buckets }, _) => {
                encoder.encode_histogram::<NoLabelSet>(*sum, *count, buckets, None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_values_are_omitted_and_names_have_units() {
        let values = [("0", Some(1.5)), ("1", None)];
        let labels = |(cpu, value): (&str, Option<f64>)| (vec![("cpu", cpu.to_owned())], value);
        let unit = Some(Unit::Seconds);
        let family = Family::from_numbers(
            ("cpu_batch", unit, Kind::Counter, "Time that batch ran"),
            values.into_iter().map(labels),
        );
        let empty = Family::from_numbers(("nothing", None, Kind::Gauge, "Not known"), std::iter::empty());
        let text = Exposition(vec![family, empty]).text().unwrap();
        assert_eq!(
            text,
            "# HELP sidelane_cpu_batch_seconds Time that batch ran\n# TYPE sidelane_cpu_batch_seconds counter\n\
             # UNIT sidelane_cpu_batch_seconds seconds\nsidelane_cpu_batch_seconds_total{cpu=\"0\"} 1.5\n# EOF\n"
        );
    }

    #[test]
    fn latencies_are_counted_up_to_each_bound() {
        let mut all = Histogram::default();
        [10_000, 60_000, 60_000, u64::MAX].into_iter().for_each(|ns| all.record(ns));
        let Value::Histogram { count, buckets, .. } = latency_histogram(&all, 0) else { unreachable!() };
        assert_eq!((count, buckets[0], buckets[1]), (4, (50e-6, 1), (100e-6, 2)));
        assert_eq!(buckets.last(), Some(&(f64::INFINITY, 1)));
    }
}
