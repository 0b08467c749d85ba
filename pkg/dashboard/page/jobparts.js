// Parts that several screens of a job share: its head with the tabs, pills, and failure records.

import { create, patchList, setContent } from './dom.js';
import { formatTime, t, translate } from './i18n.js';

const PHASE_SEVERITY = {
  Running: 'ok', Succeeded: 'done', Failed: 'error', Unknown: 'warning', Queued: 'warning',
  Suspended: 'muted', Created: 'info', New: 'info', Deleting: 'muted',
};

export function createPill(text, severity, title) {
  return create('span', { class: `pill ${severity}`, title }, text);
}

export function phaseOf(job) {
  return job.deleting ? 'Deleting' : job.phase ?? 'New';
}

export function createPhasePill(job) {
  const phase = phaseOf(job);
  const waits = phase === 'Created' && job.message;
  return createPill(translate(`phase.${phase}`, phase), waits ? 'warning' : PHASE_SEVERITY[phase] ?? 'muted', phase);
}

/** How serious the message of a job is: an ended or running job may have an old or harmless one. */
export function messageSeverity(job) {
  if (job.phase === 'Failed') return 'error';
  return job.ended || job.suspended ? 'muted' : 'warning';
}

/** The role as labels and log lines have it: DDPLearner -> ddp-learner. */
export function roleClass(role) {
  return role === 'DDPLearner' ? 'ddp-learner' : role.toLowerCase();
}

export function roleText(role, index) {
  const name = translate(`role.${roleClass(role)}`, role);
  return index === null || index === undefined || role === 'Coordinator' ? name : `${name} ${index}`;
}

export function createRole(role, index) {
  return create('span', { class: `role ${roleClass(role)}` }, roleText(role, index));
}

export function exitText(exit) {
  if (!exit) return '';
  const code = exit.exitCode === null || exit.exitCode === undefined ? '' : ` (${exit.exitCode})`;
  return `${exit.reason ?? ''}${code}`.trim();
}

export function jobHash({ namespace, name }, tab = '') {
  return `#/jobs/${namespace}/${name}${tab && `/${tab}`}`;
}

/** The head of a job and an empty body for the screen of the tab. */
export function createJobFrame({ state }, route) {
  const phase = create('span');
  const reason = create('span', { class: 'reason' });
  const message = create('p', { class: 'message' });
  const body = create('div', { class: 'body' });
  const missing = create('p', { class: 'empty' });
  const tabs = ['overview', 'training', 'logs'].map((tab) => create('a',
    { href: jobHash(route, tab === 'overview' ? '' : tab), 'aria-current': tab === route.tab ? 'page' : null }, t(tab)));
  const element = create('div', { class: 'screen job' },
    create('div', { class: 'head' },
      create('p', { class: 'crumbs' }, create('a', { href: '#/jobs' }, t('jobs')), ' / ', route.namespace, ' / '),
      create('h1', {}, route.name), phase, reason),
    message, create('nav', { class: 'tabs' }, tabs), missing, body);

  function update() {
    const { job } = state;
    setContent(missing, job === null ? t('noJob') : job === undefined ? t('loading') : '');
    body.hidden = !job;
    setContent(phase, job ? createPhasePill(job) : '');
    setContent(reason, job?.reason ?? '');
    setContent(message, job?.message ?? '');
    message.className = job?.message ? `message ${messageSeverity(job)}` : 'message';
  }
  return { element, body, update };
}

/** Failure records, newest first, each with its stored log lines. */
export function patchFailures(container, failures) {
  const newest = [...failures].sort((a, b) => b.at.localeCompare(a.at));
  patchList(container, newest, (failure) => `${failure.pod} ${failure.uid} ${failure.at}`, createFailure);
}

function createFailure(failure) {
  const facts = [failure.reason, failure.exitCode !== null && failure.exitCode !== undefined && t('exitCode', { code: failure.exitCode }),
    failure.count > 1 && t('times', { n: failure.count }), failure.rule && t('rule', failure), failure.node];
  return create('details', { class: 'failure' },
    create('summary', {}, create('time', { datetime: failure.at, title: failure.at }, formatTime(failure.at)),
      createRole(failure.role, failure.index), create('span', { class: 'facts' }, facts.filter(Boolean).join(' · '))),
    create('p', { class: 'mono muted' }, failure.pod),
    failure.tail ? create('pre', { tabindex: 0 }, stripEscapes(failure.tail)) : create('p', { class: 'empty' }, t('noTail')));
}

const ESCAPES = /\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])/g;

/** Removes colours and other sequences for terminals; of a line that a progress bar overwrote, the last state stays. */
export function stripEscapes(text) {
  return text.replace(ESCAPES, '').replace(/^.*\r(?=[^\n])/gm, '').replace(/[\x00-\x08\x0b-\x1f\x7f]/g, '');
}
