// Shows one run on a page: metrics, memory, data, rows, recipe and machine. `details` is the JSON that run_view.cpp
// writes.

const objectOr = value => value && typeof value === 'object' && !Array.isArray(value) ? value : {};
const textOf = value => typeof value === 'string' ? value : value === null || value === undefined ? '–'
  : Array.isArray(value) && value.length && value.every(part => typeof part === 'string') ? value.join(', ') : JSON.stringify(value);

function stateBadge(state) {
  return h('span', {class: 'state ' + (/^[a-z]+$/.test(state) ? state : ''), text: state});
}

function tile(title, value, small) {
  return h('div', {class: 'tile'}, h('dt', {text: title}), h('dd', {}, value, small ? h('small', {text: ' ' + small}) : null));
}

function factsTable(rows) {
  return h('table', {class: 'facts'}, h('tbody', {}, rows.filter(row => row[1] !== undefined && row[1] !== null)
    .map(([name, value]) => h('tr', {}, h('th', {scope: 'row', text: name}), h('td', {text: textOf(value)})))));
}

function panel(title, ...children) {
  return h('section', {class: 'panel'}, h('h2', {text: title}), ...children);
}

// The parts of the planned memory of one device, its limit, and what was measured.
function memoryBar(plan, measured) {
  const parts = [['base weights', plan.frozen_bytes, '--c0'],
    [plan.adapter_bytes ? 'adapters' : 'trained weights', plan.trained_bytes, '--c2'],
    ['optimizer', plan.optimizer_bytes, '--c3'], ['batch', plan.batch_bytes, '--c6'],
    ['activations, gradients, scratch', plan.temporary_bytes, '--c1']].filter(part => part[1] > 0);
  const peak = plan.peak_bytes || 0, limit = plan.limit_bytes;
  const whole = Math.max(peak, measured || 0, 1);
  const bar = h('div', {class: 'bar', role: 'img', 'aria-label': `planned ${formatBytes(peak)}`},
    ...parts.map(([name, bytes, colour]) => {
      const part = h('i', {title: `${name}: ${formatBytes(bytes)}`, style: {'--swatch': `var(${colour})`}});
      part.style.width = 100 * bytes / whole + '%';
      return part;
    }));
  const legend = h('div', {class: 'legend'}, ...parts.map(([name, bytes, colour]) => h('span', {style: {'--swatch': `var(${colour})`}},
    h('i', {class: 'swatch'}), name + ' ', h('b', {text: formatBytes(bytes)}))));
  const facts = [['Planned peak', formatBytes(peak) + (limit ? ` of ${formatBytes(limit)} (${(100 * peak / limit).toFixed(peak / limit < .1 ? 1 : 0)} %)` : '')]];
  if (measured) facts.push(['Measured peak', `${formatBytes(measured)}, ${(100 * measured / peak).toFixed(0)} % of the plan`]);
  if (plan.host_bytes) facts.push(['In host memory', formatBytes(plan.host_bytes)]);
  return [bar, legend, factsTable(facts)];
}

function histogram(lengths) {
  const buckets = Array.isArray(lengths.histogram) ? lengths.histogram : [];
  const most = Math.max(1, ...buckets.map(bucket => bucket.examples));
  return [h('div', {class: 'histogram', role: 'img', 'aria-label': 'lengths of the examples in tokens: ' +
      buckets.map(bucket => `${bucket.from} to ${bucket.to}: ${bucket.examples}`).join(', ')},
    ...buckets.map(bucket => {
      const bar = h('i', {title: `${bucket.from} to ${bucket.to} tokens: ${bucket.examples} examples`});
      bar.style.height = 100 * bucket.examples / most + '%';
      return h('div', {}, bar);
    })),
  h('div', {class: 'histogram-labels'}, ...buckets.map(bucket => h('span', {text: '≤ ' + formatCompact(bucket.to)})))];
}

function dataPanel(data) {
  const lengths = objectOr(data.lengths), share = data.tokens > 0 ? ` (${(100 * data.trained_tokens / data.tokens).toFixed(1)} %)` : '';
  const rows = [['Examples to train', formatNumber(data.train_examples)],
    ['Examples to evaluate', data.eval_examples ? formatNumber(data.eval_examples) : null],
    ['Tokens', formatNumber(data.tokens)], ['Trained tokens', formatNumber(data.trained_tokens) + share],
    ['Length: median, 95 %, longest', lengths.max ? [lengths.median, lengths.p95, lengths.max].map(formatNumber).join(', ') : null],
    ['Share of positions that are not padding', isNumber(data.use) ? (100 * data.use).toFixed(1) + ' %' : null],
    ['Cut to cutoff_len', data.truncated || null], ['Left out', data.dropped || null], ['Bad rows', data.bad_rows || null],
    ['Rows that occur twice', data.duplicates || null]];
  for (const set of Array.isArray(data.sets) ? data.sets : []) rows.push([set.name, formatNumber(set.examples) + ' examples']);
  const notes = Array.isArray(data.notes) && data.notes.length ? h('div', {class: 'message small', text: data.notes.join('\n')}) : null;
  return panel('Data', h('div', {class: 'stack'}, lengths.max ? h('div', {}, ...histogram(lengths)) : null, factsTable(rows), notes));
}

// One row of the data; `pieces`: [{text, trained}].
function exampleBox(heading, pieces) {
  return h('article', {class: 'example'}, h('header', {}, ...heading.filter(Boolean).map(text => h('span', {text}))),
    h('pre', {tabindex: '0'}, ...pieces.map(piece => h(piece.trained ? 'mark' : 'span', {text: textOf(piece.text)}))));
}

function rowsPanel(rows) {
  return panel('Rows', h('p', {class: 'soft small'}, 'The loss is computed on the ', h('mark', {class: 'key', text: 'marked'}), ' text.'), h('div', {class: 'gap'}),
    ...rows.map(row => exampleBox([row.source, `${row.tokens} tokens, ${row.trained_tokens} trained`, row.preference, row.label,
      row.cut ? 'only the beginning is shown' : ''], Array.isArray(row.pieces) ? row.pieces : [])));
}

function resultsPanel(results) {
  const names = Object.keys(results).sort();
  const format = name => name.endsWith('_runtime') || name.endsWith('_seconds') ? formatDuration(results[name]) : figureFormat(name)(results[name]);
  return panel('Final figures', factsTable(names.map(name => [name, isNumber(results[name]) ? format(name) : textOf(results[name])])));
}

function recipePanel(recipe) {
  const yaml = Object.entries(recipe).map(([key, value]) => `${key}: ${typeof value === 'string' ? (/^[\w./@-][\w ./@-]*$/.test(value) && !/^(true|false|null|yes|no|on|off|[\d.]+)$/i.test(value) ? value : JSON.stringify(value)) : JSON.stringify(value)}`).join('\n');
  const copy = h('button', {class: 'button quiet small', type: 'button', text: 'Copy as yaml', onclick: () => copyText(yaml, copy)});
  return h('section', {class: 'panel'}, h('div', {class: 'row heading'}, h('h2', {text: 'Recipe'}), h('span', {class: 'soft small', text: 'keys that differ from their defaults'}), h('span', {class: 'space'}), copy),
    factsTable(Object.entries(recipe)));
}

async function copyText(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {  // browsers deny the clipboard to a page that was opened from a file
    const area = h('textarea', {class: 'off-screen', value: text});
    document.body.append(area);
    area.select();
    document.execCommand('copy');
    area.remove();
  }
  const before = button.textContent;
  button.textContent = 'Copied';
  setTimeout(() => { button.textContent = before; }, 1500);
}

function machinePanel(run) {
  const machine = objectOr(run.machine);
  return panel('Machine', factsTable([['Devices', machine.devices], ['Kind', machine.device_kind], ['Host', machine.host], ['System', machine.system],
    ['Cores', machine.cores], ['Plugin', machine.plugin], ['Fettle', machine.fettle], ['Folder', run.output_dir],
    ['First started', formatMoment(run.started)], ['Continued from step', run.resumed_step || null],
    ['Began', formatMoment(run.began)], ['Ended', run.ended ? formatMoment(run.ended) : null]]));
}

// The largest number that a curve shows.
const largest = curve => curve ? Math.max(...(curve.high || curve.mean)) : undefined;

function summaryTiles(summary, curves, run) {
  const evals = curves && curves.eval_loss, best = evals ? Math.min(...(evals.low || evals.mean)) : null;
  const speed = curves && curves.throughput ? curves.throughput.mean.slice().sort((a, b) => a - b)[curves.throughput.mean.length >> 1] : summary.throughput;
  const running = summary.state === 'running';
  return h('dl', {class: 'tiles'},
    tile('Step', formatNumber(summary.step), summary.total_steps ? 'of ' + formatNumber(summary.total_steps) : ''),
    tile('Training loss', formatNumber(summary.loss)),
    isNumber(summary.eval_loss) ? tile('Evaluation loss', formatNumber(summary.eval_loss), isNumber(best) && best < summary.eval_loss ? 'best ' + formatNumber(best) : '') : null,
    isNumber(speed) ? tile('Speed', formatNumber(speed), 'tokens/s') : null,
    tile('Time', formatDuration(summary.seconds), running && summary.seconds_left ? formatDuration(summary.seconds_left) + ' left' : ''),
    isNumber(run.trained_parameters) ? tile('Trained parameters', formatCompact(run.trained_parameters), 'of ' + formatCompact(run.all_parameters)) : null);
}

// The panels below the charts of a run.
function runPanels(details, curves) {
  const run = objectOr(details.run), results = objectOr(details.results);
  const measured = largest(curves && curves.device_memory_bytes), host = largest(curves && curves.host_memory_bytes);
  const left = [], right = [];
  if (run.plan) left.push(panel('Memory of one device', h('div', {class: 'stack'}, ...memoryBar(objectOr(run.plan), measured),
    !measured && host ? factsTable([['Measured: the whole process', formatBytes(host) + ' of host memory, with Fettle and its libraries']]) : null)));
  if (run.data) left.push(dataPanel(objectOr(run.data)));
  if (run.machine) left.push(machinePanel(run));
  if (Object.keys(results).length) right.push(resultsPanel(results));
  if (run.recipe) right.push(recipePanel(objectOr(run.recipe)));
  const rows = Array.isArray(run.rows) && run.rows.length ? rowsPanel(run.rows) : null;
  return h('div', {class: 'stack'}, h('div', {class: 'columns'}, h('div', {class: 'stack'}, ...left), h('div', {class: 'stack'}, ...right)), rows);
}

// Metrics in the order in which they are shown; the less important ones come last.
function figureGroups(names) {
  const groups = [['Training', []], ['Evaluation', []], ['Speed and memory', []], ['Other figures', []]];
  const order = ['loss', 'grad_norm', 'lr', 'eval_loss', 'eval_accuracy', 'eval_perplexity'];
  const place = name => order.includes(name) ? order.indexOf(name) : order.length;
  for (const name of [...names].sort((a, b) => place(a) - place(b) || a.localeCompare(b))) {
    const group = /^eval_(runtime|samples|samples_per_second|tokens|steps_per_second)$/.test(name) ? 3 : name.startsWith('eval_') ? 1
      : name === 'throughput' || name.endsWith('_bytes') ? 2 : ['loss', 'lr', 'grad_norm'].includes(name) || name.includes('/') ? 0 : 3;
    groups[group][1].push(name);
  }
  return groups.filter(group => group[1].length);
}
