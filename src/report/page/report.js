// The script of report.html, which shows one run. The run's data is in the page itself.

(() => {
  const data = JSON.parse(document.getElementById('data').textContent), root = document.getElementById('report');
  const run = objectOr(data.run), summary = data.summary, name = textOf(run.name || summary.title || 'run');
  const view = {axis: 'step', smooth: .3, log: false, clip: false, from: null, to: null};
  const charts = new Map(), curves = () => data.curves[view.axis];
  const update = () => {
    for (const [figure, chart] of charts) chart.set(curves()[figure] ? [{name, colour: '--c0', curve: curves()[figure]}] : [], view);
    root.querySelector('.reset').classList.toggle('hidden', view.from === null);
  };
  const zoom = (from, to) => {
    Object.assign(view, from === null ? {from: null, to: null} : {from, to});
    update();
  };
  root.className = 'stack';
  root.append(h('header', {class: 'stack'},
    h('div', {class: 'row'}, h('h1', {text: name}), stateBadge(summary.state), h('span', {class: 'space'}), h('span', {class: 'soft small', text: 'Fettle run report'})),
    h('p', {class: 'soft', text: [run.model, run.stage, run.machine && run.machine.devices, run.ended && 'ended ' + formatMoment(run.ended)].filter(Boolean).map(textOf).join(' · ')}),
    summary.message ? h('div', {class: 'message bad', text: summary.message}) : null), summaryTiles(summary, data.curves.step, run));
  root.append(chartTools(view, ['step', 'seconds'], update));
  for (const [title, figures] of figureGroups(Object.keys(data.curves.step))) {
    const grid = h('div', {class: 'charts'});
    for (const figure of figures) {
      const chart = new Chart({title: figureTitle(figure), format: figureFormat(figure), onzoom: zoom});
      charts.set(figure, chart);
      grid.append(chart.element);
    }
    root.append(title === 'Other figures' ? h('details', {}, h('summary', {text: title}), grid) : h('section', {class: 'stack'}, h('h2', {text: title}), grid));
  }
  if (!charts.size) root.append(h('div', {class: 'message', text: 'The run logged no figures.'}));
  root.append(runPanels(data, data.curves.step));
  update();
})();
