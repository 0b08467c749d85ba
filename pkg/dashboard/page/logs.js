// Logs of all pods of a job in one stream, and the log lines that failure records stored.

import { explainDisabled } from './actions.js';
import { jobPath, readLines } from './api.js';
import { create, createFilter, setContent } from './dom.js';
import { formatError, t } from './i18n.js';
import { createJobFrame, patchFailures, roleClass, stripEscapes } from './jobparts.js';

const ROLES = ['coordinator', 'collector', 'learner', 'aggregator', 'ddp-learner'];
const MAX_LINES = 5000;
const RETRY_MS = 3000;

export function createLogsScreen(app, route) {
  const { state } = app;
  const frame = createJobFrame(app, route);
  const view = new LogView();
  const replica = route.query.get('replica');
  const sources = [['', t('logs.all')], ...ROLES.map((role) => [`role=${role}`, t(`role.${role}`)])];
  if (replica) sources.push([`replica=${encodeURIComponent(replica)}`, replica]);
  const from = createSelect('logs.from', sources, open);
  if (replica) from.input.selectedIndex = sources.length - 1;
  const tail = createSelect('logs.tail', ['50', '200', '1000', '10000'].map((count) => [count, count]), open);
  tail.input.value = '200';
  const previous = create('input', { type: 'checkbox', change: open });
  const follow = create('button', { type: 'button', 'aria-pressed': 'true', click: () => view.setFollow(!view.follow) }, t('logs.follow'));
  view.onFollow = (on) => follow.setAttribute('aria-pressed', String(on));
  const search = createFilter(() => view.search(search.value), t('logs.search'));
  const stored = create('div', { class: 'failures', hidden: true });
  const storedButton = create('button', { type: 'button', 'aria-pressed': 'false', click: toggleStored });
  const check = create('label', { class: 'check' }, previous, t('logs.previous'));
  frame.body.append(create('div', { class: 'bar logbar' }, from.element, tail.element, check, search, follow, storedButton),
    stored, view.element);
  let abort = null;
  let timer = 0;

  function toggleStored() {
    stored.hidden = !stored.hidden;
    view.element.hidden = !stored.hidden;
    storedButton.setAttribute('aria-pressed', String(!stored.hidden));
  }

  /** Opens the stream from the start, with the filters that are set. */
  function open() {
    view.clear();
    connect();
  }

  async function connect() {
    clearTimeout(timer);
    abort?.abort();
    const own = new AbortController();
    abort = own;
    let ended = false;
    const query = `${from.input.value}&tail=${tail.input.value}&previous=${previous.checked}&follow=${!previous.checked}`;
    try {
      await readLines(`${jobPath(route)}/logs?${query}`, own.signal, (line) => {
        ended ||= Boolean(line.end);
        view.add(line.end ? { note: t('logs.end') } : line);
      });
      if (ended || own.signal.aborted) return;
      view.add({ note: t('logs.broken') });
    } catch (error) {
      if (own.signal.aborted) return;
      view.add({ error: error.code ? formatError(error) : t('logs.broken') });
      if (error.status >= 400 && error.status < 500) return;
    }
    timer = setTimeout(connect, RETRY_MS);
  }

  function update() {
    frame.update();
    const { job } = state;
    if (!job) return;
    showRoles();
    const tails = job.failures.filter((failure) => failure.tail);
    setContent(storedButton, t('logs.stored', { n: tails.length }));
    patchFailures(stored, tails);
    if (!tails.length) setContent(stored, create('p', { class: 'empty' }, t('noTail')));
    const disabled = job.logs?.disabled;
    if (abort || disabled?.code === 'unknown') return;
    if (!disabled) return open();
    abort = new AbortController();
    view.add({ error: explainDisabled(job.logs) });
  }

  /** Offers only the roles that the job has. */
  function showRoles() {
    const roles = new Set([...state.replicas.values()].map(({ role }) => `role=${roleClass(role)}`));
    for (const option of from.input.options) {
      option.hidden = option.value.startsWith('role=') && !roles.has(option.value);
      // Some browsers show hidden options.
      option.disabled = option.hidden;
    }
  }

  function close() {
    clearTimeout(timer);
    abort?.abort();
  }

  function handleKey(key) {
    if (key === 'f') view.setFollow(!view.follow);
    else if (key === 'j' || key === 'ArrowDown') view.element.scrollBy(0, 60);
    else if (key === 'k' || key === 'ArrowUp') view.element.scrollBy(0, -60);
    else return false;
    return true;
  }
  return { element: frame.element, filter: search, update, close, handleKey };
}

function createSelect(label, options, change) {
  const input = create('select', { change, 'aria-label': t(label) }, options.map(([value, text]) => create('option', { value }, text)));
  return { input, element: create('label', { class: 'field' }, t(label), input) };
}

/** Keeps the last lines, shows those that match, and stays at the end until the reader scrolls up. */
class LogView {
  constructor() {
    Object.assign(this, { lines: [], pending: [], follow: true, needle: '', lastTop: 0, scheduled: false, onFollow: () => {} });
    this.list = create('div', { class: 'lines' });
    this.empty = create('p', { class: 'empty' }, t('logs.empty'));
    const scroll = () => this.handleScroll();
    this.element = create('div', { class: 'log', tabindex: 0, role: 'log', 'aria-live': 'off', 'aria-label': t('logs'), scroll }, this.empty, this.list);
  }

  clear() {
    Object.assign(this, { lines: [], pending: [] });
    this.list.replaceChildren();
    setContent(this.empty, t('logs.empty'));
    this.empty.hidden = false;
    this.setFollow(true);
  }

  /** Lines are shown once a frame; a hidden tab keeps only the newest. */
  add(line) {
    this.pending.push(line);
    if (this.pending.length > 2 * MAX_LINES) this.pending.splice(0, MAX_LINES);
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => {
      this.scheduled = false;
      this.showPending();
    });
  }

  showPending() {
    const newest = this.pending.splice(0).slice(-MAX_LINES);
    const added = newest.map((line) => ({ ...line, text: stripEscapes(line.text ?? line.error ?? line.note) }));
    this.lines.push(...added);
    this.lines.splice(0, this.lines.length - MAX_LINES);
    this.append(added);
  }

  append(lines) {
    this.list.append(...lines.filter((line) => this.matches(line)).map((line) => this.createLine(line)));
    while (this.list.childElementCount > MAX_LINES) this.list.firstChild.remove();
    this.empty.hidden = this.list.childElementCount > 0;
    if (this.follow) this.element.scrollTop = this.element.scrollHeight;
  }

  search(needle) {
    this.needle = needle.toLowerCase();
    this.list.replaceChildren();
    setContent(this.empty, this.lines.length ? t('noMatch') : t('logs.empty'));
    this.append(this.lines);
  }

  matches({ text, pod = '' }) {
    return !this.needle || text.toLowerCase().includes(this.needle) || pod.includes(this.needle);
  }

  createLine({ pod, role, text, error, note }) {
    if (error || note) return create('div', { class: error ? 'line error' : 'line muted' }, text);
    return create('div', { class: 'line' }, create('span', { class: `pod ${role}` }, pod), create('span', {}, this.markMatches(text)));
  }

  markMatches(text) {
    const parts = [];
    const lower = text.toLowerCase();
    let from = 0;
    for (let at; this.needle && (at = lower.indexOf(this.needle, from)) >= 0; from = at + this.needle.length) {
      parts.push(text.slice(from, at), create('mark', {}, text.slice(at, at + this.needle.length)));
    }
    return [...parts, text.slice(from)];
  }

  setFollow(on) {
    this.follow = on;
    this.onFollow(on);
    if (on) this.element.scrollTop = this.element.scrollHeight;
  }

  handleScroll() {
    const { scrollTop, scrollHeight, clientHeight } = this.element;
    const atEnd = scrollHeight - scrollTop - clientHeight < 24;
    if (atEnd !== this.follow && (atEnd || scrollTop < this.lastTop)) {
      this.follow = atEnd;
      this.onFollow(atEnd);
    }
    this.lastTop = scrollTop;
  }
}
