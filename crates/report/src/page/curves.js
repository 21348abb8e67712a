// Latency curves: percentile on the horizontal axis, latency on the vertical axis, a line for each
// setting.

/** Colours in page.css; further settings repeat them. */
const COLORS = 8;
/** Dashes in addition to colours, so that lines differ in print and for colour-blind users, and so do those that repeat a
 * colour. */
const DASHES = ['2 4', '', '9 4', '', '6 3 2 3', '', '12 4', '3 2', '8 4', '2 4', '', '8 4', '', '2 4', '', '9 3 2 3'];
const PERCENTILE_TICKS = [0, 50, 90, 99, 99.9, 99.99, 99.999];
const MARGIN = { left: 58, right: 22, top: 10, bottom: 40 };

/** 90, 99 and 99.9 are equally far apart, so that the tail has enough room. */
const nines = (percentile) => -Math.log10(1 - percentile / 100);

/** 1, 2 and 5 of every power of ten, within a range. */
function logTicks(low, high) {
  const ticks = [];
  for (let power = 10 ** Math.floor(Math.log10(low)); power <= high; power *= 10)
    ticks.push(...[1, 2, 5].map((step) => step * power));
  return ticks.filter((tick) => tick >= low && tick <= high);
}

/** A short piece of a line, for legends. */
function lineSample(style) {
  return svg('svg', { width: 26, height: 10, 'aria-hidden': true }, svg('path', {
    class: `curve series-${style % COLORS}`, 'stroke-dasharray': DASHES[style], d: 'M0 5H26',
  }));
}

/** The curves, each with its line style, and the range of their values. */
function seriesOf(curves) {
  const series = curves.map(({ setting, points }, index) => ({
    setting,
    style: index % DASHES.length,
    // The maximum is at percentile 100, which a logarithmic axis cannot show.
    points: points.filter(({ percentile, us }) => percentile < 100 && us > 0),
  })).filter(({ points }) => points.length > 1);
  const us = series.flatMap(({ points }) => points.map((point) => point.us));
  const across = series.flatMap(({ points }) => points.map((point) => nines(point.percentile)));
  return {
    series,
    low: Math.min(...us) / 1.15, high: Math.max(...us) * 1.15,
    first: Math.min(...across), last: Math.max(...across),
  };
}

function drawCurves(curves) {
  const { series, low, high, first, last } = seriesOf(curves);
  if (series.length === 0) return;

  const names = series.map(({ setting }) => setting).join(', ');
  const chart = svg('svg', {
    class: 'chart', tabindex: 0, role: 'img',
    'aria-label': `Latency by percentile: ${names}. Left and right arrows read values.`,
  });
  frame('curves', 'Latency, percentile by percentile',
    'At each percentile, how long that share of the requests took at most. The tail, the slowest '
    + 'requests, is on the right. Lower is better.',
    html('ul', { class: 'legend' },
      ...series.map(({ setting, style }) => html('li', {}, lineSample(style), setting))),
    chart);

  let width, height, bottom;
  const cursor = svg('g');
  const plotWidth = () => width - MARGIN.left - MARGIN.right;
  const x = (nine) => MARGIN.left + (nine - first) / (last - first) * plotWidth();
  const y = (us) => bottom - Math.log(us / low) / Math.log(high / low) * (bottom - MARGIN.top);

  function draw() {
    width = chart.clientWidth;
    height = width < 560 ? 280 : 380;
    bottom = height - MARGIN.bottom;
    chart.setAttribute('height', height);
    chart.setAttribute('viewBox', `0 0 ${width} ${height}`);
    cursor.replaceChildren();
    chart.replaceChildren(...latencyGrid(), ...percentileGrid(), ...series.map(line), cursor);
  }

  function latencyGrid() {
    const [x1, x2] = [MARGIN.left, width - MARGIN.right];
    return logTicks(low, high).flatMap((us) => [
      svg('line', { class: 'grid', x1, x2, y1: y(us), y2: y(us) }),
      svg('text', { x: x1 - 8, y: y(us) + 4, 'text-anchor': 'end' }, human(us).replace('.0', '')),
    ]);
  }

  function percentileGrid() {
    const ticks = PERCENTILE_TICKS.filter((tick) => first <= nines(tick) && nines(tick) <= last);
    const middle = (MARGIN.left + width - MARGIN.right) / 2;
    const label = (x, y, text) => svg('text', { x, y, 'text-anchor': 'middle' }, text);
    return ticks.map(nines).flatMap((nine, index) => [
      svg('line', { class: 'grid', x1: x(nine), x2: x(nine), y1: MARGIN.top, y2: bottom }),
      label(x(nine), bottom + 17, `${ticks[index]}`),
    ]).concat(label(middle, height - 5, 'percentile of requests'));
  }

  function line({ points, style }) {
    const corner = ({ percentile, us }) => `${x(nines(percentile)).toFixed(1)},${y(us).toFixed(1)}`;
    return svg('path', {
      class: `curve series-${style % COLORS}`, 'stroke-dasharray': DASHES[style],
      d: `M${points.map(corner).join('L')}`,
    });
  }

  /** Marks one percentile on every line and lists the values, the slowest first. */
  function read(nine, clientX, clientY) {
    reading = clamp(nine, first, last);
    const values = series.map(({ setting, style, points }) => {
      const reached = points.find(({ percentile }) => nines(percentile) >= reading - 1e-9);
      return { setting, style, us: (reached ?? points.at(-1)).us };
    }).sort((one, other) => other.us - one.us);
    const at = x(reading);
    cursor.replaceChildren(
      svg('line', { class: 'cursor', x1: at, x2: at, y1: MARGIN.top, y2: bottom }),
      ...values.map(({ style, us }) =>
        svg('circle', { class: `dot series-${style % COLORS}`, cx: at, cy: y(us), r: 4.5 })));
    const percentile = (100 * (1 - 10 ** -reading)).toFixed(Math.max(0, Math.ceil(reading) - 1));
    showTip(clientX, clientY, html('strong', {}, `p${percentile}`),
      ...values.map(({ setting, style, us }) =>
        html('div', {}, html('span', {}, lineSample(style), ` ${setting}`), human(us))));
  }

  function forget() {
    cursor.replaceChildren();
    hideTip();
  }

  let reading = clamp(nines(99), first, last);
  chart.addEventListener('pointermove', ({ offsetX, clientX, clientY }) => {
    const share = (offsetX - MARGIN.left) / plotWidth();
    read(first + share * (last - first), clientX, clientY);
  });
  chart.addEventListener('pointerleave', forget);
  chart.addEventListener('blur', forget);
  chart.addEventListener('keydown', (event) => {
    const step = { ArrowLeft: -0.1, ArrowRight: 0.1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const box = chart.getBoundingClientRect();
    read(reading + step, box.left + x(reading), box.top + MARGIN.top);
  });
  onWidth(chart, draw);
}

drawCurves(data.curves ?? []);
