"""Scripts that find captchas in a page and put solutions in. They run in the page, which may be hostile: their results are checked."""

import json

# Widgets that render explicitly have no container with a key: their frames have it.
_FIND = """((image, input) => {
  const fields = {recaptcha: 'g-recaptcha-response', hcaptcha: 'h-captcha-response', turnstile: 'cf-turnstile-response'};
  const found = [];
  const add = (kind, siteKey, action) => {
    const isSolved = [...document.getElementsByName(fields[kind])].some((field) => field.value);
    if (!siteKey || isSolved || found.some((each) => each.kind === kind && each.siteKey === siteKey)) return;
    found.push({kind, siteKey, action: action || null});
  };
  const classes = {'g-recaptcha': 'recaptcha', 'h-captcha': 'hcaptcha', 'cf-turnstile': 'turnstile'};
  for (const [name, kind] of Object.entries(classes))
    for (const each of document.querySelectorAll('.' + name + '[data-sitekey]'))
      add(kind, each.dataset.sitekey, each.dataset.action);
  for (const each of document.querySelectorAll('iframe[src]')) {
    let url;
    try { url = new URL(each.src); } catch { continue; }
    if (/\\/recaptcha\\/(api2|enterprise)\\/anchor/.test(url.pathname)) add('recaptcha', url.searchParams.get('k'));
    else if (/(^|\\.)hcaptcha\\.com$/.test(url.hostname))
      add('hcaptcha', url.searchParams.get('sitekey') || new URLSearchParams(url.hash.slice(1)).get('sitekey'));
    else if (url.hostname === 'challenges.cloudflare.com')
      add('turnstile', (url.pathname.match(/\\/(0x[0-9A-Za-z_-]+)\\//) || [])[1]);
  }
  const picture = image && document.querySelector(image), field = input && document.querySelector(input);
  if (picture && field && !field.value && !found.length) {
    picture.scrollIntoView({block: 'center'});
    const box = picture.getBoundingClientRect();
    if (box.width && box.height)
      found.push({kind: 'image', box: {x: box.x + scrollX, y: box.y + scrollY, width: box.width, height: box.height}});
  }
  return {url: location.href, found};
})"""

_FILL = """((kind, token, input) => {
  const set = (field) => {
    field.value = token;
    for (const type of ['input', 'change']) field.dispatchEvent(new Event(type, {bubbles: true}));
  };
  if (kind === 'image') {
    const field = document.querySelector(input);
    if (field) set(field);
    return Boolean(field);
  }
  const names = {recaptcha: ['g-recaptcha-response'], hcaptcha: ['h-captcha-response', 'g-recaptcha-response'],
                 turnstile: ['cf-turnstile-response']}[kind];
  const box = {recaptcha: '.g-recaptcha', hcaptcha: '.h-captcha', turnstile: '.cf-turnstile'}[kind];
  const widgets = [...document.querySelectorAll(box)];
  if (!document.getElementsByName(names[0]).length) {
    const field = document.createElement('textarea');
    field.name = names[0];
    field.hidden = true;
    (widgets[0] || document.forms[0] || document.body).append(field);
  }
  for (const name of names) for (const field of document.getElementsByName(name)) set(field);
  const called = new Set();
  const call = (callback) => {
    const target = typeof callback === 'string' ? window[callback] : callback;
    if (typeof target === 'function' && !called.has(target)) { called.add(target); target(token); }
  };
  for (const widget of widgets) call(widget.dataset.callback);
  const walk = (value, depth) => {
    if (!value || typeof value !== 'object' || depth > 5 || value instanceof Node) return;
    for (const [name, each] of Object.entries(value)) name === 'callback' ? call(each) : walk(each, depth + 1);
  };
  if (kind === 'recaptcha' && window.___grecaptcha_cfg) walk(window.___grecaptcha_cfg.clients, 0);
  return true;
})"""


def find_script(image: str | None, text_input: str | None) -> str:
    """Build the script that lists the captchas of a page that have no solution yet."""
    return f"{_FIND}({json.dumps(image)}, {json.dumps(text_input)})"


def fill_script(kind: str, token: str, text_input: str | None) -> str:
    """Build the script that puts a solution in, and tells the page."""
    return f"{_FILL}({json.dumps(kind)}, {json.dumps(token)}, {json.dumps(text_input)})"
