// Helpers of figures over time: a view of time, the buttons and keys that change it, and canvases
// that draw it. All canvases of a figure share one view, so that they can be compared at every
// zoom.

/** Width for names and numbers at the left of a canvas, unless it says otherwise. */
const GUTTER = 62;
const AXIS_HEIGHT = 22;

/** Keys and buttons, with the factor by which the view grows and the share of it by which it moves. */
const MOVES = {
  '+': [0.5, 0], '=': [0.5, 0], '-': [2, 0], '0': [Infinity, 0],
  ArrowLeft: [1, -0.2], ArrowRight: [1, 0.2],
};
const BUTTONS = [
  ['+', 'Zoom in', '+'], ['−', 'Zoom out', '-'], ['◀', 'Earlier', 'ArrowLeft'],
  ['▶', 'Later', 'ArrowRight'], ['All', 'Show everything', '0'],
];

/** The visible time range: `from` to `to`, within `start` to `end`, in microseconds. */
class View {
  /** The view is never shorter than `narrowest`. */
  constructor(end, narrowest) {
    Object.assign(this, { start: 0, from: 0, to: end, end, narrowest, canvases: [], due: false });
    this.shown = html('output', {});
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.redraw());
  }

  get length() {
    return this.to - this.from;
  }

  /** The whole range, all of which becomes visible. */
  set(start, end) {
    Object.assign(this, { start, end, from: start, to: end });
  }

  get whole() {
    return this.end - this.start;
  }

  /** Zooms around the point at share `around` of the view, then moves by the share `shift` of it. */
  change(factor, shift, around = 0.5) {
    const length = clamp(this.length * factor, Math.min(this.narrowest, this.whole), this.whole);
    const from = this.from + (this.length - length) * around + shift * length;
    this.from = clamp(from, this.start, this.end - length);
    this.to = this.from + length;
    if (this.due) return;
    // Wheel events come more often than frames.
    this.due = true;
    requestAnimationFrame(() => this.redraw());
  }

  redraw() {
    this.due = false;
    this.shown.textContent = `${human(this.length)} from ${exact(this.from)}`;
    for (const canvas of this.canvases) {
      canvas.isStale = true;
      canvas.drawIfSeen();
    }
  }

  /** The buttons, and a description of the visible range. */
  tools(words) {
    const button = ([label, words, key]) => {
      const element = html('button', { type: 'button', 'aria-label': words, title: words }, label);
      element.addEventListener('click', () => this.change(...MOVES[key]));
      return element;
    };
    const attributes = { class: 'tools', role: 'toolbar', 'aria-label': words };
    return html('div', attributes, ...BUTTONS.map(button), this.shown);
  }

  /** Draws all `canvases` now, so that a picture of the whole page shows them. Later, when the view or
   * their width changes, those outside the window are drawn when they are scrolled into it. */
  show(canvases) {
    this.canvases = canvases;
    const of = new Map(canvases.map((canvas) => [canvas.canvas, canvas]));
    const watch = new IntersectionObserver((changes) => {
      for (const { target, isIntersecting } of changes) {
        of.get(target).isSeen = isIntersecting;
        of.get(target).drawIfSeen();
      }
    }, { rootMargin: '300px' });
    for (const { canvas } of canvases) watch.observe(canvas);
    const drawAll = () => canvases.forEach((canvas) => canvas.draw());
    addEventListener('beforeprint', drawAll);
    onWidth(canvases[0].canvas, () => this.redraw());
    drawAll();
  }
}

/** A canvas of the view. `paint` draws it; `point` gives the tooltip at the pointer. */
class TimeCanvas {
  constructor(view, height, words) {
    Object.assign(this, { view, gutter: GUTTER, isSeen: false, isStale: false });
    this.canvas = html('canvas', {
      tabindex: 0, role: 'img', style: `height: ${height}px`,
      'aria-label': `${words}. Plus and minus zoom, arrows move, 0 shows all.`,
    });
    this.listen();
  }

  get plotWidth() {
    return this.canvas.clientWidth - this.gutter;
  }

  xOf(us) {
    return this.gutter + (us - this.view.from) / this.view.length * this.plotWidth;
  }

  usOf(x) {
    return this.view.from + (x - this.gutter) / this.plotWidth * this.view.length;
  }

  /** Canvases outside the window are not drawn again until they are visible. */
  drawIfSeen() {
    if (this.isStale && this.isSeen) this.draw();
  }

  draw() {
    const { canvas } = this;
    this.isStale = false;
    const sharp = devicePixelRatio || 1;
    canvas.width = Math.round(canvas.clientWidth * sharp);
    canvas.height = Math.round(canvas.clientHeight * sharp);
    const style = getComputedStyle(canvas);
    const pen = canvas.getContext('2d');
    pen.scale(sharp, sharp);
    pen.font = `12px ${style.fontFamily}`;
    pen.textBaseline = 'middle';
    this.paint(pen, (name) => style.getPropertyValue(`--${name}`).trim());
  }

  /** Round times, far enough apart for labels, and the distance between them. */
  ticks() {
    const { from, to, length } = this.view;
    const room = length * 90 / this.plotWidth;
    const power = 10 ** Math.floor(Math.log10(room));
    const step = [1, 2, 5, 10].map((by) => by * power).find((size) => size >= room);
    const moments = [];
    for (let index = Math.ceil(from / step); index * step <= to; index++) moments.push(index * step);
    return { step, moments };
  }

  drawAxis(pen, color, top) {
    const { step, moments } = this.ticks();
    const right = this.gutter + this.plotWidth;
    // Every label has the unit of the step, so that labels can be compared.
    const [scale, unit] = step >= 1e5 ? [1e6, 's'] : step >= 100 ? [1000, 'ms'] : [1, 'µs'];
    pen.fillStyle = color('faint');
    for (const us of moments) {
      const x = this.xOf(us);
      pen.textAlign = x < this.gutter + 24 ? 'left' : x > right - 24 ? 'right' : 'center';
      pen.fillRect(Math.min(x, right - 1), top + 2, 1, 4);
      pen.fillText(`${+(us / scale).toFixed(3)} ${unit}`, x, top + 14);
    }
  }

  listen() {
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
        view.change(1, (draggedFrom - event.offsetX) / this.plotWidth);
        draggedFrom = event.offsetX;
      }
      this.point(event);
    });
    canvas.addEventListener('pointerleave', hideTip);
    canvas.addEventListener('wheel', (event) => {
      // When the whole range is visible, the wheel scrolls the page.
      if (event.deltaY > 0 && view.length >= view.whole) return;
      event.preventDefault();
      view.change(1.0015 ** event.deltaY, 0, clamp((event.offsetX - this.gutter) / this.plotWidth, 0, 1));
      this.point(event);
    }, { passive: false });
    canvas.addEventListener('keydown', (event) => {
      const move = MOVES[event.key];
      if (!move || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      view.change(...move);
    });
  }
}

/** A time to the nanosecond: both ends of a short span must be distinguishable. */
function exact(us) {
  if (us < 0) return `−${exact(-us)}`;
  return us >= 1000 ? `${+(us / 1000).toFixed(6)} ms` : `${+us.toFixed(3)} µs`;
}
