// Helpers of all figures: elements, numbers with units, the tooltip, frames.
'use strict';

const data = JSON.parse(document.getElementById('data').textContent);
const tip = document.getElementById('tip');

/** An HTML element with attributes and children; a string child is text, never markup. */
function html(name, attributes = {}, ...children) {
  return build(document.createElement(name), attributes, children);
}

function svg(name, attributes = {}, ...children) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', name);
  return build(element, attributes, children);
}

function build(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/** Microseconds for users, in the units of the table. */
function human(us) {
  const [scale, unit] =
    us >= 999500 ? [1e6, 's'] :
    us >= 999.5 ? [1e3, 'ms'] :
    us >= 0.9995 || us === 0 ? [1, 'µs'] : [1e-3, 'ns'];
  const value = us / scale;
  return `${value === 0 ? '0' : value.toFixed(value < 99.95 ? 1 : 0)} ${unit}`;
}

const clamp = (value, low, high) => Math.min(high, Math.max(low, value));

/** Calls `draw` now and whenever the width of `element` changes, at most once a frame. */
function onWidth(element, draw) {
  let width = 0;
  const drawAtNewWidth = () => {
    if (element.clientWidth === width) return;
    width = element.clientWidth;
    draw();
  };
  drawAtNewWidth();
  new ResizeObserver(() => requestAnimationFrame(drawAtNewWidth)).observe(element);
}

/** Shows a tooltip next to the pointer, on the side with room. */
function showTip(x, y, ...lines) {
  tip.replaceChildren(...lines);
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const right = x + 14 + width < innerWidth;
  tip.style.left = `${right ? x + 14 : Math.max(4, x - 14 - width)}px`;
  tip.style.top = `${clamp(y + 14, 4, innerHeight - height - 4)}px`;
}

function hideTip() {
  tip.hidden = true;
}

/** Fills the frame that the page has for a figure. */
function frame(id, title, caption, ...content) {
  const place = document.getElementById(id);
  const heading = `${id}-title-${place.children.length}`;
  place.append(html('section', { 'aria-labelledby': heading },
    html('h2', { id: heading }, title),
    html('p', { class: 'caption' }, caption),
    html('figure', {}, ...content)));
  place.hidden = false;
}
