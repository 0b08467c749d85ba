// The nodes and their GPUs, who uses them, and the checks of the doctor.

import { getJson } from './api.js';
import { create, patchList, setContent } from './dom.js';
import { formatError, t } from './i18n.js';
import { createPill, jobHash } from './jobparts.js';
import { DataTable } from './table.js';

const POLL_MS = 10000;

export function createClusterScreen(app) {
  let empty = t('loading');
  const note = create('p', { class: 'warning' });
  const total = create('p', { class: 'muted' });
  const nodes = new DataTable({ label: t('nodes'), columns: nodeColumns(), keyOf: (node) => node.name, emptyText: () => empty });
  const users = new DataTable({ label: t('users'), columns: userColumns(), keyOf: (user) => user.key, emptyText: () => t('noUsers'),
    openRow: (user) => user.job && app.go(jobHash({ namespace: user.namespace, name: user.job })) });
  const findings = create('ul', { class: 'findings' });
  const button = create('button', { type: 'button', click: runDoctor }, t('runDoctor'));
  const timer = setInterval(poll, POLL_MS);
  poll();

  async function poll() {
    if (document.hidden) return;
    const answer = await getJson('/api/nodes').catch((error) => ({ error, nodes: [] }));
    empty = answer.error ? formatError(answer.error) : t('noNodes');
    const [gpus, used] = ['gpus', 'used'].map((key) => answer.nodes.reduce((sum, node) => sum + node[key], 0));
    setContent(total, gpus ? t('used', { used, gpus }) : '');
    setContent(note, answer.podsHidden ? t('nodePodsHidden', { why: answer.podsHidden }) : '');
    nodes.setRows(answer.nodes);
    users.setRows(sumUsers(answer.nodes));
  }

  async function runDoctor() {
    button.classList.add('busy');
    setContent(findings, create('li', { class: 'muted' }, t('loading')));
    const failed = (error) => ({ findings: [{ check: t('doctor'), state: 'error', message: formatError(error) }] });
    const answer = await getJson('/api/doctor').catch(failed);
    patchList(findings, answer.findings, (finding) => finding.check + finding.message, createFinding);
    button.classList.remove('busy');
  }

  const element = create('div', { class: 'screen' }, create('div', { class: 'bar' }, create('h1', {}, t('cluster')), total),
    create('section', { class: 'panel' }, create('h2', {}, t('nodes')), note, nodes.element),
    create('section', { class: 'panel' }, create('h2', {}, t('users')), users.element),
    create('section', { class: 'panel' }, create('div', { class: 'bar' }, create('h2', {}, t('doctor')), button),
      create('p', { class: 'muted' }, t('doctorWhy')), findings));
  return { element, table: users, update: () => {}, close: () => clearInterval(timer) };
}

function nodeColumns() {
  return [
    { title: t('node'), cell: (node) => node.name },
    { title: t('status'), width: 155, cell: (node) => createPill(nodeStatus(node), node.ready ? (node.schedulable ? 'ok' : 'muted') : 'error') },
    { title: 'GPU', width: 70, cell: ({ used, gpus }) => (gpus ? `${used}/${gpus}` : '–') },
    { title: '', width: 120, class: 'wide', cell: ({ used, gpus }) => (gpus ? create('meter', { min: 0, max: gpus, value: used }) : '') },
    { title: t('users'), class: 'wide', cell: (node) => node.users.filter((user) => user.gpus).map(createUser) },
  ];
}

function nodeStatus(node) {
  return [t(node.ready ? 'ready' : 'notReady'), !node.schedulable && t('cordoned')].filter(Boolean).join(', ');
}

function createUser(user) {
  const name = user.job ? create('a', { href: jobHash({ namespace: user.namespace, name: user.job }) }, user.job) : user.namespace;
  return create('span', { class: 'user' }, name, ` ${user.gpus}`);
}

function userColumns() {
  return [
    { title: t('user'), cell: (user) => create('span', {}, user.job ?? t('otherPods'), create('span', { class: 'muted' }, ` ${user.namespace}`)) },
    { title: 'GPU', width: 80, cell: (user) => String(user.gpus) },
    { title: t('pods'), width: 80, cell: (user) => String(user.pods) },
  ];
}

/** The users of all nodes together, the largest first. */
function sumUsers(nodes) {
  const sums = new Map();
  for (const { namespace, job, gpus, pods } of nodes.flatMap((node) => node.users)) {
    const key = `${namespace}/${job ?? ''}`;
    const sum = sums.get(key) ?? { key, namespace, job, gpus: 0, pods: 0 };
    sums.set(key, { ...sum, gpus: sum.gpus + gpus, pods: sum.pods + pods });
  }
  return [...sums.values()].filter((user) => user.gpus).sort((a, b) => b.gpus - a.gpus || a.key.localeCompare(b.key));
}

function createFinding({ check, state, message, remedy }) {
  const severity = state === 'unknown' ? 'muted' : state;
  return create('li', {}, createPill(t(`finding.${state}`), severity), create('b', {}, check),
    create('div', {}, message, remedy ? create('div', { class: 'remedy' }, remedy) : null));
}
