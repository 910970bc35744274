// `fettle board`: the list of runs, and the pages Charts, Compare, New run, and one for each run. The part of the
// address after `#/` names the page, so that the browser's Back works.

(() => {
  const at = id => document.getElementById(id);
  const kept = name => { try { return JSON.parse(sessionStorage.getItem('fettle-' + name)); } catch { return null; } };
  const keep = (name, value) => sessionStorage.setItem('fettle-' + name, JSON.stringify(value));
  const runs = new Map();       // name -> summary
  const details = new Map();    // name -> what /api/run says
  const curves = new Map();     // name -> {names, curves} for the current view
  const stale = new Set();      // names whose curves must be fetched again
  const view = Object.assign({axis: 'step', smooth: .3, log: false, clip: false}, kept('view'), {from: null, to: null});
  let chosen = kept('chosen'), colours = kept('colours') || {}, generation = 0, boardId = '', token = kept('token') || '';
  let info = {folder: '', read_only: false, token: false}, page = null, keys = null;

  // --- requests

  async function ask(path, options = {}) {
    const headers = token ? {Authorization: 'Bearer ' + token} : {};
    const response = await fetch(path, {...options, headers: {...headers, ...options.headers}});
    const answer = await response.json();
    if (!response.ok) throw Object.assign(new Error(answer.error || response.statusText), {status: response.status});
    return answer;
  }
  const post = (path, body) => ask(path, {method: 'POST', body: JSON.stringify(body), headers: {'Content-Type': 'application/json'}});
  const query = parameters => new URLSearchParams(parameters).toString();

  function takeToken() {
    const given = /^#token=(.+)$/.exec(location.hash);
    if (!given) return;
    token = decodeURIComponent(given[1]);
    keep('token', token);
    history.replaceState(null, '', location.pathname + '#/');
  }

  // --- the list of runs

  const name_of = run => run.name === '.' ? run.title || 'this folder' : run.name;
  const colour = name => `--c${colours[name] % 10}`;
  function choose(name, on) {
    chosen = chosen.filter(one => one !== name);
    if (on) {
      chosen.push(name);
      const used = new Set(chosen.filter(one => one !== name).map(one => colours[one] % 10));
      if (colours[name] === undefined || used.has(colours[name] % 10)) {
        const free = [...Array(10).keys()].find(number => !used.has(number));
        colours[name] = free === undefined ? chosen.length : free;
      }
      stale.add(name);
    }
    keep('chosen', chosen);
    keep('colours', colours);
  }

  function ordered() {
    const words = at('search').value.toLowerCase().split(/\s+/).filter(Boolean), by = at('sort').value;
    const found = [...runs.values()].filter(run => {
      const text = [run.name, run.title, run.model, run.stage, run.state, JSON.stringify(run.recipe)].join(' ').toLowerCase();
      return words.every(word => text.includes(word));
    });
    const value = run => isNumber(run[by]) ? run[by] : Infinity;
    return found.sort((a, b) => by === 'name' ? a.name.localeCompare(b.name, 'en', {numeric: true})
      : by === 'changed' ? (b.state === 'running') - (a.state === 'running') || (b.started || b.changed) - (a.started || a.changed)
      : value(a) - value(b));
  }

  const rows = new Map();  // name -> {element, text}: elements stay, so that the focus stays
  function runRow(run) {
    const shown = JSON.stringify([run, chosen.includes(run.name), colours[run.name], page && page.run === run.name]);
    const there = rows.get(run.name);
    if (there && there.text === shown) return there.element;
    const share = run.total_steps ? Math.min(1, run.step / run.total_steps) : 0;
    const bar = h('div', {class: 'progress'}, h('i'));
    bar.firstChild.style.width = 100 * share + '%';
    const content = [
      h('label', {style: {'--swatch': `var(${colour(run.name)})`}}, h('input', {type: 'checkbox', checked: chosen.includes(run.name), 'aria-label': 'draw ' + name_of(run),
        onchange: event => { choose(run.name, event.target.checked); list(); page.update(); }})),
      h('a', {href: '#/run/' + encodeURIComponent(run.name)},
        h('div', {class: 'title'}, h('span', {text: name_of(run), title: run.name}), run.state === 'finished' || run.state === 'ended' ? null : stateBadge(run.state)),
        h('div', {class: 'about'}, h('span', {text: `step ${formatCompact(run.step)}${run.total_steps ? '/' + formatCompact(run.total_steps) : ''}`}),
          isNumber(run.loss) ? h('span', {text: 'loss ' + formatNumber(run.loss)}) : null, isNumber(run.eval_loss) ? h('span', {text: 'eval ' + formatNumber(run.eval_loss)}) : null),
        run.state === 'running' ? bar : null)];
    const element = there ? there.element : h('li');
    const focused = element.contains(document.activeElement) ? document.activeElement.tagName : null;
    element.replaceChildren(...content);
    element.className = page && page.run === run.name ? 'open' : '';
    if (focused) element.querySelector(focused.toLowerCase()).focus();
    rows.set(run.name, {element, text: shown});
    return element;
  }

  function list() {
    const found = ordered(), elements = found.map(runRow), there = at('runs').children;
    if (elements.length !== there.length || elements.some((element, i) => element !== there[i])) at('runs').replaceChildren(...elements);
    at('count').textContent = `${runs.size === found.length ? runs.size : found.length + ' of ' + runs.size} runs, ${(chosen || []).length} drawn`;
  }

  // --- data of runs, which is kept up to date

  async function fetchCurves(names) {
    const range = view.from === null ? {} : {from: view.from, to: view.to};
    for (let i = 0; i < names.length; i += 8) {
      const part = names.slice(i, i + 8), parameters = new URLSearchParams({axis: view.axis, points: page && page.points || 500, ...range});
      for (const name of part) parameters.append('name', name);
      const answer = await ask('/api/curves?' + parameters);
      for (const name of part) if (answer.runs[name]) curves.set(name, answer.runs[name]);
      page.update();
    }
  }

  let fetching = null;
  async function freshen() {  // one fetch at a time; a change during a fetch causes another fetch afterwards
    if (fetching) { fetching.again = true; return; }
    fetching = {again: false};
    try {
      const wanted = page.wanted().filter(name => runs.has(name) && (stale.has(name) || !curves.has(name)));
      for (const name of wanted) stale.delete(name);
      try {
        if (wanted.length) await fetchCurves(wanted);
      } catch (error) {
        for (const name of wanted) stale.add(name);
        throw error;
      }
    } catch (error) { live(error); }
    const again = fetching.again;
    fetching = null;
    if (again) freshen();
  }
  function changedView() {
    keep('view', {axis: view.axis, smooth: view.smooth, log: view.log, clip: view.clip});
    page.update();
  }
  // Other points are needed when the axis or the range changes.
  let pointsOf = '';
  function needPoints() {
    const now = JSON.stringify([view.axis, view.from, view.to, page && page.points]);
    if (now !== pointsOf) for (const name of runs.keys()) stale.add(name);
    pointsOf = now;
    freshen();
  }

  function live(error) {
    at('live').className = 'small ' + (error ? 'bad' : 'soft');
    at('live').textContent = error ? (error.status === 401 ? 'the token is needed' : error.status ? error.message : 'the board does not answer') : info.read_only ? 'live, read-only' : 'live';
    if (error && error.status === 401 && !(page instanceof Locked)) show(new Locked());
  }

  async function poll() {
    try {
      if (!document.hidden) {
        const answer = await ask('/api/runs?since=' + generation);
        if (answer.board !== boardId) {  // the board was restarted, so its generations begin again
          boardId = answer.board;
          if (generation !== 0) { generation = 0; runs.clear(); rows.clear(); return; }
        }
        generation = answer.generation;
        for (const run of answer.runs) {
          runs.set(run.name, run);
          stale.add(run.name);
          details.delete(run.name);
        }
        for (const name of answer.gone) { runs.delete(name); rows.delete(name); }
        if (chosen === null) {
          chosen = [];
          for (const run of ordered().slice(0, 6).reverse()) choose(run.name, true);
        }
        chosen = chosen.filter(name => runs.has(name));
        if (answer.runs.length || answer.gone.length || page instanceof Locked) { list(); if (page instanceof Locked) route(); else page.update(); }
        freshen();
        live(answer.problem ? {status: 200, message: answer.problem} : undefined);
      }
    } catch (error) {
      live(error);
    } finally {
      setTimeout(poll, 2000);
    }
  }

  // --- charts of some runs

  class Charts {
    constructor(element, single) {
      this.element = element;
      this.single = single;
      this.charts = new Map();
      this.shownNames = '';
    }
    zoom(from, to) {
      Object.assign(view, from === null ? {from: null, to: null} : {from, to});
      changedView();
      needPoints();
    }
    update(names) {
      const figures = new Set(names.flatMap(name => curves.has(name) ? curves.get(name).names : []));
      const groups = figureGroups(figures), shown = JSON.stringify(groups);
      if (shown !== this.shownNames) {  // makes elements only for new charts
        this.shownNames = shown;
        const open = this.element.querySelector('details') && this.element.querySelector('details').open;
        this.element.replaceChildren(...groups.map(([title, group]) => {
          const grid = h('div', {class: 'charts'}, ...group.map(figure => {
            if (!this.charts.has(figure))
              this.charts.set(figure, new Chart({title: figureTitle(figure), format: figureFormat(figure), onzoom: (from, to) => this.zoom(from, to)}));
            return this.charts.get(figure).element;
          }));
          return title === 'Other figures' ? h('details', {open}, h('summary', {text: title}), grid) : h('section', {class: 'stack'}, h('h2', {text: title}), grid);
        }));
        for (const [figure, chart] of this.charts) if (!figures.has(figure)) { chart.remove(); this.charts.delete(figure); }
      }
      for (const [figure, chart] of this.charts)
        chart.set(names.filter(name => curves.has(name)).map(name => ({name: runs.has(name) ? name_of(runs.get(name)) : name,
          colour: this.single ? '--c0' : colour(name), curve: curves.get(name).curves[figure]})), view);
    }
    close() { for (const chart of this.charts.values()) chart.remove(); }
  }
  const tools = () => chartTools(view, ['step', 'seconds', 'tokens', 'epoch'], () => { changedView(); needPoints(); });
  const showReset = root => { const reset = root.querySelector('.reset'); if (reset) reset.classList.toggle('hidden', view.from === null); };

  class Overview {
    constructor() {
      this.points = 500;
      this.box = h('div', {class: 'stack'});
      this.charts = new Charts(this.box);
      this.empty = h('div', {class: 'empty'});
      this.element = h('div', {class: 'stack'}, h('h1', {class: 'off-screen', text: 'Charts'}), tools(), this.empty, this.box);
    }
    wanted() { return chosen || []; }
    update() {
      const names = this.wanted(), nothing = !names.length;
      this.empty.classList.toggle('hidden', !nothing);
      this.box.classList.toggle('hidden', nothing);
      if (nothing && !generation) this.empty.replaceChildren(h('p', {text: 'Loading …'}));
      else if (nothing) this.empty.replaceChildren(h('h2', {text: runs.size ? 'No run is selected' : 'There are no runs yet'}),
        h('p', {text: runs.size ? 'Select runs in the list to draw their curves here.' : `Runs appear here when a folder below ${info.folder} is their output_dir.`}),
        h('p', {class: 'gap'}), !runs.size && !info.read_only ? h('a', {class: 'button main', href: '#/new', text: 'Compose a run'}) : '');
      this.charts.update(names);
      showReset(this.element);
      freshen();
    }
    close() { this.charts.close(); }
  }

  class RunPage {
    constructor(name) {
      this.run = name;
      this.points = 1000;
      this.stopping = false;
      this.head = h('div', {class: 'stack'});
      this.note = h('div', {class: 'message hidden', role: 'status'});
      this.box = h('div', {class: 'stack'});
      this.below = h('div', {class: 'stack'});
      this.charts = new Charts(this.box, true);
      this.element = h('div', {class: 'stack'}, this.head, this.note, tools(), this.box, this.below);
    }
    wanted() { return [this.run]; }
    tell(text, bad) {
      this.note.className = 'message ' + (bad ? 'bad' : 'good');
      this.note.textContent = text;
    }
    async act(path) {
      try { this.tell((await post(path, {name: this.run})).text || 'started'); } catch (error) { this.tell(error.message, true); }
    }
    // Asks once: the button stays disabled until the run has ended, or until the request fails.
    async stop(button) {
      this.stopping = button.disabled = true;
      try {
        this.tell((await post('/api/stop', {name: this.run})).text);
      } catch (error) {
        this.tell(error.message, true);
        this.stopping = button.disabled = false;
      }
    }
    async update() {
      const run = runs.get(this.run);
      if (!run) {
        this.head.replaceChildren(h('h1', {text: this.run}), h('p', {class: 'soft', text: generation ? 'This run is not in the folder.' : 'Loading …'}));
        return;
      }
      const curve = curves.has(this.run) ? curves.get(this.run).curves : {};
      if (!details.has(this.run)) {
        details.set(this.run, null);
        ask('/api/run?' + query({name: this.run})).then(answer => {
          details.set(this.run, answer);
          if (page.run === this.run) { page.update(); page.drawBelow(); }
        }, error => { details.delete(this.run); live(error); });
      }
      const known = details.get(this.run) || this.known || {}, file = objectOr(known.run);
      this.known = known;
      const text = [run.model, run.stage, file.machine && file.machine.devices, run.started && 'started ' + formatMoment(run.started)].filter(Boolean).map(textOf).join(' · ');
      const button = (label, kind, act) => h('button', {class: 'button ' + kind, type: 'button', text: label, onclick: act});
      const busy = this.head.contains(document.activeElement);
      const marks = JSON.stringify([run, text, Object.keys(file).length, curve.eval_loss && curve.eval_loss.values]);
      if (marks !== this.marks && !busy || !this.head.children.length || this.state !== run.state) {
        this.marks = marks;
        this.state = run.state;
        const share = h('div', {class: 'progress'}, h('i'));
        share.firstChild.style.width = run.total_steps ? 100 * run.step / run.total_steps + '%' : 0;
        const stop = button('Stop and save', 'danger', () => this.stop(stop));
        this.stopping = this.stopping && run.state === 'running';
        stop.disabled = this.stopping;
        const actions = info.read_only ? [] : [
          run.state === 'running' ? stop : null,
          run.state !== 'running' && run.state !== 'finished' && (known.checkpoints || []).length ? button('Continue', '', () => this.act('/api/resume')) : null,
          file.recipe ? button('Use as a new run', '', () => { pending = file.recipe; location.hash = '#/new'; }) : null];
        this.head.replaceChildren(h('div', {class: 'row'}, h('h1', {text: name_of(run)}), stateBadge(run.state), h('span', {class: 'space'}), ...actions.filter(Boolean)),
          text ? h('p', {class: 'soft', text}) : '', run.message ? h('div', {class: 'message bad', text: run.message}) : '',
          run.state === 'running' ? share : '', summaryTiles(run, curve, file));
      }
      this.charts.update([this.run]);
      showReset(this.element);
      if (run.state === 'running' || !this.drawn) this.drawBelow();
      freshen();
    }
    async drawBelow() {
      const known = details.get(this.run);
      if (!known) return;
      const focus = this.below.contains(document.activeElement), curve = curves.has(this.run) ? curves.get(this.run).curves : null;
      const marks = JSON.stringify([known, !!curve]);
      if (!focus && marks !== this.drawn) {
        this.drawn = marks;
        this.output = known.output ? h('pre', {class: 'output', tabindex: '0', 'aria-label': 'messages of the run'}) : null;
        this.below.replaceChildren(...[this.output ? panel('Messages', this.output) : null, ...(known.answers || []).map(file => this.answers(file)), runPanels(known, curve)].filter(Boolean));
      }
      if (this.output) {
        try {
          const {text} = await ask('/api/output?' + query({name: this.run}));
          if (this.output.textContent !== text) { this.output.textContent = text; this.output.scrollTop = this.output.scrollHeight; }
        } catch (error) { live(error); }
      }
    }
    // Returns a panel with a button that shows the next 20 rows of a file of answers, which an evaluation wrote.
    answers(file) {
      const box = h('div', {class: 'stack'}), more = h('button', {class: 'button', type: 'button', text: 'Show answers'});
      let from = 0;
      more.addEventListener('click', async () => {
        try {
          const answer = await ask('/api/answers?' + query({name: this.run, file, from}));
          box.append(...answer.rows.map(row => h('div', {class: 'example'}, factsTable(Object.entries(row)))));
          from = answer.next;
          more.textContent = 'Show more';
          more.classList.toggle('hidden', from === null);
        } catch (error) { this.tell(error.message, true); }
      });
      return panel('Answers in ' + file, box, h('div', {class: 'gap'}), more);
    }
    close() { this.charts.close(); }
  }

  // Returns the text of a key's default, in the form of textOf; '' when the key is not in the table of this program.
  function defaultOf(key) {
    if (!key) return '';
    if (key.kind === 'number' && key.default !== '' && !isNaN(key.default)) return textOf(Number(key.default));
    return key.default.replace(/^\[(.*)\]$/, '$1').replace(/^"(.*)"$/, '$1') || 'not set';
  }

  class Compare {
    constructor() {
      this.only = true;
      this.table = h('div', {class: 'panel scroll', tabindex: '0', 'aria-label': 'recipes of the selected runs'});
      this.element = h('div', {class: 'stack'}, h('div', {class: 'row'}, h('h1', {text: 'Compare'}), h('span', {class: 'space'}),
        h('label', {class: 'check'}, h('input', {type: 'checkbox', checked: true, onchange: event => { this.only = event.target.checked; this.update(); }}), 'Only keys that differ')), this.table);
    }
    wanted() { return []; }
    async update() {
      const names = (chosen || []).slice(0, 20);
      if (!names.length) return this.table.replaceChildren(h('div', {class: 'empty'}, h('h2', {text: 'No run is selected'}), h('p', {text: 'Select runs in the list to compare their recipes.'})));
      await Promise.all(names.filter(name => !details.get(name)).map(name => ask('/api/run?' + query({name})).then(answer => details.set(name, answer), () => {})));
      keys = keys || (await ask('/api/keys').catch(() => ({}))).keys || null;
      const table = new Map((keys || []).map(key => [key.name, key]));
      const recipes = names.map(name => objectOr((details.get(name) || {}).run).recipe || null);  // null: not known
      const row = (title, values, differs) => h('tr', {class: differs ? 'differs' : ''}, h('th', {scope: 'row', text: title}), ...values.map(value => h('td', {text: value})));
      const fact = (title, value) => row(title, names.map(name => value(runs.get(name))));
      const keysOf = [...new Set(recipes.flatMap(recipe => Object.keys(objectOr(recipe))))].sort();
      const lines = [];
      for (const key of keysOf) {
        const standard = defaultOf(table.get(key));
        const values = recipes.map(recipe => !recipe ? 'not known' : key in recipe ? textOf(recipe[key]) : standard);
        const shown = values.map((value, i) => recipes[i] && !(key in recipes[i]) ? `${value} (default)`.trim() : value);
        const differs = new Set(values.filter((value, i) => recipes[i])).size > 1;
        if (differs || !this.only) lines.push(row(key, shown, differs && !this.only));
      }
      this.table.replaceChildren(h('table', {class: 'compare'},
        h('thead', {}, h('tr', {}, h('td', {}), ...names.map(name => h('th', {scope: 'col'}, h('span', {class: 'row'}, h('i', {class: 'swatch', style: {'--swatch': `var(${colour(name)})`}}),
          h('a', {href: '#/run/' + encodeURIComponent(name), text: name_of(runs.get(name))})))))),
        h('tbody', {}, fact('State', run => run.state), fact('Steps', run => `${formatNumber(run.step)} of ${formatNumber(run.total_steps)}`), fact('Training loss', run => formatNumber(run.loss)),
          fact('Evaluation loss', run => formatNumber(run.eval_loss)), fact('Time', run => formatDuration(run.seconds)), fact('Model', run => run.model || '–'), ...lines)),
        recipes.every(Boolean) ? '' : h('p', {class: 'soft small gap-above', text: 'The recipe of a run without fettle_run.json is not known.'}));
    }
    close() {}
  }

  let pending = null;  // the recipe with which a form begins
  class NewRun {
    constructor() {
      this.element = h('div', {});
      this.load();
    }
    async load() {
      try {
        if (!info.token || token !== info.given) { info = {...await ask('/api/board'), given: token}; }
        if (!info.token) return this.element.replaceChildren(new Locked('To start a run, this page needs the token.').element);
        keys = keys || (await ask('/api/keys')).keys;
        const values = {};
        for (const [key, value] of Object.entries(pending || {})) values[key] = typeof value === 'string' ? value : JSON.stringify(value);
        pending = null;
        this.element.replaceChildren(new Compose({post, open: name => { location.hash = '#/run/' + encodeURIComponent(name); }}, keys, values).element);
      } catch (error) { this.element.replaceChildren(h('div', {class: 'message bad', text: error.message})); }
    }
    wanted() { return []; }
    update() {}
    close() {}
  }

  class Locked {
    constructor(why = 'This board needs its token.') {
      const input = h('input', {type: 'password', id: 'token', autocomplete: 'off', required: true});
      const form = h('form', {class: 'panel stack', onsubmit: event => {
        event.preventDefault();
        token = input.value.trim();
        keep('token', token);
        start().then(route, live);
      }}, h('h1', {text: why}), h('p', {class: 'soft', text: '`fettle board` printed an address with the token when it started. Open that address, or paste the token here.'}),
        h('div', {class: 'field'}, h('label', {for: 'token', text: 'Token'}), input), h('div', {}, h('button', {class: 'button main', text: 'Continue'})));
      form.addEventListener('submit', () => {});
      this.element = form;
    }
    wanted() { return []; }
    update() {}
    close() {}
  }

  // --- pages

  function show(next) {
    if (page) page.close();
    page = next;
    view.from = view.to = null;
    at('main').replaceChildren(page.element);
    at('main').scrollTop = 0;
    for (const link of document.querySelectorAll('.top nav a')) {
      const own = link.getAttribute('href') === '#/' ? page instanceof Overview : link.getAttribute('href') === location.hash;
      if (own) link.setAttribute('aria-current', 'page'); else link.removeAttribute('aria-current');
    }
    list();
    page.update();
    needPoints();
  }
  function route() {
    const [, kind, rest] = /^#\/?([a-z]*)(?:\/(.*))?$/.exec(location.hash) || [];
    if (chosen === null && kind !== 'new') chosen = kept('chosen');
    document.title = kind === 'run' ? decodeURIComponent(rest) + ' · Fettle board' : 'Fettle board';
    const saved = chosen;
    chosen = chosen || [];
    show(kind === 'run' && rest ? new RunPage(decodeURIComponent(rest)) : kind === 'compare' ? new Compare() : kind === 'new' && !info.read_only ? new NewRun() : new Overview());
    chosen = saved;
  }
  async function start() {
    info = {...await ask('/api/board'), given: token};
    at('folder').textContent = '\u200e' + info.folder;
    at('folder').title = info.folder;
    at('new-link').classList.toggle('hidden', info.read_only);
  }

  addEventListener('hashchange', () => { takeToken(); route(); });
  at('search').addEventListener('input', list);
  at('sort').addEventListener('change', list);
  at('none').addEventListener('click', () => { chosen = []; keep('chosen', chosen); list(); page.update(); });
  document.querySelector('.skip').addEventListener('click', event => {
    event.preventDefault();  // the board would take #main for the name of a page
    at('main').focus();
  });
  document.addEventListener('visibilitychange', () => { if (!document.hidden) needPoints(); });
  takeToken();
  page = new Overview();
  start().catch(live).then(() => { if (!(page instanceof Locked)) route(); poll(); });
})();
