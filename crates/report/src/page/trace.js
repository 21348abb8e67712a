// A trace of requests: all requests that were kept, over time, and one of them at a time with its threads, lanes and
// arrows.

const STORY_GUTTER = 148;
/** Where the window is narrow, names get at most this share of it. */
const STORY_GUTTER_SHARE = 0.25;
/** Lanes stand further apart than threads: arrows go between them. */
const REQUEST_HEIGHT = 30, ROW_HEIGHT = 22, ROW_GAPS = { thread: 5, lane: 20 }, SECTION_GAP = 22, MARKS_HEIGHT = 34;
const PICK_HEIGHT = 110;
/** The narrowest view of one request: a switch takes about a microsecond. */
const STORY_NARROWEST_US = 2;
/** How much before the arrival and after the end is shown, as a share of the latency. */
const STORY_MARGIN = 0.03;
const STEPS_MAX = 40;
/** Steps shorter than this share of the latency are not listed. */
const STEP_SHARE_MIN = 0.01;

/** Colours and words of who had a lane. */
const WHO = {
  request: ['who-request', 'a thread of this request ran'], service: ['who-service', 'another thread of the service ran'],
  other: ['who-other', 'another program ran'], interrupt: ['cause-interrupt', 'an interrupt ran'],
};
const ARROWS = { wake: 'wake-up, from the waker to the first moment on a lane', flow: 'the path of the request' };

const causeColor = (cause) => `cause-${cause}`;

/** The requests over the length of the trace; a click or the arrow keys choose one. */
class Pick extends TimeCanvas {
  constructor(trace, view, choose) {
    super(view, PICK_HEIGHT + AXIS_HEIGHT, 'Requests over the time of the trace; slower ones are higher');
    const us = trace.requests.map(({ latency_us }) => latency_us);
    Object.assign(this, {
      trace, choose, chosen: null, gutter: GUTTER,
      low: Math.log(Math.min(...us, trace.limit_us) * 0.7), high: Math.log(Math.max(...us, trace.limit_us) * 1.5),
    });
    this.canvas.addEventListener('click', (event) => {
      const request = this.requestAt(event.offsetX, event.offsetY);
      if (request) choose(request);
    });
    this.element = html('div', { class: 'pick' }, this.canvas);
  }

  yOf(us) {
    return PICK_HEIGHT * (1 - (Math.log(us) - this.low) / (this.high - this.low));
  }

  paint(pen, color) {
    const { trace } = this;
    pen.fillStyle = color('idle');
    pen.fillRect(this.gutter, 0, this.plotWidth, PICK_HEIGHT);
    const limit = this.yOf(trace.limit_us);
    pen.fillStyle = color('bad');
    for (let x = this.gutter; x < this.gutter + this.plotWidth; x += 9) pen.fillRect(x, limit, 6, 1);
    pen.textAlign = 'left';
    pen.fillText(human(trace.limit_us), 0, limit);
    for (const request of trace.requests) this.drawDot(pen, color, request);
    if (this.chosen) this.drawDot(pen, color, this.chosen);
    this.drawAxis(pen, color, PICK_HEIGHT);
  }

  drawDot(pen, color, request) {
    const x = this.xOf(request.arrived_us), y = this.yOf(request.latency_us);
    if (x < this.gutter || x > this.gutter + this.plotWidth) return;
    const isChosen = request === this.chosen;
    pen.beginPath();
    pen.arc(x, y, isChosen ? 6 : 4, 0, 2 * Math.PI);
    pen.fillStyle = color(causeColor(request.time[0]?.cause)) || color('other');
    pen.fill();
    pen.lineWidth = isChosen ? 2 : 1;
    pen.strokeStyle = isChosen ? color('ink') : color('card');
    pen.stroke();
  }

  requestAt(x, y) {
    const distance = (request) => Math.hypot(this.xOf(request.arrived_us) - x, this.yOf(request.latency_us) - y);
    return this.trace.requests.map((request) => [distance(request), request])
      .filter(([far]) => far < 12).sort(([one], [other]) => one - other)[0]?.[1];
  }

  point({ offsetX, offsetY, clientX, clientY }) {
    const request = this.requestAt(offsetX, offsetY);
    if (!request) return hideTip();
    showTip(clientX, clientY, html('strong', {}, `request ${request.number}`),
      html('div', {}, `took ${human(request.latency_us)}`),
      html('div', { class: 'faint' }, `arrived at ${(request.arrived_us / 1e6).toFixed(3)} s`));
  }
}

/** One request: its time by cause, its threads, the lanes, and arrows over all of them. */
class Story extends TimeCanvas {
  constructor(trace, view) {
    super(view, 200, 'One request with its threads and lanes');
    Object.assign(this, { trace, names: new Map(trace.causes.map(({ cause, name }) => [cause, name])) });
    this.element = html('div', {}, this.canvas);
  }

  /** Lays out the rows of `request`: threads, then lanes. */
  show(request) {
    let top = MARKS_HEIGHT + REQUEST_HEIGHT + SECTION_GAP;
    this.request = request;
    this.rows = request.rows.map((row, index) => {
      if (index > 0 && row.of !== request.rows[index - 1].of) top += SECTION_GAP - ROW_GAPS.thread;
      const placed = { ...row, top, spans: request.spans.filter((span) => span.row === index) };
      top += ROW_HEIGHT + ROW_GAPS[row.of];
      return placed;
    });
    this.bottom = top;
    this.canvas.style.height = `${top + AXIS_HEIGHT}px`;
    const margin = Math.max(request.latency_us * STORY_MARGIN, 1);
    this.view.set(-margin, request.latency_us + margin);
  }

  paint(pen, color) {
    if (!this.request) return;
    this.gutter = Math.min(STORY_GUTTER, this.canvas.clientWidth * STORY_GUTTER_SHARE);
    pen.save();
    pen.beginPath();
    pen.rect(this.gutter, 0, this.plotWidth, this.bottom + AXIS_HEIGHT);
    pen.clip();
    this.drawSpans(pen, color, this.request.spans, MARKS_HEIGHT, REQUEST_HEIGHT);
    for (const row of this.rows) this.drawRow(pen, color, row);
    this.drawMarks(pen, color);
    for (const arrow of this.request.arrows) this.drawArrow(pen, color, arrow);
    pen.restore();
    this.drawNames(pen, color);
    this.drawAxis(pen, color, this.bottom);
  }

  drawRow(pen, color, { top, blocks, spans }) {
    pen.fillStyle = color('idle');
    pen.fillRect(this.gutter, top, this.plotWidth, ROW_HEIGHT);
    for (const { from_us, to_us, who } of blocks) this.drawBlock(pen, color(WHO[who][0]), from_us, to_us, top, ROW_HEIGHT);
    this.drawSpans(pen, color, spans, top, ROW_HEIGHT);
  }

  drawSpans(pen, color, spans, top, height) {
    for (const { from_us, to_us, cause } of spans)
      this.drawBlock(pen, color(causeColor(cause)) || color('other'), from_us, to_us, top, height);
  }

  /** At least a pixel wide, so that it stays visible when zoomed out. */
  drawBlock(pen, fill, from_us, to_us, top, height) {
    const left = Math.max(this.xOf(from_us), this.gutter);
    const right = Math.min(this.xOf(to_us), this.gutter + this.plotWidth);
    if (right < this.gutter || left > this.gutter + this.plotWidth) return;
    pen.fillStyle = fill;
    pen.fillRect(left, top, Math.max(1, right - left), height);
  }

  /** Stages are lines over all rows; a name that has no room beside its neighbour is one line lower. */
  drawMarks(pen, color) {
    const ends = [-Infinity, -Infinity];
    pen.textAlign = 'left';
    for (const { us, words } of this.request.marks) {
      const x = this.xOf(us), width = pen.measureText(words).width;
      pen.fillStyle = color('stage');
      pen.fillRect(x - 1, MARKS_HEIGHT - 4, 2, this.bottom - MARKS_HEIGHT + 4);
      const at = Math.min(x + 3, this.gutter + this.plotWidth - width);
      const line = ends.findIndex((end) => at > end + 6);
      if (line < 0) continue;
      ends[line] = at + width;
      pen.fillText(words, at, 7 + 15 * line);
    }
  }

  drawArrow(pen, color, { kind, from_us, from_row, to_us, to_row }) {
    const [from, to] = [this.rows[from_row], this.rows[to_row]];
    if (!from || !to) return;
    const down = from.top <= to.top;
    const x1 = this.xOf(from_us), x2 = this.xOf(to_us);
    const y1 = from.top + (down ? ROW_HEIGHT : 0), y2 = from === to ? y1 : to.top + (down ? 0 : ROW_HEIGHT);
    pen.strokeStyle = pen.fillStyle = color(kind);
    pen.lineWidth = kind === 'flow' ? 2 : 1.25;
    pen.beginPath();
    pen.moveTo(x1, y1);
    // The way of the request is bent, so that it does not hide a wake-up between the same moments.
    const bend = from === to ? 14 : kind === 'flow' ? (down ? 12 : -12) : 0;
    const [xm, ym] = [(x1 + x2) / 2, (y1 + y2) / 2 + bend];
    pen.quadraticCurveTo(xm, ym, x2, y2);
    pen.stroke();
    const angle = Math.atan2(y2 - ym, x2 - xm);
    pen.beginPath();
    pen.moveTo(x2, y2);
    for (const side of [-0.4, 0.4]) pen.lineTo(x2 - 7 * Math.cos(angle + side), y2 - 7 * Math.sin(angle + side));
    pen.fill();
  }

  drawNames(pen, color) {
    pen.textAlign = 'left';
    const name = (words, detail, middle) => {
      pen.fillStyle = color('ink');
      pen.fillText(fitted(pen, words, this.gutter - 10), 0, detail ? middle - 6 : middle);
      pen.fillStyle = color('faint');
      if (detail) pen.fillText(fitted(pen, detail, this.gutter - 10), 0, middle + 7);
    };
    name('the request', 'where its time went', MARKS_HEIGHT + REQUEST_HEIGHT / 2);
    for (const row of this.rows) name(row.name, row.detail, row.top + ROW_HEIGHT / 2);
  }

  /** What is at the pointer: an arrow's end first, then a span, then a block. */
  thingAt(x, y) {
    const at = this.usOf(x), slack = 3 * this.view.length / this.plotWidth;
    const near = ({ from_us, to_us }) => from_us <= at + slack && to_us >= at - slack;
    const shortest = (things) => things.filter(near).sort((one, other) => lengthOf(one) - lengthOf(other))[0];
    if (y >= MARKS_HEIGHT && y < MARKS_HEIGHT + REQUEST_HEIGHT) return shortest(this.request.spans);
    const index = this.rows.findIndex(({ top }) => y >= top - 3 && y < top + ROW_HEIGHT + 3);
    const row = this.rows[index];
    if (!row) return undefined;
    const isEdge = y < row.top + 4 || y >= row.top + ROW_HEIGHT - 4;
    const ends = this.request.arrows.filter(({ from_us, from_row, to_us, to_row }) =>
      (from_row === index && Math.abs(from_us - at) < 2 * slack) || (to_row === index && Math.abs(to_us - at) < 2 * slack));
    return (isEdge && ends[0]) || shortest(row.spans) || shortest(row.blocks) || ends[0];
  }

  point({ offsetX, offsetY, clientX, clientY }) {
    const thing = this.request && offsetX >= this.gutter && this.thingAt(offsetX, offsetY);
    if (!thing) return hideTip();
    const title = thing.cause ? this.names.get(thing.cause) ?? thing.cause : thing.who ? WHO[thing.who][1] : ARROWS[thing.kind];
    showTip(clientX, clientY, html('strong', {}, title), html('div', {}, thing.words),
      html('div', {}, `for ${human(lengthOf(thing))}`),
      html('div', { class: 'faint' }, `from ${exact(thing.from_us)} to ${exact(thing.to_us)} after its arrival`));
  }
}

/** `words`, cut to `width` pixels. */
function fitted(pen, words, width) {
  if (pen.measureText(words).width <= width) return words;
  let cut = words;
  while (cut && pen.measureText(`${cut}…`).width > width) cut = cut.slice(0, -1);
  return `${cut}…`;
}

/** What happened to a request, step by step, in words. */
function steps(request, names) {
  const least = request.latency_us * STEP_SHARE_MIN;
  const told = request.spans.filter((span) => lengthOf(span) >= least).slice(0, STEPS_MAX);
  return html('ol', { class: 'steps' }, ...told.map((span) => html('li', {},
    html('span', { class: 'faint' }, human(span.from_us)), html('span', {}, human(lengthOf(span))),
    html('div', {}, html('i', { class: 'chip', style: `background: var(--${causeColor(span.cause)}, var(--other))` }),
      `${names.get(span.cause) ?? span.cause}${span.words ? `: ${span.words}` : ''}`))));
}

/** The legend: causes, who had a lane, arrows, stages. Only what the request has is in it. */
function storyLegend(trace, request) {
  const item = (fill, words) => html('li', {}, html('i', { style: `background: ${fill}` }), words);
  const used = new Set(request.spans.map(({ cause }) => cause));
  const who = new Set(request.rows.flatMap(({ blocks }) => blocks.map((block) => block.who)));
  const arrows = new Set(request.arrows.map(({ kind }) => kind));
  return html('ul', { class: 'legend' },
    ...trace.causes.filter(({ cause }) => used.has(cause)).map(({ cause, name }) =>
      item(`var(--${causeColor(cause)}, var(--other))`, name)),
    ...Object.entries(WHO).filter(([key]) => who.has(key)).map(([, [name, words]]) => item(`var(--${name})`, words)),
    ...Object.entries(ARROWS).filter(([kind]) => arrows.has(kind)).map(([kind, words]) =>
      html('li', {}, html('span', { class: 'arrow-sample', style: `color: var(--${kind})` }), words)),
    item('var(--stage)', 'stage of the request'));
}

function drawTrace(trace) {
  if (!trace?.requests.length) return;
  const whole = new View(Math.max(trace.length_us, 1), Math.max(trace.length_us / 1e4, 1));
  const view = new View(1, STORY_NARROWEST_US);
  const names = new Map(trace.causes.map(({ cause, name }) => [cause, name]));
  const title = html('h3', { id: 'story' }), about = html('div', {});
  const pick = new Pick(trace, whole, choose), story = new Story(trace, view);

  function choose(request) {
    pick.chosen = request;
    story.show(request);
    title.textContent = `Request ${request.number}: ${human(request.latency_us)}`;
    const left = request.left_out_count ? [html('p', { class: 'caption' },
      `${request.left_out_count} more details of this request were not kept.`)] : [];
    about.replaceChildren(storyLegend(trace, request), ...left);
    list.replaceChildren(steps(request, names));
    for (const button of document.querySelectorAll('button.request'))
      button.setAttribute('aria-pressed', Number(button.dataset.request) === request.number);
    whole.redraw();
    view.redraw();
  }

  const by = (step) => () => {
    const at = trace.requests.indexOf(pick.chosen) + step;
    choose(trace.requests[clamp(at, 0, trace.requests.length - 1)]);
  };
  const list = html('div', {});
  const other = ([words, step]) => {
    const button = html('button', { type: 'button' }, words);
    button.addEventListener('click', by(step));
    return button;
  };
  const tools = view.tools('Zoom the request');
  tools.append(...[['Slower one', -1], ['Faster one', 1]].map(other));
  frame('trace', 'Request by request',
    'Above: the requests that were kept, over the time of the trace, slower ones higher; choose one. Below: that '
    + 'request, from its first segment to the last of its response, with its threads, and with the lanes on which they '
    + 'ran. Zoom with the wheel, the buttons, or + and −; drag or use the arrow keys to move; 0 shows all of it.',
    html('div', { class: 'story' }, pick.element, title, about, tools, story.element,
      html('h3', {}, 'Step by step'), list));
  whole.show([pick]);
  view.show([story]);
  choose(trace.requests[0]);
  for (const button of document.querySelectorAll('button.request')) {
    button.addEventListener('click', () => {
      const request = trace.requests.find(({ number }) => number === Number(button.dataset.request));
      if (!request) return;
      choose(request);
      title.scrollIntoView({ behavior: 'smooth', block: 'start' });
    });
  }
}

drawTrace(data.trace);
