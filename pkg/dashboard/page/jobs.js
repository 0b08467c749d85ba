// The list of jobs: which one runs, why another waits, what failed.

import { getJson } from './api.js';
import { create, createFilter, patchChips } from './dom.js';
import { formatAge, t, translate } from './i18n.js';
import { createPhasePill, jobHash, messageSeverity, phaseOf } from './jobparts.js';
import { DataTable } from './table.js';

const POLL_QUEUE_MS = 10000;

export function createJobsScreen(app) {
  const { state } = app;
  let phase = null;
  let queue = new Map();
  const filter = createFilter(update);
  const namespaces = create('datalist', { id: 'namespaces' });
  const namespace = create('input', { type: 'search', list: 'namespaces', 'aria-label': t('namespace'), placeholder: t('allNamespaces'),
    autocomplete: 'off', spellcheck: 'false', change: () => app.setNamespace(namespace.value.trim() || '*') });
  namespace.value = app.namespace === '*' ? '' : app.namespace;
  const chips = create('div', { class: 'chips' });
  const table = new DataTable({ label: t('jobs'), columns: jobColumns((job) => queue.get(job.key)), keyOf: (job) => job.key, rowHeight: 60,
    openRow: (job) => app.go(jobHash(job)), emptyText: () => (state.jobsKnown ? t(state.jobs.size ? 'noMatch' : 'noJobs') : t('loading')) });
  table.element.classList.add('tall');
  const timer = setInterval(pollQueue, POLL_QUEUE_MS);
  let asked = false;

  function update() {
    const jobs = [...state.jobs.values()].sort(compareJobs);
    const text = filter.value.toLowerCase();
    patchChips(chips, countPhases(jobs), phase, selectPhase);
    table.setRows(jobs.filter((job) => (!phase || phaseOf(job) === phase) && matchesText(job, text)));
    const known = [...new Set([app.session.namespace, ...jobs.map((job) => job.namespace)])].sort();
    if (namespaces.childElementCount !== known.length) namespaces.replaceChildren(...known.map((name) => create('option', { value: name })));
    if (!asked && state.jobsKnown) pollQueue();
  }

  function selectPhase(value) {
    phase = value;
    update();
  }

  /** Asks for places in the queue only while a job waits. */
  async function pollQueue() {
    if (document.hidden || ![...state.jobs.values()].some(waits)) return;
    asked = true;
    const { rows } = await getJson(`/api/queue?${new URLSearchParams({ namespace: app.namespace })}`).catch(() => ({ rows: [] }));
    queue = new Map(rows.map((row) => [`${row.namespace}/${row.name}`, row]));
    table.render(true);
  }

  const element = create('div', { class: 'screen' },
    create('div', { class: 'bar' }, create('h1', {}, t('jobs')), create('label', { class: 'field' }, t('namespace'), namespace), namespaces, filter),
    chips, table.element);
  return {
    element, table, filter, close: () => clearInterval(timer),
    update: (kinds) => (kinds.has('tick') ? table.render(true) : update()),
  };
}

function waits(job) {
  return job.phase === 'Queued' || job.waitingReplicas > 0;
}

/** Active jobs come first, the newest on top; then the ended ones, the last ended on top. */
function compareJobs(a, b) {
  if (a.ended !== b.ended) return a.ended ? 1 : -1;
  const time = (job) => (job.ended && job.completed) || job.created || '';
  return time(b).localeCompare(time(a)) || a.key.localeCompare(b.key);
}

function matchesText(job, text) {
  return !text || `${job.key} ${job.phase} ${job.reason} ${job.message} ${job.queue}`.toLowerCase().includes(text);
}

function countPhases(jobs) {
  const counts = new Map();
  for (const job of jobs) {
    const phase = phaseOf(job);
    counts.set(phase, { label: translate(`phase.${phase}`, phase), count: (counts.get(phase)?.count ?? 0) + 1 });
  }
  return counts;
}

function jobColumns(queueRow) {
  return [
    { title: t('job'), class: 'two', cell: (job) => createJobCell(job, queueRow(job)) },
    { title: t('phase'), width: 110, cell: createPhasePill },
    { title: t('collectors'), width: 105, class: 'wide', cell: (job) => job.collectors?.ready ?? '' },
    { title: t('learners'), width: 95, class: 'wide', cell: (job) => job.learners?.ready ?? '' },
    { title: 'GPU', width: 60, class: 'wide', cell: (job) => String(job.gpus || '') },
    { title: t('restarts'), width: 85, class: 'wider', cell: (job) => String(job.restarts || '') },
    { title: t('queue'), width: 150, class: 'wide', cell: (job) => formatQueue(job, queueRow(job)) },
    { title: t('age'), width: 62, cell: (job) => formatAge(job.created) },
    { title: t('ended'), width: 90, class: 'wider', cell: (job) => (job.completed ? t('ago', { age: formatAge(job.completed) }) : '') },
  ];
}

function createJobCell(job, waiting) {
  const message = job.message || waiting?.message || job.reason || '';
  return [
    create('div', { class: 'name' }, create('a', { href: jobHash(job), tabindex: -1 }, job.name), create('span', { class: 'muted' }, job.namespace)),
    create('div', { class: `why ${messageSeverity(job)}`, title: message }, message),
  ];
}

function formatQueue(job, waiting) {
  if (!job.queue) return '';
  if (waiting && waiting.position !== null && waiting.position !== undefined) return t('position', { n: waiting.position + 1, queue: job.queue });
  return job.waitingReplicas > 0 ? t('replicasWait', { n: job.waitingReplicas }) : job.queue;
}
