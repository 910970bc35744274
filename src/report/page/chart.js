'use strict';
// Small helpers of the pages, and class Chart, which draws lines over an axis on a canvas.

// Makes an element. Texts are set as text, never as HTML, so that names and values from files cannot add elements.
// `properties`: class, text, on... (listeners), style (custom properties), else attributes.
function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === 'class') element.className = value;
    else if (name === 'text') element.textContent = value;
    else if (name === 'style') for (const [key, text] of Object.entries(value)) element.style.setProperty(key, text);
    else if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (name === 'value' || name === 'checked' || name === 'disabled') element[name] = value;
    else element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.flat().filter(child => child !== null && child !== undefined && child !== false));
  return element;
}

const isNumber = value => typeof value === 'number' && Number.isFinite(value);

function formatNumber(value) {
  if (!isNumber(value)) return '–';
  const size = Math.abs(value);
  if (size === 0) return '0';
  if (size >= 1e15 || size < 1e-4) return value.toExponential(2).replace('e+', 'e');
  if (size >= 1e4) return Math.round(value).toLocaleString('en-US');
  return String(Number(value.toPrecision(size >= 100 ? 5 : 4)));
}

function formatCompact(value) {
  if (!isNumber(value)) return '–';
  const size = Math.abs(value);
  for (const [unit, letter] of [[1e12, 'T'], [1e9, 'B'], [1e6, 'M'], [1e3, 'k']])
    if (size >= unit) return String(Number((value / unit).toPrecision(3))) + letter;
  if (size !== 0 && size < 1e-3) return value.toExponential(1).replace('.0e', 'e').replace('e+', 'e');
  return String(Number(value.toPrecision(4)));
}

function formatBytes(value) {
  if (!isNumber(value)) return '–';
  const size = Math.abs(value);
  for (const [unit, name] of [[1e12, 'TB'], [1e9, 'GB'], [1e6, 'MB'], [1e3, 'KB']])
    if (size >= unit) return (value / unit).toFixed(size >= 100 * unit ? 0 : size >= 10 * unit ? 1 : 2) + ' ' + name;
  return value + ' bytes';
}

function formatDuration(seconds) {
  if (!isNumber(seconds) || seconds < 0) return '–';
  if (seconds < 10) return Number(seconds.toPrecision(2)) + ' s';
  if (seconds < 60) return Math.round(seconds) + ' s';
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`.replace(' 0 s', '');
  if (minutes < 48 * 60) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  return `${Math.floor(minutes / 1440)} d ${Math.round(minutes % 1440 / 60)} h`;
}

function formatMoment(seconds) {
  if (!isNumber(seconds) || seconds <= 0) return '–';
  const date = new Date(seconds * 1000), two = number => String(number).padStart(2, '0');
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${two(date.getHours())}:${two(date.getMinutes())}`;
}

const FIGURES = {
  loss: 'Training loss', eval_loss: 'Evaluation loss', lr: 'Learning rate', grad_norm: 'Gradient norm',
  throughput: 'Tokens per second', host_memory_bytes: 'Host memory of the process',
  device_memory_bytes: 'Device memory, most so far', eval_accuracy: 'Evaluation: token accuracy',
  eval_perplexity: 'Evaluation: perplexity',
};
function figureTitle(name) {
  if (FIGURES[name]) return FIGURES[name];
  const words = name.replace(/^eval_/, 'Evaluation: ').replaceAll('_', ' ');
  return words.charAt(0).toUpperCase() + words.slice(1);
}
const figureFormat = name => name.endsWith('_bytes') ? formatBytes : formatNumber;
const AXES = {step: 'step', seconds: 'time', tokens: 'tokens', epoch: 'epoch'};
const axisFormat = axis => axis === 'seconds' ? formatDuration : axis === 'tokens' ? formatCompact : formatNumber;

// Returns the texts of ticks. They have all digits if shorter texts would be equal.
function tickLabels(ticks, format) {
  const labels = ticks.map(format);
  return new Set(labels).size === labels.length ? labels : ticks.map(tick => Number(tick.toPrecision(10)).toLocaleString('en-US', {maximumSignificantDigits: 10}));
}

// Returns ticks at 1, 2 or 5 times a power of ten.
function niceTicks(low, high, count) {
  const rough = (high - low) / Math.max(1, count), power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5, 10].find(one => one * power >= rough) || 10);
  const ticks = [];
  for (let tick = Math.ceil(low / step - 1e-9) * step; tick <= high + step * 1e-9 && ticks.length < 50; tick += step)
    ticks.push(Math.abs(tick) < step * 1e-9 ? 0 : tick);
  return ticks;
}
function logTicks(low, high) {
  const ticks = [], decades = Math.log10(high / low);
  const parts = decades > 3 ? [1] : decades > 1 ? [1, 2, 5] : [1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9];
  const every = Math.max(1, Math.ceil(decades / 6));
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high) + 1; ++power)
    for (const part of parts) {
      const tick = part * 10 ** power;
      if (tick >= low * .999 && tick <= high * 1.001 && (part !== 1 || power % every === 0)) ticks.push(tick);
    }
  return ticks;
}

// Returns an exponential average along the axis. `amount` (0 to 1) sets the share of the shown axis over which
// values are averaged. The weight of a point grows with its distance from the previous point. So the result hardly depends on the
// number of points.
function smoothed(x, values, amount, span) {
  if (amount <= 0 || values.length < 3) return values;
  const reach = span * amount * amount * .12 || 1e-12, out = [];
  let average = null, weight = 0;
  for (let i = 0; i < values.length; ++i) {
    const value = values[i];
    if (!isNumber(value)) { out.push(null); continue; }
    const length = i > 0 ? x[i] - x[i - 1] : values.length > 1 ? x[1] - x[0] : 1;
    const keep = Math.exp(-Math.max(length, span * 1e-9) / reach);
    weight = weight * keep + (1 - keep);
    average = average === null ? value : average + (value - average) * (1 - keep) / weight;
    out.push(average);
  }
  return out;
}

// Returns the index of the value nearest to `at` in a rising list.
function nearest(list, at) {
  let low = 0, high = list.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle] < at) low = middle + 1; else high = middle;
  }
  return low > 0 && at - list[low - 1] <= list[low] - at ? low - 1 : low;
}

const themeColours = () => {
  const style = getComputedStyle(document.documentElement);
  return name => style.getPropertyValue(name).trim();
};

// All charts of a page show the values at the same axis position, the one under the pointer.
const chartsOnPage = new Set();

class Chart {
  // `options`: title, format (of values), onzoom(from, to) or onzoom(null).
  constructor(options) {
    this.options = options;
    this.series = [];
    this.view = {axis: 'step', smooth: 0, log: false, clip: false, from: null, to: null};
    this.at = null;    // place of the cross hair on the axis
    this.drag = null;
    this.caption = h('span', {class: 'last'});
    this.canvas = h('canvas', {'aria-hidden': 'true'});
    this.none = h('div', {class: 'none', text: 'no values yet'});
    this.plot = h('div', {class: 'plot', tabindex: '0', role: 'img'}, this.canvas, this.none);
    this.readout = h('div', {class: 'readout hidden', role: 'status'});
    this.wide = h('button', {class: 'button quiet', type: 'button', text: 'Enlarge', 'aria-pressed': 'false',
      onclick: () => this.enlarge()});
    this.element = h('figure', {class: 'chart'},
      h('figcaption', {}, h('b', {text: options.title, title: options.title}), this.caption, this.wide), this.plot, this.readout);
    this.listen();
    new ResizeObserver(() => this.draw()).observe(this.plot);
    chartsOnPage.add(this);
  }

  remove() {
    chartsOnPage.delete(this);
    this.element.remove();
  }

  // `series`: [{name, colour (custom property), curve: {x, steps, mean, low, high}}]
  set(series, view) {
    this.series = series.filter(one => one.curve && one.curve.x.length);
    Object.assign(this.view, view);
    const last = this.series.length === 1 ? this.series[0].curve.mean.at(-1) : null;
    this.caption.textContent = isNumber(last) ? this.options.format(last) : '';
    const texts = this.series.map(one => `${one.name}: last ${this.options.format(one.curve.mean.at(-1))}`);
    this.plot.setAttribute('aria-label', `${this.options.title} by ${AXES[this.view.axis]}; ` +
      (texts.length ? texts.slice(0, 12).join('; ') : 'no values yet') + '. Arrow keys read values.');
    this.draw();
  }

  enlarge() {
    const wide = this.element.classList.toggle('wide');
    this.wide.textContent = wide ? 'Reduce' : 'Enlarge';
    this.wide.setAttribute('aria-pressed', String(wide));
    this.draw();
  }

  listen() {
    const place = event => {
      const box = this.plot.getBoundingClientRect();
      return this.fromPixel(event.clientX - box.left);
    };
    this.plot.addEventListener('pointermove', event => {
      if (this.drag) this.drag.to = place(event);
      this.point(place(event));
    });
    this.plot.addEventListener('pointerleave', () => { if (!this.drag) this.point(null); });
    this.plot.addEventListener('pointerdown', event => {
      if (event.button !== 0 || event.pointerType === 'touch' || !this.options.onzoom) return;
      this.drag = {from: place(event), to: place(event)};
      this.plot.setPointerCapture(event.pointerId);
    });
    this.plot.addEventListener('pointerup', () => {
      const drag = this.drag;
      this.drag = null;
      if (!drag || !this.scale) return;
      const low = Math.min(drag.from, drag.to), high = Math.max(drag.from, drag.to);
      if (this.scale.x(high) - this.scale.x(low) > 6) this.options.onzoom(low, high);
      else this.draw();
    });
    this.plot.addEventListener('dblclick', () => this.options.onzoom && this.options.onzoom(null));
    this.plot.addEventListener('blur', () => this.point(null));
    this.plot.addEventListener('keydown', event => {
      if (!this.scale) return;
      const x = this.series[0].curve.x;
      const move = {ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20, Home: -Infinity, End: Infinity}[event.key];
      if (move !== undefined) {
        const now = this.at === null ? (move < 0 ? x.length : -1) : nearest(x, this.at);
        this.point(x[Math.min(x.length - 1, Math.max(0, now + move))]);
      } else if (event.key === 'Escape') {
        if (this.at === null && this.options.onzoom) this.options.onzoom(null);
        this.point(null);
      } else if ((event.key === '+' || event.key === '-') && this.options.onzoom) {
        const {low, high} = this.scale, middle = this.at === null ? (low + high) / 2 : this.at;
        const half = (high - low) * (event.key === '+' ? .25 : 1);
        this.options.onzoom(middle - half, middle + half);
      } else {
        return;
      }
      event.preventDefault();
    });
  }

  fromPixel(pixel) {
    if (!this.scale) return null;
    const {left, right, low, high} = this.scale;
    return low + (high - low) * Math.min(1, Math.max(0, (pixel - left) / (right - left)));
  }

  point(at) {
    for (const chart of chartsOnPage)
      if (chart === this || chart.options.group === this.options.group) {
        chart.at = at;
        chart.draw();
      }
    this.readOut();
    for (const chart of chartsOnPage) if (chart !== this) chart.readout.classList.add('hidden');
  }

  readOut() {
    const {at, scale} = this;
    this.readout.classList.toggle('hidden', at === null || !scale);
    if (at === null || !scale) return;
    const rows = [];
    let shownAt = at;
    for (const one of this.series) {
      const {x, steps, mean, low, high} = one.curve, i = nearest(x, at);
      if (Math.abs(x[i] - at) > (scale.high - scale.low) * .08) continue;
      if (!rows.length) shownAt = x[i];
      const range = low && low[i] !== high[i] ? ` (${this.options.format(low[i])} to ${this.options.format(high[i])})` : '';
      rows.push({value: mean[i], element: h('div', {class: 'one', style: {'--swatch': `var(${one.colour})`}},
        h('i', {class: 'swatch'}), h('span', {text: this.series.length > 1 ? one.name : `step ${formatNumber(steps[i])}`}),
        h('b', {text: this.options.format(mean[i]) + range}))});
    }
    rows.sort((a, b) => b.value - a.value);
    const axis = this.view.axis;
    this.readout.replaceChildren(
      h('div', {class: 'at', text: `${AXES[axis]} ${axisFormat(axis)(shownAt)}`}), ...rows.slice(0, 16).map(row => row.element));
    const pixel = scale.x(at) + this.plot.offsetLeft, width = this.readout.offsetWidth;
    const left = pixel + 14 + width < this.element.clientWidth ? pixel + 14 : Math.max(4, pixel - width - 14);
    this.readout.style.left = left + 'px';
    this.readout.style.top = this.plot.offsetTop + 8 + 'px';
  }

  // Returns the values in the shown range of the axis, together with the smoothed values.
  shown() {
    const {from, to, smooth, log} = this.view;
    let low = Infinity, high = -Infinity;
    for (const {curve} of this.series) {
      low = Math.min(low, curve.x[0]);
      high = Math.max(high, curve.x.at(-1));
    }
    if (from !== null) { low = from; high = to; }
    if (high <= low) { low -= .5; high += .5; }
    const good = value => isNumber(value) && (!log || value > 0);
    const values = [];
    const lines = this.series.map(({curve, colour}) => {
      const line = smoothed(curve.x, curve.mean, smooth, high - low);
      for (let i = 0; i < curve.x.length; ++i) {
        if (curve.x[i] < low || curve.x[i] > high) continue;
        const all = [curve.mean[i], curve.low && curve.low[i], curve.high && curve.high[i]];
        for (const value of smooth > 0 ? this.view.clip ? [line[i]] : [line[i], ...all] : all) if (good(value)) values.push(value);
      }
      return {curve, colour, line};
    });
    values.sort((a, b) => a - b);
    const cut = this.view.clip ? Math.floor(values.length * .02) : 0;
    let bottom = values[cut], top = values[values.length - 1 - cut];
    if (log) {
      if (top / bottom < 1.2) { bottom /= 1.1; top *= 1.1; }
      const space = (top / bottom) ** .05;
      bottom /= space; top *= space;
    } else {
      if (top - bottom < 1e-12 * Math.max(1e-300, Math.abs(top))) {
        const half = Math.abs(top) * .1 || 1;
        bottom -= half; top += half;
      }
      const space = (top - bottom) * .06, touches = bottom >= 0 && bottom - space < 0;
      bottom = touches ? 0 : bottom - space;
      top += space;
    }
    return {lines, low, high, bottom, top, good, any: values.length > 0};
  }

  draw() {
    const width = this.plot.clientWidth, height = this.plot.clientHeight;
    if (!width || !height) return;
    const ratio = window.devicePixelRatio || 1, canvas = this.canvas;
    if (canvas.width !== Math.round(width * ratio)) canvas.width = Math.round(width * ratio);
    if (canvas.height !== Math.round(height * ratio)) canvas.height = Math.round(height * ratio);
    const pen = canvas.getContext('2d'), colour = themeColours();
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    const shown = this.series.length ? this.shown() : {any: false};
    this.none.classList.toggle('hidden', shown.any);
    this.scale = null;
    if (!shown.any) return;
    const {low, high, bottom, top} = shown, log = this.view.log;
    pen.font = '11px ' + colour('--sans');
    const ticks = log ? logTicks(bottom, top) : niceTicks(bottom, top, Math.max(2, height / 44));
    const labels = tickLabels(ticks, this.options.format === formatBytes ? formatBytes : formatCompact);
    const left = Math.ceil(Math.max(24, ...labels.map(label => pen.measureText(label).width))) + 8;
    const right = width - 8, upper = 6, lower = height - 20;
    const unit = log ? value => Math.log(value / bottom) / Math.log(top / bottom) : value => (value - bottom) / (top - bottom);
    const x = at => left + (right - left) * (at - low) / (high - low), y = value => lower - (lower - upper) * unit(value);
    this.scale = {x, left, right, low, high};

    pen.lineWidth = 1;
    pen.textBaseline = 'middle';
    pen.textAlign = 'right';
    ticks.forEach((tick, i) => {
      const at = Math.round(y(tick)) + .5;
      pen.strokeStyle = colour('--line');
      pen.beginPath(); pen.moveTo(left, at); pen.lineTo(right, at); pen.stroke();
      pen.fillStyle = colour('--soft');
      pen.fillText(labels[i], left - 6, at);
    });
    pen.textBaseline = 'alphabetic';
    const format = axisFormat(this.view.axis);
    let free = -Infinity;
    const marks = this.axisTicks(low, high, (right - left) / 76), names = tickLabels(marks, this.view.axis === 'step' ? formatCompact : format);
    for (const [i, tick] of marks.entries()) {
      const label = names[i], half = pen.measureText(label).width / 2;
      const at = Math.min(right - half, Math.max(left + half, x(tick)));
      if (at - half < free + 8) continue;
      pen.textAlign = 'center';
      pen.fillText(label, at, height - 5);
      free = at + half;
    }

    pen.save();
    pen.beginPath(); pen.rect(left, 0, right - left, lower + 1); pen.clip();
    const many = shown.lines.length > 12;
    for (const one of shown.lines) this.drawLine(pen, one, shown, x, y, colour(one.colour), many);
    if (this.drag) {
      const from = x(this.drag.from), to = x(this.drag.to);
      pen.globalAlpha = .14;
      pen.fillStyle = colour('--accent');
      pen.fillRect(Math.min(from, to), upper, Math.abs(to - from), lower - upper);
      pen.globalAlpha = 1;
    } else if (this.at !== null && this.at >= low && this.at <= high) {
      pen.strokeStyle = colour('--faint');
      pen.setLineDash([3, 3]);
      pen.beginPath(); pen.moveTo(x(this.at), upper); pen.lineTo(x(this.at), lower); pen.stroke();
      pen.setLineDash([]);
      for (const {curve, line, colour: name} of shown.lines) {
        const i = nearest(curve.x, this.at);
        if (!shown.good(line[i]) || Math.abs(curve.x[i] - this.at) > (high - low) * .08) continue;
        pen.fillStyle = colour(name);
        pen.strokeStyle = colour('--panel');
        pen.lineWidth = 1.5;
        pen.beginPath(); pen.arc(x(curve.x[i]), y(line[i]), 3.5, 0, 7); pen.fill(); pen.stroke();
      }
    }
    pen.restore();
  }

  axisTicks(low, high, count) {
    if (this.view.axis !== 'seconds') return niceTicks(low, high, Math.max(2, count));
    const steps = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 43200, 86400, 172800, 604800];
    const rough = (high - low) / Math.max(2, count), step = steps.find(one => one >= rough);
    if (rough < 1 || !step) return niceTicks(low, high, Math.max(2, count));
    const ticks = [];
    for (let tick = Math.ceil(low / step) * step; tick <= high; tick += step) ticks.push(tick);
    return ticks;
  }

  drawLine(pen, {curve, line}, {low, high, good}, x, y, colour, many) {
    const count = curve.x.length, path = (values, from = 0, to = count) => {
      let down = false;
      for (let i = from; i < to; ++i) {
        if (!good(values[i])) { down = false; continue; }
        if (down) pen.lineTo(x(curve.x[i]), y(values[i])); else pen.moveTo(x(curve.x[i]), y(values[i]));
        down = true;
      }
    };
    pen.lineJoin = 'round';
    pen.strokeStyle = pen.fillStyle = colour;
    if (curve.low && !many) {  // the band from the smallest to the largest of the values that a point stands for
      pen.globalAlpha = .16;
      pen.beginPath();
      let begun = false;
      for (let i = 0; i < count; ++i) if (good(curve.high[i])) { if (begun) pen.lineTo(x(curve.x[i]), y(curve.high[i])); else pen.moveTo(x(curve.x[i]), y(curve.high[i])); begun = true; }
      for (let i = count - 1; i >= 0; --i) if (good(curve.low[i])) pen.lineTo(x(curve.x[i]), y(curve.low[i]));
      pen.fill();
      pen.globalAlpha = .35;  // a peak of a single value has almost no area
      pen.lineWidth = 1;
      pen.stroke();
      pen.globalAlpha = 1;
    }
    if (line !== curve.mean && !many) {
      pen.globalAlpha = .3;
      pen.lineWidth = 1;
      pen.beginPath(); path(curve.mean); pen.stroke();
      pen.globalAlpha = 1;
    }
    pen.lineWidth = many ? 1 : 1.75;
    pen.beginPath(); path(line); pen.stroke();
    const inside = curve.x.filter(at => at >= low && at <= high).length;
    const apart = (x(curve.x[count - 1]) - x(curve.x[0])) / count;  // dots that touch each other would hide the line
    if (inside <= 40 && !many && (apart >= 8 || inside === 1))
      for (let i = 0; i < count; ++i)
        if (good(line[i])) { pen.beginPath(); pen.arc(x(curve.x[i]), y(line[i]), inside === 1 ? 3.5 : 2.2, 0, 7); pen.fill(); }
  }
}

matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { for (const chart of chartsOnPage) chart.draw(); });

// The controls above charts. `change(view)` gets {axis, smooth, log, clip} after each change.
function chartTools(view, axes, change) {
  const set = part => { Object.assign(view, part); change(view); };
  const radios = axes.map(axis => h('label', {}, h('input', {type: 'radio', name: 'axis', value: axis, checked: view.axis === axis,
    onchange: () => set({axis, from: null, to: null})}), h('span', {text: AXES[axis].charAt(0).toUpperCase() + AXES[axis].slice(1)})));
  const box = (name, text, title) => h('label', {class: 'check', title}, h('input', {type: 'checkbox', checked: view[name],
    onchange: event => set({[name]: event.target.checked})}), text);
  return h('div', {class: 'tools row'},
    h('fieldset', {class: 'segments'}, h('legend', {text: 'Horizontal axis'}), ...radios),
    h('label', {class: 'check'}, 'Smoothing', h('input', {type: 'range', min: '0', max: '1', step: '0.02', value: String(view.smooth),
      oninput: event => set({smooth: Number(event.target.value)})})),
    box('log', 'Log scale', 'Logarithmic vertical axis'),
    box('clip', 'Cut outliers', 'The vertical axis leaves out the largest and smallest 2 % of the values'),
    h('button', {class: 'button quiet reset', type: 'button', text: 'Whole run', onclick: () => set({from: null, to: null})}));
}
