// Signals over time: one canvas for each signal, and one axis below them. A rate is a line of means
// in a band from its minimum to its maximum. A tag is drawn as blocks, coloured by value.

const RATE_HEIGHT = 76, TAG_HEIGHT = 34, TRACK_GAP = 4;
/** Number of tag values with a colour of their own; the others are grey. The same as in
 * drawing/bars.rs. */
const COLORED = 7;
/** The narrowest view in bins: a narrower one shows no more detail. */
const NARROWEST_BINS = 8;

const endOf = ({ from_us, bin_us, samples }) => from_us + bin_us * samples.length;
const colorOf = (value) => value < COLORED ? `series-${value + 1}` : 'other';

/** A number for users, with three significant digits. */
function humanOf(unit, value) {
  const [scale, prefix] = [[1e9, 'G'], [1e6, 'M'], [1e3, 'k']]
    .find(([scale]) => Math.abs(value) >= 0.9995 * scale) ?? [1, ''];
  const short = `${+(value / scale).toPrecision(3)}`;
  const suffix = { per_s: '/s', percent: '%' }[unit] ?? '';
  return prefix || suffix ? `${short} ${prefix}${suffix}` : short;
}

function drawSeries({ title, caption, signals }) {
  const end = Math.max(...signals.map(endOf));
  const narrowest = NARROWEST_BINS * Math.min(...signals.map(({ bin_us }) => bin_us));
  if (!(end > 0)) return;

  const view = new View(end, narrowest);
  const kinds = { rate: RateTrack, tag: TagTrack };
  const tracks = signals.filter(({ kind }) => kind in kinds).map((signal) => new kinds[signal.kind](signal, view));
  const axis = new AxisTrack(view);
  frame('series', title, caption, view.tools('Zoom the signals'), ...tracks.map(({ element }) => element), axis.element);
  view.show([...tracks, axis]);
}

/** The axis of all signals; it stays visible while the page scrolls. */
class AxisTrack extends TimeCanvas {
  constructor(view) {
    super(view, AXIS_HEIGHT, 'Time');
    this.element = html('div', { class: 'track axis' }, this.canvas);
  }

  paint(pen, color) {
    this.drawAxis(pen, color, 0);
  }

  point() {}
}

/** One signal: its bins, reduced to the pixels of the screen. */
class SignalTrack extends TimeCanvas {
  constructor(signal, view, height, words, ...heading) {
    super(view, height + 2 * TRACK_GAP, `${signal.name}: ${words}`);
    Object.assign(this, { signal, height });
    this.element = html('div', { class: 'track' },
      html('p', {}, html('strong', {}, signal.name), ...heading), this.canvas);
  }

  /**
   * The bins in view as columns at least a pixel wide, from left to right. Where several bins share
   * a pixel, `begin(bin)` makes a column from the first, and `join(column, bin)` adds each of the
   * others.
   */
  columns(begin, join) {
    const { from_us, bin_us, samples } = this.signal;
    const { from, to } = this.view;
    const first = Math.max(0, Math.floor((from - from_us) / bin_us));
    const last = Math.min(samples.length - 1, Math.floor((to - from_us) / bin_us));
    const columns = [];
    let column = null, pixel = null;
    for (let bin = first; bin <= last; bin++) {
      if (samples[bin] === 0) continue;
      const left = this.xOf(from_us + bin * bin_us);
      if (column && Math.floor(left) === pixel) {
        join(column, bin);
      } else {
        pixel = Math.floor(left);
        column = { ...begin(bin), first: bin };
        columns.push(column);
      }
      column.last = bin;
    }
    return columns.map((column) => this.placed(column));
  }

  /** Adds the column's ends, in microseconds and in canvas pixels. */
  placed(column) {
    const { from_us, bin_us } = this.signal;
    const from = from_us + column.first * bin_us, to = from_us + (column.last + 1) * bin_us;
    const left = Math.max(GUTTER, this.xOf(from)), right = Math.min(GUTTER + this.plotWidth, this.xOf(to));
    return { ...column, from, to, left, right: Math.max(right, left + 1) };
  }

  /** Draws the background with the lines of the axis. */
  ground(pen, color, fill) {
    pen.fillStyle = color(fill);
    pen.fillRect(GUTTER, TRACK_GAP, this.plotWidth, this.height);
    pen.fillStyle = color('line');
    for (const us of this.ticks().moments)
      pen.fillRect(Math.min(this.xOf(us), GUTTER + this.plotWidth - 1), TRACK_GAP, 1, this.height);
  }

  at(x) {
    return this.drawn?.find(({ left, right }) => x >= left - 0.5 && x < right + 0.5);
  }

  point({ offsetX, clientX, clientY }) {
    const column = offsetX >= GUTTER && this.at(offsetX);
    if (!column) return hideTip();
    showTip(clientX, clientY, html('strong', {}, this.signal.name), ...this.told(column),
      html('div', { class: 'faint' }, `from ${exact(column.from)} to ${exact(column.to)}`));
  }
}

class RateTrack extends SignalTrack {
  constructor(signal, view) {
    const least = Math.min(...signal.min.filter((value) => value !== null));
    const most = Math.max(...signal.max.filter((value) => value !== null));
    const range = `${humanOf(signal.unit, least)} to ${humanOf(signal.unit, most)}`;
    super(signal, view, RATE_HEIGHT, `a rate, from ${range}`, html('span', { class: 'faint' }, range));
  }

  paint(pen, color) {
    const { mean, min, max, samples, unit } = this.signal;
    this.drawn = this.columns(
      (bin) => ({ low: min[bin], high: max[bin], sum: mean[bin] * samples[bin], samples: samples[bin] }),
      (column, bin) => {
        column.low = Math.min(column.low, min[bin]);
        column.high = Math.max(column.high, max[bin]);
        column.sum += mean[bin] * samples[bin];
        column.samples += samples[bin];
      });
    this.ground(pen, color, 'paper');
    const high = Math.max(...this.drawn.map((column) => column.high)) || 1;
    if (this.drawn.length === 0) return;
    // A margin, so that no line lies on the edge.
    const y = (value) => TRACK_GAP + this.height * (1 - Math.max(0, value) / (1.05 * high));
    pen.fillStyle = color('faint');
    pen.textAlign = 'right';
    pen.fillText(humanOf(unit, high), GUTTER - 6, TRACK_GAP + 7);
    pen.fillText('0', GUTTER - 6, TRACK_GAP + this.height - 6);
    this.band(pen, color, y);
    this.line(pen, color, y);
  }

  band(pen, color, y) {
    pen.fillStyle = color('series-3');
    pen.globalAlpha = 0.35;
    for (const { left, right, low, high } of this.drawn)
      pen.fillRect(left, y(high), right - left, Math.max(1, y(low) - y(high)));
    pen.globalAlpha = 1;
  }

  /** The line has a gap where there are no samples. */
  line(pen, color, y) {
    pen.strokeStyle = color('series-3');
    pen.lineWidth = 1.5;
    pen.beginPath();
    let before = -Infinity;
    for (const { left, right, sum, samples } of this.drawn) {
      const height = y(sum / samples);
      if (left - before > 1.5) pen.moveTo(left, height);
      else pen.lineTo(left, height);
      pen.lineTo(right, height);
      before = right;
    }
    pen.stroke();
  }

  told({ low, high, sum, samples }) {
    const { unit } = this.signal;
    const line = (name, value) => html('div', {}, html('span', {}, name), value);
    return [
      line('mean', humanOf(unit, sum / samples)),
      line('lowest to highest', `${humanOf(unit, low)} – ${humanOf(unit, high)}`),
      line('samples', samples.toLocaleString('en')),
    ];
  }
}

class TagTrack extends SignalTrack {
  constructor(signal, view) {
    const { names } = signal;
    const chip = (name, value) => html('li', {}, html('i', { style: `background: var(--${colorOf(value)})` }), name);
    const chips = names.slice(0, COLORED).map(chip);
    const more = names.length - COLORED;
    if (more > 0) chips.push(chip(more === 1 ? names[COLORED] : `${more} others`, COLORED));
    super(signal, view, TAG_HEIGHT, `a tag with ${names.length} values`, html('ul', { class: 'legend' }, ...chips));
  }

  paint(pen, color) {
    const { last } = this.signal;
    const columns = this.columns(
      (bin) => ({ counts: new Map([[last[bin], 1]]) }),
      ({ counts }, bin) => counts.set(last[bin], (counts.get(last[bin]) ?? 0) + 1));
    this.drawn = this.runs(columns);
    this.ground(pen, color, 'idle');
    for (const run of this.drawn) {
      this.block(pen, color, run);
      this.name(pen, color, run);
    }
  }

  /** Adjacent columns with the same single value are drawn as one block. */
  runs(columns) {
    const runs = [];
    for (const column of columns) {
      const before = runs.at(-1), [value] = column.counts.keys();
      const alone = column.counts.size === 1;
      if (alone && before?.value === value && before.last + 1 === column.first)
        Object.assign(before, { last: column.last, to: column.to, right: column.right });
      else runs.push({ ...column, value: alone ? value : null });
    }
    return runs;
  }

  /** A pixel with several values is divided in proportion to their bins. */
  block(pen, color, { left, right, counts }) {
    const byColor = new Map();
    let bins = 0;
    for (const [value, count] of counts) {
      byColor.set(colorOf(value), (byColor.get(colorOf(value)) ?? 0) + count);
      bins += count;
    }
    const from = Math.floor(left), width = Math.max(1, Math.ceil(right) - from);
    let top = TRACK_GAP;
    for (const [name, count] of [...byColor].sort()) {
      const height = this.height * count / bins;
      pen.fillStyle = color(name);
      pen.fillRect(from, top, width, height);
      top += height;
    }
  }

  name(pen, color, { left, right, value }) {
    if (value === null) return;
    const words = this.signal.names[value];
    if (pen.measureText(words).width + 8 > right - left) return;
    pen.textAlign = 'left';
    pen.fillStyle = isLight(color(colorOf(value))) ? '#000' : '#fff';
    pen.fillText(words, left + 4, TRACK_GAP + this.height / 2);
  }

  told({ counts, value, from, to }) {
    const { names } = this.signal;
    const named = (value, words) => html('div', {}, html('span', {},
      html('i', { class: 'chip', style: `background: var(--${colorOf(value)})` }), names[value]), words);
    if (value !== null) return [named(value, `for ${human(to - from)}`)];
    const bins = [...counts.values()].reduce((sum, count) => sum + count, 0);
    const most = [...counts].sort((one, other) => other[1] - one[1]).slice(0, COLORED);
    return most.map(([value, count]) => named(value, `${(100 * count / bins).toFixed(0)} %`));
  }
}

/** Whether black text is more readable than white on this colour; a colour in the style is #rrggbb. */
function isLight(color) {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16));
  return 0.299 * red + 0.587 * green + 0.114 * blue > 140;
}

for (const series of data.series ?? []) drawSeries(series);
