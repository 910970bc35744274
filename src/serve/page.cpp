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
header { display: flex; gap: .75rem; align-items: baseline; border-bottom: 1px solid var(--line); }
h1 { font-size: 1rem; margin: 0; flex: 1; min-width: 0; overflow-wrap: anywhere; }
main { flex: 1; overflow-y: auto; min-height: 0; }
article { margin: .75rem 0; padding: .5rem .75rem; border-radius: .5rem; white-space: pre-wrap; overflow-wrap: anywhere; }
article.user { background: var(--own); margin-left: 12%; }
article.error { color: var(--bad); }
.soft { color: var(--soft); font-size: .85rem; }
form { display: flex; gap: .5rem; align-items: flex-end; border-top: 1px solid var(--line); }
textarea, input { font: inherit; color: inherit; background: transparent; border: 1px solid var(--line);
  border-radius: .4rem; padding: .4rem .6rem; }
textarea { flex: 1; min-width: 0; resize: vertical; min-height: 2.6rem; max-height: 40dvh; }
button { font: inherit; color: var(--accent); background: transparent; border: 1px solid var(--line);
  border-radius: .4rem; padding: .4rem .8rem; cursor: pointer; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 1px; }
details label { display: flex; justify-content: space-between; gap: 1rem; margin: .3rem 0; align-items: center; }
details input { width: 60%; min-width: 0; }
</style>
<header><h1 id="model">Fettle</h1><button id="clear" type="button">New conversation</button></header>
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
let messages = [], running = null;
const headers = () => Object.assign({'Content-Type': 'application/json'},
  at('key').value ? {Authorization: 'Bearer ' + at('key').value} : {});
const show = (kind, text) => {
  const box = document.createElement('article');
  box.className = kind;
  box.textContent = text;
  at('talk').append(box);
  at('talk').scrollTop = at('talk').scrollHeight;
  return box;
};
const remark = text => { show('soft', text); };
async function name_model() {
  try {
    const list = await (await fetch('/v1/models', {headers: headers()})).json();
    if (list.data) { at('model').textContent = list.data[0].id; document.title = list.data[0].id; }
    else if (list.error) remark(list.error.message);
  } catch (error) { remark('The server does not answer: ' + error.message); }
}
async function ask(text) {
  const own = messages;  // a new conversation may begin before this reply ends
  own.push({role: 'user', content: text});
  show('user', text);
  const box = show('assistant', ''), stop = new AbortController(), began = performance.now();
  let reply = '', first = 0, tokens = 0, ended = '';
  running = stop;
  at('send').textContent = 'Stop';
  const body = {messages: at('system').value ? [{role: 'system', content: at('system').value}, ...own] : own,
    stream: true, stream_options: {include_usage: true}};
  if (at('temperature').value) body.temperature = Number(at('temperature').value);
  if (at('tokens').value) body.max_tokens = Number(at('tokens').value);
  if (at('seed').value) body.seed = Number(at('seed').value);
  try {
    const answer = await fetch('/v1/chat/completions',
      {method: 'POST', headers: headers(), body: JSON.stringify(body), signal: stop.signal});
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
        const more = data.choices[0].delta.content || '';
        if (more && !first) first = performance.now();
        reply += more;
        const below = at('talk').scrollHeight - at('talk').scrollTop - at('talk').clientHeight < 40;
        box.textContent = reply;
        if (below) at('talk').scrollTop = at('talk').scrollHeight;
      }
    }
    const seconds = (performance.now() - began) / 1000;
    remark(`${tokens} tokens in ${seconds.toFixed(1)} s` + (ended === 'length' ? ', cut at the longest reply' : ''));
  } catch (error) {
    if (messages !== own) reply = '';
    else if (error.name === 'AbortError') remark('stopped');
    else show('error', error.message);
  }
  if (reply) own.push({role: 'assistant', content: reply});
  else own.pop();
  running = null;
  at('send').textContent = 'Send';
}
const send = () => {
  if (running) return running.abort();
  const text = at('text').value;
  if (!text.trim()) return;
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
at('clear').addEventListener('click', () => {
  if (running) running.abort();
  messages = [];
  at('talk').replaceChildren();
  at('text').focus();
});
at('key').addEventListener('change', name_model);
name_model();
</script>
</html>
)page";

}  // namespace fettle
