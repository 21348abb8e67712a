// Lane timelines: a canvas for each setting, with a row for each lane and the overlap below.

/** The meaning of each colour; the keys are the names of the spans and of the style's variables. */
const CLASSES = {
  service: 'service', batch: 'batch', holder: 'holder (keeps the lane empty)',
  other: 'other', idle: 'idle', overlap: 'overlap: service and batch at once',
};
const LANE_HEIGHT = 26, LANE_GAP = 4, STRIP_HEIGHT = 10;
/** The narrowest view: a context switch takes about a microsecond, so a narrower view shows no
 * more. */
const NARROWEST_US = 5;
/** The smallest width in pixels of an overlap, so that it stays visible when zoomed out. */
const OVERLAP_WIDTH_MIN = 1.5;

const lengthOf = ({ from_us, to_us }) => to_us - from_us;

/** The times in which an LC thread and batch ran at once, on any lanes of the core. */
function overlaps(lanes) {
  const edges = lanes.flatMap(({ spans }) => spans)
    .filter((span) => span.class === 'service' || span.class === 'batch')
    .flatMap((span) => [
      { us: span.from_us, of: span.class, by: 1 }, { us: span.to_us, of: span.class, by: -1 },
    ])
    .sort((one, other) => one.us - other.us || one.by - other.by);
  const running = { service: 0, batch: 0 }, found = [];
  let since = null;
  for (const { us, of, by } of edges) {
    running[of] += by;
    if (running.service > 0 && running.batch > 0) since ??= us;
    else if (since !== null) {
      if (us > since) found.push({ from_us: since, to_us: us, class: 'overlap' });
      since = null;
    }
  }
  return found;
}

function drawTimelines(timelines) {
  const spans = timelines.flatMap(({ lanes }) => lanes.flatMap((lane) => lane.spans));
  const end = spans.reduce((latest, { to_us }) => Math.max(latest, to_us), 0);
  if (end === 0) return;

  const view = new View(end, NARROWEST_US);
  const tracks = timelines.map((timeline) => new Track(timeline, view));
  frame('timelines', 'Which program ran on the lanes',
    `${human(end).replace('.0', '')} of each setting; a block is one turn of a thread. Zoom with the wheel or `
    + 'the buttons, drag to move. Overlap is drawn wide enough to be seen at every zoom.',
    html('ul', { class: 'legend' }, ...Object.entries(CLASSES).map(([name, words]) =>
      html('li', {}, html('i', { style: `background: var(--${name})` }), words))),
    view.tools('Zoom the timelines'),
    ...tracks.map(({ element }) => element));
  view.show(tracks);
}

/** One setting: a heading with its overlap in words, and a canvas with its lanes. */
class Track extends TimeCanvas {
  constructor({ setting, lanes }, view) {
    const strip = overlaps(lanes);
    const leak = strip.reduce((sum, span) => sum + lengthOf(span), 0);
    const share = (100 * leak / view.end).toFixed(2);
    const words = leak ? `overlap ${human(leak)} (${share} %)` : 'no overlap';
    const top = lanes.length * (LANE_HEIGHT + LANE_GAP), bottom = top + STRIP_HEIGHT;
    super(view, bottom + AXIS_HEIGHT, `Lanes under ${setting}: ${words}`);
    this.bottom = bottom;
    this.rows = [...lanes.map(laneRow), { name: 'overlap', spans: strip, top, height: STRIP_HEIGHT }];
    this.element = html('div', { class: 'track' },
      html('p', {}, html('strong', {}, setting),
        html('span', { class: leak ? 'overlapped' : 'faint' }, words)),
      this.canvas);
  }

  paint(pen, color) {
    for (const row of this.rows) this.drawRow(pen, row, color);
    this.drawAxis(pen, color, this.bottom);
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

  /** The shortest span near the pointer, so that narrow spans can be selected too. */
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
}

function laneRow({ cpu, role, spans }, index) {
  const top = index * (LANE_HEIGHT + LANE_GAP);
  return { name: role, detail: `lane ${cpu}`, spans, top, height: LANE_HEIGHT };
}

drawTimelines(data.timelines ?? []);
