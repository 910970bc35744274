#include "serve/page.h"

namespace fettle {

const std::string_view kChatPage = R"page(<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Fettle chat</title>
<style>
:root { color-scheme: light dark; --back: #fafaf7; --text: #1c1c1a; --soft: #62625c; --line: #d6d6cf; --own: #e6eef6;
  --accent: #1f5f99; --bad: #a32020; }
@media (prefers-color-scheme: dark) {
  :root { --back: #16171a; --text: #e8e8e4; --soft: #a2a29b; --line: #3a3b40; --own: #22303e; --accent: #8fc1ee;
    --bad: #ff9c94; } }
* { box-sizing: border-box; }
body { margin: 0; height: 100dvh; display: flex; flex-direction: column; background: var(--back); color: var(--text);
  font: 16px/1.5 system-ui, sans-serif; }
header, main, form, details { width: 100%; max-width: 48rem; margin: 0 auto; padding: .5rem 1rem; }
body.two header, body.two main, body.two form, body.two details { max-width: 80rem; }
header { display: flex; flex-wrap: wrap; gap: .5rem .75rem; align-items: center; border-bottom: 1px solid var(--line); }
h1 { font-size: 1rem; margin: 0; }
header label { display: flex; gap: .4rem; align-items: center; min-width: 0; }
#clear { margin-left: auto; }
main { flex: 1; overflow-y: auto; min-height: 0; }
article { margin: .75rem 0; padding: .5rem .75rem; border-radius: .5rem; white-space: pre-wrap; overflow-wrap: anywhere; }
article.user { background: var(--own); margin-left: 12%; }
.error { color: var(--bad); }
.replies { display: grid; grid-template-columns: 1fr; gap: 0 1rem; }
body.two .replies { grid-template-columns: 1fr 1fr; }
.replies section { min-width: 0; }
h2 { font-size: .85rem; margin: .5rem .75rem 0; color: var(--soft); overflow-wrap: anywhere; }
.thought { color: var(--soft); border-left: 2px solid var(--line); padding-left: .5rem; }
.thought:empty { display: none; }
@media (max-width: 40rem) { body.two .replies { grid-template-columns: 1fr; } }
.soft { color: var(--soft); font-size: .85rem; }
form { display: flex; gap: .5rem; align-items: flex-end; border-top: 1px solid var(--line); }
textarea, input, select { font: inherit; color: inherit; background: transparent; border: 1px solid var(--line);
  border-radius: .4rem; padding: .4rem .6rem; }
select { min-width: 0; max-width: 16rem; }
option { background: var(--back); color: var(--text); }
textarea { flex: 1; min-width: 0; resize: vertical; min-height: 2.6rem; max-height: 40dvh; }
button { font: inherit; color: var(--accent); background: transparent; border: 1px solid var(--line);
  border-radius: .4rem; padding: .4rem .8rem; cursor: pointer; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 1px; }
details label { display: flex; justify-content: space-between; gap: 1rem; margin: .3rem 0; align-items: center; }
details input { width: 60%; min-width: 0; }
</style>
<header><h1>Fettle chat</h1><label>Model <select id="model"></select></label>
<label id="beside_label" hidden>beside <select id="beside"></select></label>
<button id="clear" type="button">New conversation</button></header>
<main id="talk" tabindex="0" aria-label="conversation" aria-live="polite"></main>
<details><summary class="soft">Settings</summary>
<label>System message <input id="system"></label>
<label>Temperature <input id="temperature" type="number" min="0" step="0.1" placeholder="the recipe's value"></label>
<label>Longest reply (tokens) <input id="tokens" type="number" min="1" placeholder="the recipe's value"></label>
<label>Seed <input id="seed" type="number" placeholder="a new one each time"></label>
<label>API key <input id="key" type="password" autocomplete="off"></label>
</details>
<form id="form"><textarea id="text" rows="2" aria-label="message" placeholder="Enter sends, Shift+Enter makes a new line, Escape stops a reply" autofocus></textarea>
<button id="send">Send</button></form>
<script>
const at = id => document.getElementById(id);
let talks = [], running = null;  // talks: for each column, its model and the messages so far
const headers = () => Object.assign({'Content-Type': 'application/json'},
  at('key').value ? {Authorization: 'Bearer ' + at('key').value} : {});
const add = (parent, tag, kind, text) => {
  const box = document.createElement(tag);
  box.className = kind;
  box.textContent = text;
  parent.append(box);
  return box;
};
const at_end = () => at('talk').scrollHeight - at('talk').scrollTop - at('talk').clientHeight < 40;
const to_end = () => { at('talk').scrollTop = at('talk').scrollHeight; };
const show = (kind, text) => { add(at('talk'), 'article', kind, text); to_end(); };

function restart() {
  if (running) running.abort();
  const names = [at('model').value];
  if (at('beside').value) names.push(at('beside').value);
  talks = names.map(name => ({model: name, messages: []}));
  document.body.classList.toggle('two', names.length > 1);
  document.title = names.join(' and ');
  at('talk').replaceChildren();
}
// Lists all models except the one of the first column.
function list_beside(models, chosen) {
  const others = models.filter(name => name !== at('model').value);
  at('beside').replaceChildren(new Option('nothing', ''), ...others.map(name => new Option(name, name)));
  at('beside').value = others.includes(chosen) ? chosen : '';
  at('beside_label').hidden = !others.length;
}
async function list_models() {
  try {
    const list = await (await fetch('/v1/models', {headers: headers()})).json();
    if (!list.data) return show('soft', list.error.message);
    const models = list.data.map(model => model.id);
    // At first, the second column shows the base of the adapter in the first column.
    const tuned = list.data.find(model => model.parent);
    at('model').replaceChildren(...models.map(name => new Option(name, name)));
    if (tuned) at('model').value = tuned.id;
    list_beside(models, tuned ? tuned.parent : '');
    at('model').onchange = () => { list_beside(models, at('beside').value); restart(); };
    at('beside').onchange = restart;
    restart();
  } catch (error) { show('soft', 'The server does not answer: ' + error.message); }
}
function body_of(talk, seed) {
  const system = at('system').value ? [{role: 'system', content: at('system').value}] : [];
  const body = {model: talk.model, messages: [...system, ...talk.messages], stream: true,
    stream_options: {include_usage: true}};
  if (at('temperature').value) body.temperature = Number(at('temperature').value);
  if (at('tokens').value) body.max_tokens = Number(at('tokens').value);
  if (seed !== null) body.seed = seed;
  return body;
}
// Writes one column's reply to a message.
async function reply(talk, parent, text, seed, stop) {
  talk.messages.push({role: 'user', content: text});
  const column = add(parent, 'section', '', '');
  if (talks.length > 1) add(column, 'h2', '', talk.model);
  const box = add(column, 'article', 'assistant', '');
  const thought = add(box, 'div', 'thought', ''), said = add(box, 'div', '', '');
  const began = performance.now();
  let tokens = 0, ended = '';
  const remark = (kind, words) => {
    const below = at_end();
    add(column, 'article', kind, words);
    if (below) to_end();
  };
  try {
    const answer = await fetch('/v1/chat/completions',
      {method: 'POST', headers: headers(), body: JSON.stringify(body_of(talk, seed)), signal: stop.signal});
    if (!answer.ok) throw new Error((await answer.json()).error.message);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    for (;;) {
      const {value, done} = await reader.read();
      if (done) break;
      const events = (rest + value).split('\n\n');
      rest = events.pop();
      for (const event of events) {
        if (!event.startsWith('data: {')) continue;
        const data = JSON.parse(event.slice(6));
        if (data.error) throw new Error(data.error.message);
        if (data.usage) tokens = data.usage.completion_tokens;
        if (!data.choices.length) continue;
        ended = data.choices[0].finish_reason || ended;
        const below = at_end(), delta = data.choices[0].delta;
        thought.textContent += delta.reasoning_content || '';
        said.textContent += delta.content || '';
        if (below) to_end();
      }
    }
    const seconds = (performance.now() - began) / 1000;
    remark('soft', `${tokens} tokens in ${seconds.toFixed(1)} s` + (ended === 'length' ? ', cut at the longest reply' : ''));
  } catch (error) {
    if (error.name === 'AbortError') remark('soft', 'stopped');
    else remark('error', error.message);
  }
  if (said.textContent) talk.messages.push({role: 'assistant', content: said.textContent});
  else talk.messages.pop();
}
async function ask(text) {
  const stop = running = new AbortController();
  at('send').textContent = 'Stop';
  show('user', text);
  const replies = add(at('talk'), 'div', 'replies', '');
  // Both columns draw with the same random numbers.
  const seed = at('seed').value ? Number(at('seed').value) :
    talks.length > 1 ? Math.floor(Math.random() * 2 ** 31) : null;
  await Promise.all(talks.map(talk => reply(talk, replies, text, seed, stop)));
  if (running !== stop) return;
  running = null;
  at('send').textContent = 'Send';
}
const send = () => {
  if (running) return running.abort();
  const text = at('text').value;
  if (!text.trim() || !talks.length) return;
  at('text').value = '';
  ask(text);
};
at('form').addEventListener('submit', event => { event.preventDefault(); send(); });
at('text').addEventListener('keydown', event => {
  if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  if (!running) send();
});
document.addEventListener('keydown', event => { if (event.key === 'Escape' && running) running.abort(); });
at('clear').addEventListener('click', () => { restart(); at('text').focus(); });
at('key').addEventListener('change', list_models);
list_models();
</script>
</html>
)page";

}  // namespace fettle
