// Curves of all numbers in the stats that the workers of a job return on GET /lifecycle. The page keeps the points: the server stores none.

import { explainDisabled } from './actions.js';
import { getJson, jobPath } from './api.js';
import { create, patchList, setContent } from './dom.js';
import { formatError, formatNumber, formatTime, t, translate } from './i18n.js';
import { createJobFrame, createPill, createRole, roleText } from './jobparts.js';
import { DataTable } from './table.js';

const POLL_MS = 2000;
const RETRY_MS = 10000;
const MAX_POINTS = 4000;
const MAX_LINES = 6;
/** A longer time without a sample is a gap in the curves: the page was hidden, or had no connection. */
const GAP_S = 15;
const CHART_HEIGHT = 170;
const KNOWN = ['mean_return', 'evaluation', 'frames_per_second', 'policy_loss', 'value_loss', 'entropy'];
const COUNTERS = ['iteration', 'frames'];

/** The points of the job that was sampled last. */
let samples = createSamples('');
let uPlot;
let sampling = null;
let showSamples = () => {};

/** `values` has a column per number and replica, as long as `times`; in it, null is a gap and undefined a missed answer. */
function createSamples(key) {
  return { key, times: [], gaps: new Set(), values: new Map(), replicas: [], present: new Set(), latest: null, error: null };
}

/** The points stay until another job is sampled. */
function stopSampling() {
  clearTimeout(sampling?.timer);
  sampling = null;
}

function startSampling(app, job, show) {
  showSamples = show;
  const key = keyOf(job);
  if (samples.key !== key) {
    stopSampling();
    samples = createSamples(key);
  }
  if (sampling) return;
  sampling = { app, job, timer: 0 };
  takeSample(sampling);
}

/** A job that was created again begins new curves. */
function keyOf(job) {
  return `${job.key} ${job.uid}`;
}

async function takeSample(own) {
  // Another job, or none, was opened.
  if (own.app.job !== own.job.key) return stopSampling();
  if (!document.hidden) {
    const taken = await getJson(`${jobPath(own.job)}/training`).catch((error) => ({ error }));
    await loadPlot();
    if (own !== sampling) return;
    samples.error = taken.error ?? null;
    if (!taken.error) addSample(taken);
    showSamples();
  }
  own.timer = setTimeout(() => takeSample(own), samples.error ? RETRY_MS : POLL_MS);
}

/** The other screens do not wait for the chart library. */
async function loadPlot() {
  if (uPlot) return;
  uPlot = (await import('./vendor/uPlot.js')).default;
  document.head.prepend(create('link', { rel: 'stylesheet', href: '/vendor/uPlot.css' }));
}

function addSample(taken) {
  samples.latest = taken;
  const time = new Date(taken.at) / 1000;
  if (time - samples.times.at(-1) > GAP_S) addGap(time);
  const count = samples.times.push(time);
  samples.present.clear();
  const pods = new Map();
  for (const { role, index, stats } of taken.replicas) {
    const replica = `${role} ${index ?? ''}`;
    // The pods of a unit have the same role and index.
    const pod = pods.get(replica) ?? 0;
    pods.set(replica, pod + 1);
    samples.present.add(`${replica} ${pod}`);
    for (const [stat, value] of Object.entries(stats ?? {})) if (Number.isFinite(value)) columnOf(stat, `${replica} ${pod}`)[count - 1] = value;
  }
  if (count > MAX_POINTS) thinSamples();
}

function addGap(time) {
  const middle = time - GAP_S / 2;
  const count = samples.times.push(middle);
  samples.gaps.add(middle);
  for (const columns of samples.values.values()) for (const points of columns.values()) points[count - 1] = null;
}

/** The columns are kept by role and index, since the language may change. */
function labelReplica(replica) {
  const [role, index, pod] = replica.split(' ');
  return roleText(role, index || null) + (pod === '0' ? '' : `/${pod}`);
}

function columnOf(stat, replica) {
  if (!samples.values.has(stat)) samples.values.set(stat, new Map());
  if (!samples.replicas.includes(replica)) samples.replicas.push(replica);
  const columns = samples.values.get(stat);
  if (!columns.has(replica)) columns.set(replica, []);
  return columns.get(replica);
}

/** Drops every second point, so that hours fit. */
function thinSamples() {
  const { times, gaps } = samples;
  const thin = (points) => Array.from(times, (_, at) => points[at]).filter((_, at) => at % 2 || gaps.has(times[at]));
  for (const columns of samples.values.values()) for (const [replica, points] of columns) columns.set(replica, thin(points));
  samples.times = thin(times);
}

/** Returns and losses first, then staleness, then all else, and counters last. */
function rankStat(stat) {
  if (KNOWN.includes(stat)) return KNOWN.indexOf(stat);
  if (/stale|lag/.test(stat)) return KNOWN.length;
  return KNOWN.length + (COUNTERS.includes(stat) ? 2 : 1);
}

export function createTrainingScreen(app, route) {
  const frame = createJobFrame(app, route);
  const note = create('p', { class: 'muted' });
  const grid = create('div', { class: 'charts' });
  const workers = new DataTable({ label: t('replicas'), columns: workerColumns(), keyOf: (row) => row.name, emptyText: () => '' });
  const charts = new Map();
  frame.body.append(note, grid, create('section', { class: 'panel' }, create('h2', {}, t('replicas')), workers.element));

  function show() {
    const { latest, error } = samples;
    const progress = latest ? `${t('sampled', latest)}${samples.values.size ? '' : ` ${t('noStats')}`}` : t('loading');
    setContent(note, error ? formatError(error) : progress);
    note.className = error ? 'warning' : 'muted';
    const stats = [...samples.values.keys()].sort((a, b) => rankStat(a) - rankStat(b) || a.localeCompare(b));
    for (const stat of stats) if (!charts.has(stat)) charts.set(stat, new Chart(stat));
    patchList(grid, stats, (stat) => stat, (stat) => charts.get(stat).element);
    for (const chart of charts.values()) chart.update();
    workers.setRows(latest?.replicas ?? []);
  }

  function update() {
    frame.update();
    const { job } = app.state;
    if (!job) return;
    if (job.training?.disabled) {
      stopSampling();
      // The curves of a job that has ended stay.
      if (!charts.size && samples.key === keyOf(job)) show();
      setContent(note, explainDisabled(job.training));
    } else if (!sampling || showSamples !== show || samples.key !== keyOf(job)) {
      startSampling(app, job, show);
      show();
    }
  }

  function close() {
    for (const chart of charts.values()) chart.destroy();
    showSamples = () => {};
  }
  return { element: frame.element, table: workers, update, close };
}

function workerSeverity({ status, running }) {
  if (status === 'error') return 'error';
  return running ? 'ok' : 'muted';
}

function workerColumns() {
  return [
    { title: t('role'), width: 130, cell: (row) => createRole(row.role, row.index) },
    { title: t('status'), width: 130, cell: (row) => (row.status ? createPill(row.status, workerSeverity(row)) : '') },
    { title: t('polls'), width: 90, class: 'wide', cell: (row) => formatNumber(row.polls) },
    { title: t('batches'), width: 90, class: 'wide', cell: (row) => formatNumber(row.batches) },
    { title: t('samples'), width: 110, class: 'wide', cell: (row) => formatNumber(row.samples) },
    { title: t('name'), class: 'wide mono', cell: (row) => row.name },
    { title: t('message'), cell: (row) => create('span', { title: row.message ?? row.error, class: 'muted' }, row.message ?? row.error ?? '') },
  ];
}

/** One number of all replicas that report it: a line each, or with many the mean between lowest and highest. */
class Chart {
  constructor(stat) {
    this.stat = stat;
    this.value = create('b');
    this.legend = create('p', { class: 'legend' });
    this.plotBox = create('div', { class: 'plot' });
    this.element = create('figure', { class: 'chart' },
      create('figcaption', {}, create('span', { title: stat }, translate(`stat.${stat}`, stat.replaceAll('_', ' '))), this.value), this.plotBox, this.legend);
    this.observer = new ResizeObserver(() => this.plot?.setSize(this.size()));
    this.observer.observe(this.plotBox);
  }

  size() {
    return { width: Math.max(200, this.plotBox.clientWidth), height: CHART_HEIGHT };
  }

  update() {
    const columns = samples.values.get(this.stat) ?? new Map();
    const merged = columns.size > MAX_LINES;
    this.replicas = merged ? [] : [...columns.keys()];
    const names = merged ? [t('band', { n: columns.size })] : this.replicas.map(labelReplica);
    const colors = merged ? [1] : this.replicas.map(colorOf);
    const lines = [...columns.values()].map((points) => samples.times.map((_, at) => points[at]));
    const data = [samples.times, ...(merged ? mergeLines(lines) : lines)];
    if (this.names?.join() !== names.join()) this.createPlot(names, colors, merged, data);
    else this.plot.setData(data);
    this.showValue(null);
  }

  createPlot(names, colorNumbers, merged, data) {
    this.names = names;
    this.plot?.destroy();
    const [text, grid] = [resolveColor('--muted'), resolveColor('--line')];
    const colors = colorNumbers.map((number) => resolveColor(`--curve-${number}`));
    const axis = { stroke: text, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 }, font: '11px system-ui' };
    const line = (color) => ({ stroke: color, width: 1.75, points: { size: 4 } });
    const edge = { ...line('transparent'), points: { show: false } };
    this.labels = names.map((name, at) => ({ name: create('span', { class: `curve-${colorNumbers[at]}` }, name), value: create('b') }));
    setContent(this.legend, data.length > 2 ? this.labels.flatMap(({ name, value }) => [name, value]) : '');
    this.plot = new uPlot({
      ...this.size(),
      padding: [8, 28, 0, 0],
      legend: { show: false },
      cursor: { drag: { x: false, y: false }, sync: { key: 'training' }, points: { size: 6 } },
      series: [{}, ...(merged ? [line(colors[0]), edge, edge] : colors.map(line))],
      bands: merged ? [{ series: [2, 3], fill: colors[0].replace('rgb', 'rgba').replace(')', ', 0.18)') }] : [],
      axes: [{ ...axis, size: 28, space: 80, values: (_, times) => times.map((time) => formatTime(time * 1000)) },
        { ...axis, size: 66, space: 34, values: (_, values) => values.map(formatNumber) }],
      hooks: { setCursor: [(plot) => this.showValue(plot.cursor.idx)] },
    }, data, this.plotBox);
  }

  /** Shows the values under the pointer with their time, else the last ones. */
  showValue(index) {
    if (!this.plot) return;
    const [times, ...lines] = this.plot.data;
    const pointed = index !== null && index !== undefined;
    const values = lines.map((points, at) => formatNumber(pointed ? points[index] : lastValue(points, this.replicas[at])));
    const several = lines.length > 1 && lines.length === this.labels.length;
    setContent(this.value, [pointed && formatTime(times[index] * 1000), !several && values[0]].filter(Boolean).join(' · '));
    if (several) this.labels.forEach(({ value }, at) => setContent(value, values[at]));
  }

  destroy() {
    this.observer.disconnect();
    this.plot?.destroy();
  }
}

function isKnown(value) {
  return value !== null && value !== undefined;
}

/** A replica that was removed has no value. */
function lastValue(points, replica) {
  return !replica || samples.present.has(replica) ? points.findLast(isKnown) : null;
}

/** A replica has the same colour in all charts. */
function colorOf(replica) {
  return 1 + (samples.replicas.indexOf(replica) % MAX_LINES);
}

/** The mean, highest and lowest of the lines at each time. */
function mergeLines(lines) {
  const each = samples.times.map((_, at) => lines.map((line) => line[at]));
  const pick = (combine) => each.map((values) => {
    const known = values.filter(isKnown);
    return known.length ? combine(known) : values.find((value) => value === null);
  });
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  return [pick(mean), pick((values) => Math.max(...values)), pick((values) => Math.min(...values))];
}

/** Canvas knows no CSS variables. */
function resolveColor(name) {
  const probe = create('span');
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}
