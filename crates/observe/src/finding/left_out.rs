//! Signals that did not change, in one sentence.

use super::evidence::Evidence;

/// Returns a sentence on counters that counted nothing and tags with one value; `None` if all signals changed.
pub(super) fn constant_signals_sentence(seen: &Evidence<'_>) -> Option<String> {
    let counters = seen.analysis.events.iter().enumerate().filter(|(_, events)| events.count == 0);
    let counters = counters.map(|(counter, _)| seen.counter_name(counter).to_owned());
    let tags = (0..seen.analysis.tags.len()).filter_map(|tag| describe_constant_tag(seen, tag));
    let still: Vec<String> = counters.chain(tags).collect();
    (!still.is_empty()).then(|| format!("Did not change: {}.", still.join(", ")))
}

/// Returns a text on a tag that had one value only; `None` if the tag changed.
fn describe_constant_tag(seen: &Evidence<'_>, tag: usize) -> Option<String> {
    let hottest = seen.analysis.tags[tag].values_by_frequency();
    let [(value, _)] = hottest.as_slice() else { return None };
    let is_only = seen.analysis.tags[tag].counts_of_values_without_entry().samples == 0;
    is_only.then(|| format!("{} ({})", seen.names.tag(tag), seen.names.value(tag, value.value)))
}
