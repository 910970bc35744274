// The form for a new run. Fettle itself checks the recipe; the form only collects key=value words.

const MAIN_KEYS = {
  'Model and data': ['model_name_or_path', 'dataset', 'dataset_dir', 'eval_dataset', 'val_size', 'template', 'default_system', 'cutoff_len', 'packing', 'max_samples'],
  'Method': ['stage', 'finetuning_type', 'lora_rank', 'lora_alpha', 'lora_target', 'lora_dropout', 'quantization_bit'],
  'Training': ['learning_rate', 'num_train_epochs', 'max_steps', 'per_device_train_batch_size', 'gradient_accumulation_steps',
    'lr_scheduler_type', 'warmup_ratio', 'optim', 'bf16', 'gradient_checkpointing', 'seed'],
  'Output and hardware': ['logging_steps', 'save_steps', 'eval_strategy', 'eval_steps', 'report_to', 'plugin', 'device_count'],
};

class Compose {
  // `board`: post(path, body), open(run). `keys`: what /api/keys says. `values`: key -> the text with which its field
  // begins. Keys that belong to the run from which the values come are left out.
  constructor(board, keys, values = {}) {
    this.board = board;
    this.keys = new Map(keys.map(key => [key.name, key]));
    this.fields = new Map();
    this.checks = 0;
    const known = Object.values(MAIN_KEYS).flat();
    this.further = h('div', {class: 'fields'});
    const rest = keys.filter(key => !known.includes(key.name) && key.group !== 'Generation' && key.group !== 'Export' && key.name !== 'output_dir');
    const add = h('select', {'aria-label': 'Add another key', onchange: () => {
      if (add.value) this.addField(this.further, add.value).focus();
      add.value = '';
    }}, h('option', {value: '', text: 'Add another key …'}), ...rest.map(key => h('option', {value: key.name, text: key.name})));
    const groups = Object.entries(MAIN_KEYS).map(([title, names]) => {
      const box = h('div', {class: 'fields'});
      for (const name of names) if (this.keys.has(name)) this.addField(box, name, values[name]);
      return panel(title, box);
    });
    for (const [name, value] of Object.entries(values)) if (!this.fields.has(name) && rest.some(key => key.name === name && !key.of_one_run)) this.addField(this.further, name, value);
    this.name = h('input', {type: 'text', id: 'run-name', autocomplete: 'off', spellcheck: 'false', value: 'run-' + new Date().toISOString().slice(5, 16).replace(/[T:]/g, '-'), oninput: () => this.changed()});
    this.yaml = h('pre', {class: 'hidden', tabindex: '0', 'aria-label': 'the recipe'});
    this.verdict = h('div', {class: 'message', role: 'status', text: 'Fill in the model and the data set.'});
    this.answer = h('div', {class: 'stack'});
    const act = (text, run, kind = '') => h('button', {class: 'button ' + kind, type: 'button', text, onclick: run});
    this.start = act('Start the run', () => this.startRun(), 'main');
    this.element = h('div', {class: 'stack'}, h('h1', {text: 'New run'}), h('div', {class: 'compose'},
      h('div', {class: 'stack'}, ...groups, panel('Further keys', h('div', {class: 'stack'}, this.further, h('div', {}, add)))),
      h('aside', {class: 'stack', 'aria-label': 'Check and start'}, h('section', {class: 'panel stack'},
        h('div', {class: 'field'}, h('label', {for: 'run-name', text: 'Name of the run'}), this.name, h('div', {class: 'help', text: 'The run gets a folder of this name.'})),
        this.verdict, this.yaml,
        h('div', {class: 'row'}, this.start, act('Show plan', () => this.query('plan')), act('Show data', () => this.query('data'))),
        this.answer))));
    this.changed();
  }

  addField(box, name, value) {
    if (this.fields.has(name)) return this.fields.get(name).input;
    const key = this.keys.get(name), id = 'key-' + name, on = () => this.changed();
    let input;
    const choices = key.kind === 'flag' ? ['true', 'false'] : key.kind === 'list' ? [] : key.values;
    if (choices.length) {
      const standard = key.default === '' || key.default === '""' ? 'default' : `default: ${key.default}`;
      input = h('select', {id, onchange: on}, h('option', {value: '', text: standard}), ...choices.map(one => h('option', {value: one, text: one})));
    } else if (value !== undefined && value.includes('\n')) {
      input = h('textarea', {id, rows: 4, spellcheck: 'false', oninput: on});
    } else {
      input = h('input', {id, type: 'text', inputmode: key.kind === 'number' ? 'decimal' : undefined, autocomplete: 'off', spellcheck: 'false',
        placeholder: key.default === '""' ? '' : key.default, oninput: on});
    }
    if (value !== undefined) {
      if (input.tagName === 'SELECT' && ![...input.options].some(option => option.value === value)) input.append(h('option', {value, text: value}));
      input.value = value;
    }
    input.setAttribute('aria-describedby', id + '-help');
    const field = h('div', {class: 'field'}, h('label', {for: id, text: name}), input, h('div', {class: 'help', id: id + '-help', text: key.help, title: `${key.help} (${key.type})`}));
    box.append(field);
    this.fields.set(name, {input, field});
    return input;
  }

  words() {
    const words = [];
    for (const [name, {input}] of this.fields) if (input.value.trim() !== '') words.push(name + '=' + (input.tagName === 'TEXTAREA' ? input.value : input.value.trim()));
    return words;
  }

  changed() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.check(), 350);
  }

  tell(text, kind = '') {
    this.verdict.className = 'message ' + kind;
    this.verdict.textContent = text;
    for (const [name, {field, input}] of this.fields) {
      const bad = kind === 'bad' && new RegExp(`(^|[^a-z_])${name}([^a-z_]|$)`).test(text);
      field.classList.toggle('bad', bad);
      input.setAttribute('aria-invalid', String(bad));
    }
  }

  async check() {
    const number = ++this.checks;
    try {
      const answer = await this.board.post('/api/check', {words: this.words()});
      if (number !== this.checks) return;
      this.yaml.textContent = answer.yaml || '# all keys have their defaults';
      this.yaml.classList.remove('hidden');
      const missing = ['model_name_or_path', 'dataset'].filter(name => this.fields.get(name).input.value.trim() === '');
      if (missing.length) this.tell('Still needed: ' + missing.join(', '));
      else this.tell('The keys are valid. “Show data” and “Show plan” check the files and the memory.', 'good');
    } catch (error) {
      if (number === this.checks) this.tell(error.message.replace(/^override '.*?': /, ''), 'bad');
    }
  }

  async query(command) {
    const end = h('button', {class: 'button', type: 'button', text: 'Cancel'});
    const progress = h('pre', {class: 'small', text: ''});
    this.answer.replaceChildren(h('div', {class: 'row'}, h('span', {class: 'state running', text: `fettle ${command}`}), end), progress);
    try {
      const {number} = await this.board.post('/api/query', {command, words: this.words()});
      end.addEventListener('click', () => this.board.post('/api/query/end', {number}));
      for (;;) {
        const state = await this.board.post('/api/query/state', {number});
        progress.textContent = state.err.split('\n').slice(-8).join('\n');
        if (!state.running) return this.show(command, state);
        await new Promise(done => setTimeout(done, 700));
      }
    } catch (error) {
      this.answer.replaceChildren(h('div', {class: 'message bad', role: 'alert', text: error.message}));
    }
  }

  show(command, state) {
    let data = null;
    try { data = JSON.parse(state.out); } catch { /* the command failed; its messages say why */ }
    if (!data) {
      this.answer.replaceChildren(h('div', {class: 'message bad', role: 'alert', text: state.err.trim() || `fettle ${command} ended with code ${state.code}`}));
      return;
    }
    this.answer.replaceChildren(...(command === 'plan' ? this.planParts(data) : this.dataParts(data)));
  }

  planParts(plan) {
    const step = objectOr(plan.step), schedule = objectOr(step.schedule);
    const remedies = Array.isArray(plan.remedies) ? plan.remedies : [];
    return [h('h2', {text: 'Plan'}),
      h('div', {class: 'message ' + (plan.fits ? 'good' : 'bad'), text: plan.fits ? 'The step fits into the memory.' : 'The step does not fit into the memory.'}),
      ...memoryBar(objectOr(plan.per_device)),
      factsTable([['Device', objectOr(plan.per_device).device], ['Rows of a step', step.rows], ['Tokens of a step, at most', formatNumber(step.tokens)],
        ['Time of a step', isNumber(schedule.seconds) ? formatDuration(schedule.seconds) + ` (${formatNumber(schedule.tokens_per_second)} tokens/s)` : null],
        ['gradient_checkpointing', plan.gradient_checkpointing], ['FLOPs of a step', formatCompact(step.flops)]]),
      remedies.length ? factsTable(remedies.map(remedy => [remedy.change, formatBytes(remedy.peak_bytes)])) : null].filter(Boolean);
  }

  dataParts(report) {
    const samples = Array.isArray(report.samples) ? report.samples : [];
    const data = {...objectOr(report.data), train_examples: report.train_examples, eval_examples: report.eval_examples, lengths: report.lengths, use: report.use};
    return [dataPanel(data), h('p', {class: 'soft small', text: `${formatNumber(report.steps_per_epoch)} steps an epoch`}),
      ...samples.map(sample => exampleBox([sample.source, sample.label, sample.preference],
        sample.text.split(/(⟦[^⟧]*⟧)/).filter(Boolean).map(part => part.startsWith('⟦') ? {text: part.slice(1, -1), trained: true} : {text: part, trained: false})))];
  }

  async startRun() {
    this.start.disabled = true;
    try {
      const {name} = await this.board.post('/api/start', {name: this.name.value.trim(), words: this.words()});
      this.board.open(name);
    } catch (error) {
      this.tell(error.message, 'bad');
    }
    this.start.disabled = false;
  }
}
