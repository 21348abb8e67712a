// Lane timelines: a canvas for each setting, its lanes as rows, the overlap below them.
// All canvases share one view of time, so that settings can be compared at every zoom.

/** What each colour means; the names are those of the spans and of the style's variables. */
const CLASSES = {
  lc: 'LC service', batch: 'batch', holder: 'holder (keeps the lane empty)',
  other: 'other', idle: 'idle', overlap: 'overlap: LC and batch at once',
};
const GUTTER = 62, LANE_HEIGHT = 26, LANE_GAP = 4, STRIP_HEIGHT = 10, AXIS_HEIGHT = 22;
/** Further in there is nothing to see: switches take about a microsecond. */
const NARROWEST_US = 5;
/** Overlap must not vanish when zoomed out, so it is never drawn thinner than this. */
const OVERLAP_WIDTH_MIN = 1.5;

/** Keys and buttons: by how much the view grows, and by what share of it it moves. */
const MOVES = {
  '+': [0.5, 0], '=': [0.5, 0], '-': [2, 0], '0': [Infinity, 0],
  ArrowLeft: [1, -0.2], ArrowRight: [1, 0.2],
};
const BUTTONS = [
  ['+', 'Zoom in', '+'], ['−', 'Zoom out', '-'], ['◀', 'Earlier', 'ArrowLeft'],
  ['▶', 'Later', 'ArrowRight'], ['All', 'Show everything', '0'],
];

const lengthOf = ({ from_us, to_us }) => to_us - from_us;

/** When an LC thread and batch ran at once, on any lanes of the core. */
function overlaps(lanes) {
  const edges = lanes.flatMap(({ spans }) => spans)
    .filter((span) => span.class === 'lc' || span.class === 'batch')
    .flatMap((span) => [
      { us: span.from_us, of: span.class, by: 1 }, { us: span.to_us, of: span.class, by: -1 },
    ])
    .sort((one, other) => one.us - other.us || one.by - other.by);
  const running = { lc: 0, batch: 0 }, found = [];
  let since = null;
  for (const { us, of, by } of edges) {
    running[of] += by;
    if (running.lc > 0 && running.batch > 0) since ??= us;
    else if (since !== null) {
      if (us > since) found.push({ from_us: since, to_us: us, class: 'overlap' });
      since = null;
    }
  }
  return found;
}

/** The stretch of time that is shown: `from` to `to` of `0` to `end`, in microseconds. */
class View {
  constructor(end) {
    Object.assign(this, { from: 0, to: end, end });
  }

  get length() {
    return this.to - this.from;
  }

  /** Zooms around the share `around` of the view, then moves by the share `shift` of it. */
  change(factor, shift, around = 0.5) {
    const length = clamp(this.length * factor, Math.min(NARROWEST_US, this.end), this.end);
    const from = this.from + (this.length - length) * around + shift * length;
    this.from = clamp(from, 0, this.end - length);
    this.to = this.from + length;
  }
}

function drawTimelines(timelines) {
  const spans = timelines.flatMap(({ lanes }) => lanes.flatMap((lane) => lane.spans));
  const end = spans.reduce((latest, { to_us }) => Math.max(latest, to_us), 0);
  if (end === 0) return;

  const view = new View(end);
  const shown = html('output', {});
  const tracks = timelines.map((timeline) => new Track(timeline, view, change));
  frame('timelines', 'Who ran on the lanes',
    `${human(end).replace('.0', '')} of each setting; a block is one turn of whoever ran. Zoom with the wheel or `
    + 'the buttons, drag to move. Overlap is drawn wide enough to be seen at every zoom.',
    html('ul', { class: 'legend' }, ...Object.entries(CLASSES).map(([name, words]) =>
      html('li', {}, html('i', { style: `background: var(--${name})` }), words))),
    tools(change, shown),
    ...tracks.map(({ element }) => element));

  function change(...move) {
    view.change(...move);
    redraw();
  }

  function redraw() {
    shown.textContent = `${human(view.length)} from ${exact(view.from)}`;
    for (const track of tracks) track.draw();
  }

  onWidth(tracks[0].element, redraw);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
}

function tools(change, shown) {
  const button = ([label, words, key]) => {
    const element = html('button', { type: 'button', 'aria-label': words, title: words }, label);
    element.addEventListener('click', () => change(...MOVES[key]));
    return element;
  };
  const attributes = { class: 'tools', role: 'toolbar', 'aria-label': 'Zoom the timelines' };
  return html('div', attributes, ...BUTTONS.map(button), shown);
}

/** One setting: a heading with its overlap in words, and a canvas with its lanes. */
class Track {
  constructor({ setting, lanes }, view, change) {
    const strip = overlaps(lanes);
    const leak = strip.reduce((sum, span) => sum + lengthOf(span), 0);
    const share = (100 * leak / view.end).toFixed(2);
    const words = leak ? `overlap ${human(leak)} (${share} %)` : 'no overlap';
    this.view = view;
    const top = lanes.length * (LANE_HEIGHT + LANE_GAP);
    this.rows = [...lanes.map(laneRow), { name: 'overlap', spans: strip, top, height: STRIP_HEIGHT }];
    this.bottom = top + STRIP_HEIGHT;
    this.canvas = html('canvas', {
      tabindex: 0, role: 'img', style: `height: ${this.bottom + AXIS_HEIGHT}px`,
      'aria-label': `Lanes under ${setting}: ${words}. Plus and minus zoom, arrows move, 0 shows all.`,
    });
    this.element = html('div', { class: 'track' },
      html('p', {}, html('strong', {}, setting),
        html('span', { class: leak ? 'overlapped' : 'faint' }, words)),
      this.canvas);
    this.listen(change);
  }

  get plotWidth() {
    return this.canvas.clientWidth - GUTTER;
  }

  xOf(us) {
    return GUTTER + (us - this.view.from) / this.view.length * this.plotWidth;
  }

  usOf(x) {
    return this.view.from + (x - GUTTER) / this.plotWidth * this.view.length;
  }

  draw() {
    const { canvas } = this;
    const sharp = devicePixelRatio || 1;
    canvas.width = Math.round(canvas.clientWidth * sharp);
    canvas.height = Math.round(canvas.clientHeight * sharp);
    const style = getComputedStyle(canvas);
    const color = (name) => style.getPropertyValue(`--${name}`);
    const pen = canvas.getContext('2d');
    pen.scale(sharp, sharp);
    pen.font = `12px ${style.fontFamily}`;
    pen.textBaseline = 'middle';
    for (const row of this.rows) this.drawRow(pen, row, color);
    this.drawAxis(pen, color);
  }

  drawRow(pen, { name, detail, spans, top, height }, color) {
    pen.fillStyle = color('idle');
    pen.fillRect(GUTTER, top, this.plotWidth, height);
    pen.textAlign = 'left';
    pen.fillStyle = color('faint');
    pen.fillText(name, 0, top + height / 2 - (detail ? 6 : 0));
    if (detail) pen.fillText(detail, 0, top + height / 2 + 7);
    const { from, to } = this.view;
    for (const span of spans) {
      if (span.to_us <= from || span.from_us >= to || span.class === 'idle') continue;
      const left = this.xOf(Math.max(from, span.from_us));
      const width = this.xOf(Math.min(to, span.to_us)) - left;
      pen.fillStyle = color(span.class);
      const least = span.class === 'overlap' ? OVERLAP_WIDTH_MIN : 0;
      pen.fillRect(left, top, Math.max(least, width), height);
    }
  }

  drawAxis(pen, color) {
    const { from, to, length } = this.view;
    const room = length * 90 / this.plotWidth;
    const power = 10 ** Math.floor(Math.log10(room));
    const step = [1, 2, 5, 10].map((by) => by * power).find((size) => size >= room);
    // Every label has the unit of the step, so that neighbours can be compared.
    const [scale, unit] = step >= 100 ? [1000, 'ms'] : [1, 'µs'];
    pen.fillStyle = color('faint');
    for (let index = Math.ceil(from / step); index * step <= to; index++) {
      const x = this.xOf(index * step);
      const nearLeft = x < GUTTER + 24, nearRight = x > GUTTER + this.plotWidth - 24;
      pen.textAlign = nearLeft ? 'left' : nearRight ? 'right' : 'center';
      pen.fillRect(Math.min(x, GUTTER + this.plotWidth - 1), this.bottom + 2, 1, 4);
      pen.fillText(`${+(index * step / scale).toFixed(3)} ${unit}`, x, this.bottom + 14);
    }
  }

  /** The shortest span within reach of the pointer: what is thin can be pointed at too. */
  spanAt(x, y) {
    const row = this.rows.find(({ top, height }) => y >= top && y < top + height + LANE_GAP);
    const from = this.usOf(x - 2), to = this.usOf(x + 2);
    return row?.spans.filter((span) => span.from_us <= to && span.to_us >= from)
      .sort((one, other) => lengthOf(one) - lengthOf(other))[0];
  }

  point({ offsetX, offsetY, clientX, clientY }) {
    const span = offsetX >= GUTTER && this.spanAt(offsetX, offsetY);
    if (!span) return hideTip();
    showTip(clientX, clientY,
      html('strong', {}, CLASSES[span.class]),
      html('div', {}, `for ${human(lengthOf(span))}`),
      html('div', { class: 'faint' }, `from ${exact(span.from_us)} to ${exact(span.to_us)}`));
  }

  listen(change) {
    const { canvas, view } = this;
    let draggedFrom = null;
    canvas.addEventListener('pointerdown', (event) => {
      draggedFrom = event.offsetX;
      canvas.setPointerCapture(event.pointerId);
    });
    for (const end of ['pointerup', 'pointercancel'])
      canvas.addEventListener(end, () => { draggedFrom = null; });
    canvas.addEventListener('pointermove', (event) => {
      if (draggedFrom !== null) {
        change(1, (draggedFrom - event.offsetX) / this.plotWidth);
        draggedFrom = event.offsetX;
      }
      this.point(event);
    });
    canvas.addEventListener('pointerleave', hideTip);
    canvas.addEventListener('wheel', (event) => {
      // Zooming out of the whole view is what a reader does who scrolls on down the page.
      if (event.deltaY > 0 && view.length >= view.end) return;
      event.preventDefault();
      change(1.0015 ** event.deltaY, 0, clamp((event.offsetX - GUTTER) / this.plotWidth, 0, 1));
      this.point(event);
    }, { passive: false });
    canvas.addEventListener('keydown', (event) => {
      const move = MOVES[event.key];
      if (!move || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      change(...move);
    });
  }
}

function laneRow({ cpu, role, spans }, index) {
  const top = index * (LANE_HEIGHT + LANE_GAP);
  return { name: role, detail: `lane ${cpu}`, spans, top, height: LANE_HEIGHT };
}

/** A moment to the nanosecond: two ends of a short span must not read the same. */
function exact(us) {
  return us >= 1000 ? `${+(us / 1000).toFixed(6)} ms` : `${+us.toFixed(3)} µs`;
}

drawTimelines(data.timelines ?? []);
