// The overview of a job: counts and actions, its replicas, timeline, failures and events.

import { getJson, jobPath } from './api.js';
import { createActions } from './actions.js';
import { create, createFilter, patchChips, patchList, setContent, showDialog } from './dom.js';
import { formatAge, formatError, formatTime, t, translate } from './i18n.js';
import { createJobFrame, createPill, createRole, exitText, jobHash, patchFailures, roleText } from './jobparts.js';
import { DataTable } from './table.js';

const POLL_EVENTS_MS = 5000;

export function createJobScreen(app, route) {
  const { state } = app;
  const frame = createJobFrame(app, route);
  const facts = createFacts(app);
  const replicas = createReplicas(app, route);
  const timeline = create('ol', { class: 'timeline' });
  const failures = create('div', { class: 'failures' });
  const conditions = create('tbody');
  const events = createEvents(route);
  frame.body.append(facts.element, replicas.element,
    create('div', { class: 'pair' }, createPanel(t('timeline'), timeline), createPanel(t('failures'), failures)),
    createPanel(t('events'), events.element), createPanel(t('conditions'), create('div', { class: 'scroll' }, create('table', {}, conditions))));

  function update(kinds) {
    frame.update();
    const { job } = state;
    if (!job) return;
    events.start();
    facts.update();
    replicas.update(kinds.has('tick'));
    if (!kinds.has('job')) return;
    patchList(timeline, [...job.timeline].reverse().map(numberEntry), (entry) => entry.key, createTimelineEntry);
    patchFailures(failures, job.failures);
    if (!job.failures.length) setContent(failures, create('p', { class: 'empty' }, t('noFailures')));
    patchList(conditions, job.conditions, (condition) => condition.type, createConditionRow);
  }
  return { element: frame.element, table: replicas.table, filter: replicas.filter, update, close: events.close };
}

function createPanel(title, ...content) {
  return create('section', { class: 'panel' }, create('h2', {}, title), content);
}

/** Tiles with the counts and other short facts, then the buttons. */
function createFacts(app) {
  const { state } = app;
  const actions = createActions(app);
  const tiles = new Map();
  const row = create('div', { class: 'tiles' }, ['collectors', 'learners', 'gpus', 'restarts', 'queue', 'gang', 'age'].map((key) => {
    const [value, note] = [create('b'), create('small')];
    const counted = { collectors: ['removeCollector', 'addCollector'], learners: ['removeLearner', 'addLearner'] }[key];
    const shown = counted ? actions.createCounter(...counted, value) : value;
    const tile = create('div', { class: 'tile' }, create('span', {}, key === 'gpus' ? 'GPU' : t(key)), create('div', { class: 'value' }, shown), note);
    tiles.set(key, { tile, value, note });
    return tile;
  }));

  function setTile(key, value, note = '') {
    const { tile, value: shown, note: small } = tiles.get(key);
    tile.hidden = value === null;
    setContent(shown, String(value ?? ''));
    setContent(small, note);
  }

  function update() {
    const { job } = state;
    for (const role of ['collectors', 'learners']) {
      setTile(role, job[role]?.ready ?? '–', t('declared', { n: job[role]?.declared ?? '–' }));
    }
    setTile('gpus', job.gpus || null);
    setTile('restarts', job.restarts ?? 0);
    setTile('queue', job.queue ?? null, job.clusterQueue ?? '');
    setTile('gang', job.gang ? t(job.gang.placed ? 'gang.placed' : 'gang.waits', { n: job.gang.floor }) : null, job.gang?.group);
    setTile('age', formatAge(job.created), job.completed ? `${t('ended')}: ${formatTime(job.completed)}` : formatTime(job.created));
    actions.update();
  }
  return { element: create('section', { class: 'panel facts' }, row, actions.element), update };
}

function createReplicas(app, route) {
  const { state } = app;
  let status = null;
  const filter = createFilter(() => update());
  const chips = create('div', { class: 'chips' });
  const total = create('span', { class: 'muted' });
  const note = create('p', { class: 'warning' });
  const table = new DataTable({ label: t('replicas'), columns: replicaColumns(state), keyOf: (row) => row.name,
    openRow: (row) => openReplica(app, route, row.name), emptyText: () => t(state.replicas.size ? 'noMatch' : 'noReplicas') });

  function update(force = false) {
    const rows = [...state.replicas.values()].sort((a, b) => a.order - b.order);
    const text = filter.value.toLowerCase();
    const shown = rows.filter((row) => (!status || row.status === status) && matchesText(row, text));
    patchChips(chips, countStatuses(rows), status, selectStatus);
    setContent(total, shown.length === rows.length ? String(rows.length) : t('of', { shown: shown.length, total: rows.length }));
    setContent(note, state.job?.podsHidden ? t('podsHidden', { why: state.job.podsHidden }) : '');
    table.table.classList.toggle('no-units', !rows.some(unitOf));
    table.setRows(shown);
    if (force) table.render(true);
  }

  function selectStatus(value) {
    status = value;
    update();
  }

  const element = create('section', { class: 'panel' },
    create('div', { class: 'bar' }, create('h2', {}, t('replicas')), total, chips, filter), note, table.element);
  return { element, table, filter, update };
}

/** The first pod of the unit or learner group that a pod belongs to. */
function unitOf(row) {
  return row.leader ?? row.aggregator;
}

function matchesText(row, text) {
  if (!text) return true;
  return [row.name, roleText(row.role, row.index), row.status, row.state, row.origin, row.pod?.node].join(' ').toLowerCase().includes(text);
}

function countStatuses(rows) {
  const counts = new Map();
  for (const { status } of rows) counts.set(status, { label: status, count: (counts.get(status)?.count ?? 0) + 1 });
  return counts;
}

function replicaSeverity(row) {
  if (row.done || row.status === 'Completed') return 'done';
  if (row.ready) return 'ok';
  return /error|fail|oom|backoff|evicted|lost|invalid/i.test(row.status) ? 'error' : 'warning';
}

function replicaColumns(state) {
  return [
    { title: t('role'), width: 148, cell: (row) => createRole(row.role, row.index) },
    { title: t('name'), class: 'wide mono', cell: (row) => row.name },
    { title: t('unit'), width: 150, class: 'wider unit mono', cell: (row) => unitOf(row) ?? '' },
    { title: t('status'), width: 160, cell: (row) => createPill(row.status, replicaSeverity(row), row.status) },
    { title: t('origin'), width: 90, class: 'wider', cell: createOrigin },
    { title: t('state'), width: 90, class: 'wider', cell: (row) => translate(`state.${row.state}`, row.state ?? '') },
    { title: t('node'), width: 130, class: 'wide', cell: (row) => row.pod?.node ?? '' },
    { title: 'GPU', width: 55, class: 'wide', cell: (row) => String(row.pod?.gpus || '') },
    { title: t('restarts'), width: 85, class: 'wider', cell: (row) => String(row.pod?.restarts || '') },
    { title: t('age'), width: 62, class: 'wide', cell: (row) => formatAge(row.pod?.created) },
    { title: t('exit'), class: 'exit', cell: (row) => createExit(lastExit(state, row)) },
  ];
}

function createOrigin({ origin }) {
  return create('span', { title: t('origins') }, translate(`origin.${origin}`, origin ?? ''));
}

function createExit(exit) {
  const text = exitText(exit);
  return exit?.exitCode === 0 ? text : create('span', { class: 'error', title: text }, text);
}

function lastExit(state, row) {
  return row.pod?.lastExit ?? findFailure(state, row);
}

/** The newest failure of a replica, or of the one that it replaces. */
function findFailure(state, row) {
  const ofPod = (name) => name && state.job?.failures.findLast((failure) => failure.pod === name);
  return ofPod(row.name) ?? ofPod(row.replaces) ?? null;
}

/** Shows all facts of a replica and the last log lines of its last failure. */
function openReplica(app, route, name) {
  const row = app.state.replicas.get(name);
  if (!row) return;
  const failure = findFailure(app.state, row);
  const facts = {
    status: row.status, origin: translate(`origin.${row.origin}`, row.origin), state: translate(`state.${row.state}`, row.state),
    unit: unitOf(row), replaces: row.replaces, node: row.pod?.node, GPU: row.pod?.gpus, containers: row.pod && `${row.pod.ready}/${row.pod.containers}`,
    restarts: row.pod?.restarts, planned: formatTime(row.plannedAt), created: formatTime(row.pod?.created),
    exit: exitText(lastExit(app.state, row)), address: row.url,
  };
  const shown = Object.entries(facts).filter(([, value]) => value);
  const list = shown.flatMap(([key, value]) => [create('dt', {}, t(key)), create('dd', {}, String(value))]);
  const failures = create('div', { class: 'failures' });
  if (failure) patchFailures(failures, [failure]);
  failures.querySelectorAll('details').forEach((each) => (each.open = true));
  const logs = `${jobHash(route, 'logs')}?replica=${encodeURIComponent(row.name)}`;
  showDialog(row.name, create('form', { method: 'dialog', class: 'replica' }, create('h2', {}, createRole(row.role, row.index)),
    create('p', { class: 'mono muted' }, row.name), create('dl', {}, list), failure ? create('h3', {}, t('tail')) : null, failures,
    create('div', { class: 'buttons end' }, create('button', { value: 'logs', class: 'primary', autofocus: true }, t('openLogs')),
      create('button', { value: '' }, t('close')))))
    .then((answer) => answer === 'logs' && app.go(logs));
}

/** Entries of one second may be equal in all but their number. */
function numberEntry(entry, index, entries) {
  return { ...entry, key: `${entry.at} ${entry.kind} ${entry.message} ${entries.length - index}` };
}

function createTimelineEntry(entry) {
  return create('li', { class: entry.severity }, create('time', { datetime: entry.at, title: entry.at }, formatTime(entry.at)),
    create('div', {}, create('span', { class: 'kind' }, translate(`kind.${entry.kind}`, entry.kind)), ' ', create('b', {}, entry.reason ?? ''),
      create('div', { class: 'muted' }, entry.message ?? '')));
}

function createConditionRow({ type, status, reason, message, since }) {
  return create('tr', {}, create('th', { scope: 'row' }, type), create('td', {}, status), create('td', {}, reason ?? ''),
    create('td', { class: 'muted' }, message ?? ''), create('td', { title: since }, formatTime(since)));
}

function createEvents(route) {
  const columns = [
    { title: t('last'), width: 80, cell: (event) => t('ago', { age: formatAge(event.last) }) },
    { title: t('type'), width: 100, class: 'wide', cell: (event) => createPill(event.type, event.type === 'Warning' ? 'warning' : 'muted') },
    { title: t('reason'), width: 150, cell: (event) => event.reason },
    { title: t('object'), width: 240, class: 'wider mono', cell: (event) => event.about },
    { title: t('message'), cell: (event) => event.message ?? '' },
    { title: t('count'), width: 65, class: 'wide', cell: (event) => String(event.count) },
  ];
  let empty = t('loading');
  const table = new DataTable({ label: t('events'), columns, keyOf: (event) => event.key, emptyText: () => empty });
  let timer = 0;

  function start() {
    if (timer) return;
    timer = setInterval(poll, POLL_EVENTS_MS);
    poll();
  }

  async function poll() {
    if (document.hidden) return;
    const { events = [], error } = await getJson(`${jobPath(route)}/events`).catch((failed) => ({ error: failed }));
    empty = error ? formatError(error) : t('noEvents');
    table.setRows(events.map((event, index) => ({ ...event, key: `${event.about} ${event.reason} ${event.first} ${index}` })));
  }
  return { element: table.element, start, close: () => clearInterval(timer) };
}
